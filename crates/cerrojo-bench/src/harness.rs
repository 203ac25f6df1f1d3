//! Interleaved rounds: in each, every contestant of a question is measured once, so that noise hits all alike.

use serde::Serialize;
use tempfile::TempDir;

use crate::{
    Result,
    aim::{Aim, Told},
    args::Args,
    report,
    stats::Spread,
};

/// One question and those who answer it.
pub(crate) struct Question {
    pub(crate) name: &'static str,
    /// What is asked, in a sentence.
    pub(crate) asks: &'static str,
    /// The contestant that the others are compared with.
    pub(crate) baseline: String,
    /// How often each is measured, unless the command line says so.
    pub(crate) rounds: u32,
    pub(crate) contestants: Vec<Contestant>,
    pub(crate) aims: Vec<Aim>,
    /// Who could not take part, and why.
    pub(crate) left_out: Vec<String>,
    /// Where the contestants keep their files; removed with the question.
    pub(crate) folder: TempDir,
}

type Play = Box<dyn FnMut() -> Result<Played>>;

/// Someone who can be measured any number of times.
pub(crate) struct Contestant {
    name: String,
    play: Play,
}

/// What one measurement showed.
#[derive(Debug, Default)]
pub(crate) struct Played {
    figures: Vec<Figure>,
    /// What must never happen, and did.
    violations: Vec<String>,
}

#[derive(Debug)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    samples: Vec<f64>,
}

/// A question's answer.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) question: &'static str,
    pub(crate) asks: &'static str,
    pub(crate) baseline: String,
    pub(crate) rounds: u32,
    pub(crate) lines: Vec<Line>,
    pub(crate) aims: Vec<Told>,
    pub(crate) left_out: Vec<String>,
    pub(crate) violations: Vec<String>,
    pub(crate) failures: Vec<String>,
}

/// One figure of one contestant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) figure: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) contestant: String,
    /// Over all samples of all rounds.
    pub(crate) spread: Spread,
    /// The median of each round.
    pub(crate) rounds: Vec<f64>,
    /// Over the rounds: this contestant's median by the baseline's of the same round.
    pub(crate) ratio: Option<Spread>,
    #[serde(skip)]
    samples: Vec<f64>,
}

impl Question {
    /// A question without contestants yet.
    pub(crate) fn new(args: &Args, name: &'static str, asks: &'static str) -> Result<Self> {
        Ok(Self {
            name,
            asks,
            baseline: String::new(),
            rounds: 1,
            contestants: Vec::new(),
            aims: Vec::new(),
            left_out: Vec::new(),
            folder: args.fresh_folder()?,
        })
    }

    /// The same question with its baseline and its number of rounds.
    pub(crate) fn compared_with(mut self, baseline: &str, rounds: u32) -> Self {
        baseline.clone_into(&mut self.baseline);
        self.rounds = rounds;
        self
    }

    pub(crate) fn add<F>(&mut self, name: impl Into<String>, play: F)
    where
        F: FnMut() -> Result<Played> + 'static,
    {
        self.contestants.push(Contestant { name: name.into(), play: Box::new(play) });
    }

    /// Takes what the command line says of contestants and baseline.
    fn fit(&mut self, args: &Args) {
        if let Some(other) = args.baseline.as_ref().filter(|name| self.has(name)) {
            self.baseline.clone_from(other);
        }
        if let Some(wanted) = &args.contestants {
            let baseline = &self.baseline;
            self.contestants.retain(|one| one.name.contains(wanted) || one.name == *baseline);
        }
    }

    fn has(&self, name: &str) -> bool {
        self.contestants.iter().any(|one| one.name == name)
    }
}

impl Played {
    pub(crate) fn figure(
        mut self,
        name: &'static str,
        unit: &'static str,
        samples: Vec<f64>,
    ) -> Self {
        self.figures.push(Figure { name, unit, samples });
        self
    }

    pub(crate) fn violations(mut self, seen: Vec<String>) -> Self {
        self.violations.extend(seen);
        self
    }
}

impl Outcome {
    fn new(question: &Question, rounds: u32) -> Self {
        Self {
            question: question.name,
            asks: question.asks,
            baseline: question.baseline.clone(),
            rounds,
            lines: Vec::new(),
            aims: Vec::new(),
            left_out: question.left_out.clone(),
            violations: Vec::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.violations.is_empty() && self.failures.is_empty()
    }

    fn take(&mut self, contestant: &str, played: Result<Played>) {
        match played {
            Err(error) => self.fail(format!("{contestant}: {error}")),
            Ok(played) => {
                let seen = played.violations.into_iter();
                self.violations.extend(seen.map(|what| format!("{contestant}: {what}")));
                for figure in played.figures {
                    self.take_figure(contestant, figure);
                }
            }
        }
    }

    /// What fails in every round is told once.
    fn fail(&mut self, failure: String) {
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    fn take_figure(&mut self, contestant: &str, figure: Figure) {
        let Some(spread) = Spread::of(&figure.samples) else {
            return;
        };
        let same = |line: &&mut Line| line.figure == figure.name && line.contestant == contestant;
        if let Some(line) = self.lines.iter_mut().find(same) {
            line.add(&figure, spread);
        } else {
            self.lines.push(Line::first(contestant, figure, spread));
        }
    }

    fn compare(&mut self, aims: &[Aim]) {
        let is_base = |line: &&Line| line.contestant == self.baseline;
        let bases: Vec<_> = self.lines.iter().filter(is_base).cloned().collect();
        for line in &mut self.lines {
            let base = bases.iter().find(|base| base.figure == line.figure);
            line.ratio = base.and_then(|base| line.ratio_to(base));
        }
        self.aims = aims.iter().map(|aim| aim.tell(&self.lines)).collect();
    }
}

impl Line {
    fn first(contestant: &str, figure: Figure, spread: Spread) -> Self {
        Self {
            figure: figure.name,
            unit: figure.unit,
            contestant: contestant.to_owned(),
            spread,
            rounds: vec![spread.median],
            ratio: None,
            samples: figure.samples,
        }
    }

    fn add(&mut self, figure: &Figure, of_round: Spread) {
        self.rounds.push(of_round.median);
        self.samples.extend(&figure.samples);
        self.spread = Spread::of(&self.samples).unwrap_or(of_round);
    }

    /// Round by round; nothing where a round is missing, since a failure would then shift the pairs, nor by zero.
    pub(crate) fn ratio_to(&self, base: &Self) -> Option<Spread> {
        if self.rounds.len() != base.rounds.len() || base.rounds.contains(&0.0) {
            return None;
        }
        let pairs = self.rounds.iter().zip(&base.rounds);
        Spread::of(&pairs.map(|(own, base)| own / base).collect::<Vec<_>>())
    }
}

/// Measures every contestant once a round; each round starts with another one.
pub(crate) fn ask(mut question: Question, args: &Args) -> Result<Outcome> {
    question.fit(args);
    let rounds = args.rounds.unwrap_or(question.rounds);
    let mut outcome = Outcome::new(&question, rounds);
    for round in 1..=rounds {
        report::to_stderr(&format!("{}: round {round} of {rounds}", question.name))?;
        for contestant in &mut question.contestants {
            let played = (contestant.play)();
            outcome.take(&contestant.name, played);
        }
        let further = question.contestants.len().min(1);
        question.contestants.rotate_left(further);
    }
    outcome.compare(&question.aims);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::aim::Wanted;

    fn counting(question: &mut Question, name: &'static str, step: f64) {
        let mut last = 0.0;
        question.add(name, move || {
            last += step;
            Ok(Played::default().figure("speed", "1/s", vec![last]))
        });
    }

    fn question(baseline: &str) -> Question {
        let args = Args::parse_from(["bench"]);
        Question::new(&args, "q", "?").unwrap().compared_with(baseline, 3)
    }

    fn asked(question: Question, line: &[&str]) -> Outcome {
        ask(question, &Args::parse_from([&["bench"], line].concat())).unwrap()
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let mut question = question("slow");
        counting(&mut question, "slow", 1.0);
        counting(&mut question, "fast", 4.0);
        let outcome = asked(question, &[]);
        let fast = outcome.lines.iter().find(|line| line.contestant == "fast").unwrap();
        assert_eq!(fast.rounds, [4.0, 8.0, 12.0]);
        let ratio = fast.ratio.unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (4.0, 4.0, 4.0));
    }

    #[test]
    fn an_aim_is_told_beside_what_was_measured() {
        let mut question = question("slow");
        counting(&mut question, "slow", 1.0);
        counting(&mut question, "fast", 4.0);
        let aim = || Aim::new("speed", "fast", Wanted::AtLeast(3.0));
        question.aims = vec![aim(), aim().by("slow"), aim().by("nobody")];
        let told = asked(question, &[]).aims;
        assert_eq!(told[1].to_string(), "speed, fast by slow: at least 3");
        let medians: Vec<_> = told.iter().map(|told| Some(told.measured?.median)).collect();
        assert_eq!(medians, [Some(8.0), Some(4.0), None]);
    }

    #[test]
    fn a_violation_or_a_failure_is_not_good() {
        let mut lost = question("one");
        lost.add("one", || Ok(Played::default().violations(vec!["an update was lost".into()])));
        assert!(!asked(lost, &[]).is_good());
        let mut broken = question("one");
        broken.add("one", || Err("it broke".into()));
        assert!(!asked(broken, &[]).is_good());
    }

    #[test]
    fn the_command_line_chooses_contestants_and_baseline() {
        let mut question = question("a");
        for name in ["a", "b", "c"] {
            counting(&mut question, name, 1.0);
        }
        let outcome = asked(question, &["--rounds", "1", "--baseline", "b", "--contestants", "c"]);
        let names: Vec<_> = outcome.lines.iter().map(|line| line.contestant.as_str()).collect();
        assert_eq!((names, outcome.rounds), (vec!["b", "c"], 1));
    }
}
