//! What we want to reach. It is told beside what was measured, and nothing depends on it.

use std::fmt;

use serde::Serialize;

use crate::{harness::Line, stats::Spread};

/// A bound for one figure of one contestant.
#[derive(Clone, Debug)]
pub(crate) struct Aim {
    figure: &'static str,
    contestant: String,
    /// The contestant by whose figure it is divided; none: the figure itself counts.
    by: Option<String>,
    wanted: Wanted,
}

/// What is wanted of a figure or a ratio.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

/// An aim, and what was measured of it: over the rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Told {
    what: String,
    wanted: Wanted,
    pub(crate) measured: Option<Spread>,
}

impl Aim {
    pub(crate) fn new(figure: &'static str, contestant: &str, wanted: Wanted) -> Self {
        Self { figure, contestant: contestant.to_owned(), by: None, wanted }
    }

    /// The same of the ratio to another contestant.
    pub(crate) fn by(mut self, other: &str) -> Self {
        self.by = Some(other.to_owned());
        self
    }

    pub(crate) fn tell(&self, lines: &[Line]) -> Told {
        Told { what: self.to_string(), wanted: self.wanted, measured: self.measured(lines) }
    }

    fn measured(&self, lines: &[Line]) -> Option<Spread> {
        let own = self.line(lines, &self.contestant)?;
        match &self.by {
            None => Spread::of(&own.rounds),
            Some(other) => own.ratio_to(self.line(lines, other)?),
        }
    }

    fn line<'a>(&self, lines: &'a [Line], contestant: &str) -> Option<&'a Line> {
        lines.iter().find(|line| line.figure == self.figure && line.contestant == contestant)
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, contestant, by, .. } = self;
        write!(f, "{figure}, {contestant}")?;
        by.as_ref().map_or(Ok(()), |other| write!(f, " by {other}"))
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.what)?;
        match self.wanted {
            Wanted::AtLeast(least) => write!(f, "at least {least}"),
            Wanted::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}
