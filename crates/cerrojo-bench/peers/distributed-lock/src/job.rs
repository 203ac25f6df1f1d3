//! What a worker is told to do, as `--OPTION=VALUE`.

use std::{collections::HashMap, str::FromStr, time::Duration};

use crate::Result;

/// What one worker does.
pub struct Job {
    pub url: String,
    pub name: String,
    pub own_names: bool,
    pub tasks: u32,
    pub rounds: usize,
    pub hold: Duration,
    pub between: Duration,
}

impl Job {
    pub fn from_args(args: impl Iterator<Item = String>) -> Result<Self> {
        let said: HashMap<String, String> = args.skip(1).map(option).collect();
        Ok(Self {
            url: value(&said, "--url")?,
            name: value(&said, "--name")?,
            own_names: said.contains_key("--own-names"),
            tasks: value(&said, "--tasks")?,
            rounds: value(&said, "--rounds")?,
            hold: Duration::from_millis(value(&said, "--hold")?),
            between: Duration::from_millis(value(&said, "--between")?),
        })
    }

    pub fn name_of(&self, task: u32) -> String {
        if self.own_names { format!("{}/{task}", self.name) } else { self.name.clone() }
    }
}

fn option(word: String) -> (String, String) {
    match word.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (word, String::new()),
    }
}

fn value<T: FromStr>(said: &HashMap<String, String>, option: &str) -> Result<T> {
    let text = said.get(option).ok_or_else(|| format!("{option} is missing"))?;
    text.parse().map_err(|_| format!("{option}={text} cannot be read").into())
}
