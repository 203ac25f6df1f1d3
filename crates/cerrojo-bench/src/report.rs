//! What is shown and written.

use std::{fs, io::Write, path::Path};

use serde::Serialize;

use crate::{
    Result,
    harness::{Line, Outcome},
    machine::Machine,
    stats::Spread,
};

/// Everything of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) outcomes: Vec<Outcome>,
}

impl Report {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, outcomes: Vec::new() }
    }

    pub(crate) fn print_machine(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", self.machine)?;
        Ok(())
    }

    pub(crate) fn write(&self, file: Option<&Path>) -> Result<()> {
        if let Some(file) = file {
            fs::write(file, serde_json::to_vec_pretty(self)?)?;
        }
        Ok(())
    }
}

/// One table for each figure, as documents have them.
pub(crate) fn print(outcome: &Outcome) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n## {}\n\n{}.", outcome.question, outcome.asks)?;
    for (figure, unit) in figures(outcome) {
        writeln!(out, "\n{}", title(figure, unit, outcome))?;
        for line in outcome.lines.iter().filter(|line| line.figure == figure) {
            writeln!(out, "{}", row(line))?;
        }
    }
    for told in &outcome.aims {
        let measured = told.measured.map_or_else(|| "not measured".to_owned(), over_rounds);
        writeln!(out, "\naim: {told}; measured: {measured}")?;
    }
    for (what, texts) in remarks(outcome) {
        texts.iter().try_for_each(|text| writeln!(out, "\n{what}: {text}"))?;
    }
    Ok(())
}

fn remarks(outcome: &Outcome) -> [(&'static str, &[String]); 3] {
    [
        ("left out", &outcome.left_out),
        ("FAILED", &outcome.failures),
        ("NOT SAFE", &outcome.violations),
    ]
}

fn figures(outcome: &Outcome) -> Vec<(&'static str, &'static str)> {
    let mut seen = Vec::new();
    for line in &outcome.lines {
        if !seen.contains(&(line.figure, line.unit)) {
            seen.push((line.figure, line.unit));
        }
    }
    seen
}

fn title(figure: &str, unit: &str, outcome: &Outcome) -> String {
    let figure = if unit.is_empty() { figure.to_owned() } else { format!("{figure}, {unit}") };
    let ratio = format!("by {}, of {} rounds", outcome.baseline, outcome.rounds);
    let names = cells([&figure, "median", "p10 .. p90", "p99", "samples", &ratio]);
    format!("{names}\n|---|---|---|---|---|---|")
}

fn row(line: &Line) -> String {
    let Spread { samples, p10, median, p90, p99, .. } = line.spread;
    let between = format!("{} .. {}", number(p10), number(p90));
    let ratio = line.ratio.map(over_rounds).unwrap_or_default();
    let [median, p99, samples] = [number(median), number(p99), samples.to_string()];
    cells([&line.contestant, &median, &between, &p99, &samples, &ratio])
}

/// Filled up, so that they can be read as they are.
fn cells([name, median, between, p99, samples, ratio]: [&str; 6]) -> String {
    format!("| {name:<34} | {median:>9} | {between:>18} | {p99:>9} | {samples:>7} | {ratio:<31} |")
}

/// The median, and in between all are.
fn over_rounds(rounds: Spread) -> String {
    let [median, min, max] = [rounds.median, rounds.min, rounds.max].map(number);
    format!("{median} ({min} .. {max})")
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 1.0 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

pub(crate) fn to_stderr(text: &str) -> Result<()> {
    writeln!(std::io::stderr().lock(), "{text}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count() {
        let cases = [
            (0.0, "0"),
            (0.01234, "0.012"),
            (1.2345, "1.23"),
            (12.345, "12.3"),
            (123_456.7, "123457"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}
