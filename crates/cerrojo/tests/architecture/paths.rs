//! The paths that a file names, imports taken apart: `use a::{b, c::{self, D as E}}` names
//! `a::b`, `a::c` and `a::c::D`.

use crate::scan::{Kind, Token, reads};

/// One path as it is written, with its first word made absolute where it leads into the own crate.
#[derive(Clone, Debug)]
pub struct Named {
    /// `crate` first for a path into the own crate.
    pub words: Vec<String>,
    /// The name by which an import is known; empty for a path that is no import.
    pub alias: String,
    /// Whether it is exported.
    pub public: bool,
    pub line: usize,
}

impl Named {
    pub fn text(&self) -> String {
        self.words.join("::")
    }

    /// The words after `crate`, for a path into the own crate.
    pub fn inside(&self) -> Option<&[String]> {
        self.words.split_first().filter(|(first, _)| *first == "crate").map(|(_, rest)| rest)
    }

    /// Whether `wanted` stands in it, word by word.
    pub fn holds(&self, wanted: &str) -> bool {
        let wanted: Vec<_> = wanted.split("::").collect();
        self.words.windows(wanted.len()).any(|words| words == wanted)
    }

    /// Whether it begins with `wanted`, word by word.
    pub fn begins(&self, wanted: &str) -> bool {
        let wanted: Vec<_> = wanted.split("::").collect();
        self.words.len() >= wanted.len() && self.words[..wanted.len()] == wanted
    }
}

/// Every path of a file whose module is `module`.
pub fn named(tokens: &[Token], module: &[String]) -> Vec<Named> {
    let mut walk =
        Walk { tokens, at: 0, module: module.to_vec(), open: Vec::new(), found: Vec::new() };
    while walk.at < tokens.len() {
        walk.step();
    }
    walk.found
}

struct Walk<'a> {
    tokens: &'a [Token],
    at: usize,
    module: Vec<String>,
    /// For each open brace, whether it opened a module.
    open: Vec<bool>,
    found: Vec<Named>,
}

impl Walk<'_> {
    fn step(&mut self) {
        let token = &self.tokens[self.at];
        match token.text.as_str() {
            _ if token.kind == Kind::Text => self.at += 1,
            "use" => self.import(),
            // Who may see an item is no import.
            "in" if self.at >= 2 && reads(self.tokens, self.at - 2, &["pub", "("]) => {
                while !self.tokens[self.at].is(")") {
                    self.at += 1;
                }
            }
            "{" => self.enter(),
            "}" => self.leave(),
            _ if token.kind == Kind::Word && reads(self.tokens, self.at + 1, &["::"]) => {
                self.path();
            }
            _ => self.at += 1,
        }
    }

    fn enter(&mut self) {
        let name = self.at.checked_sub(1).map(|at| self.tokens[at].text.clone());
        let is_module = self.at >= 2 && self.tokens[self.at - 2].is("mod");
        self.open.push(is_module);
        self.module.extend(name.filter(|_| is_module));
        self.at += 1;
    }

    fn leave(&mut self) {
        if self.open.pop() == Some(true) {
            self.module.pop();
        }
        self.at += 1;
    }

    fn path(&mut self) {
        let line = self.tokens[self.at].line;
        let mut words = vec![self.word()];
        while reads(self.tokens, self.at, &["::"]) && self.is_word(self.at + 1) {
            self.at += 1;
            words.push(self.word());
        }
        self.add(&words, "", false, line);
    }

    fn import(&mut self) {
        let public = self.at > 0 && self.tokens[self.at - 1].is("pub");
        self.at += 1;
        self.branch(&[], public);
    }

    /// One branch of an import: words, and then a group, a star, another name, or nothing.
    fn branch(&mut self, trunk: &[String], public: bool) {
        let mut words = trunk.to_vec();
        let mut line = 0;
        while let Some(token) = self.tokens.get(self.at) {
            line = token.line;
            match token.text.as_str() {
                "::" => self.at += 1,
                "{" => return self.group(&words, public),
                "as" => break,
                _ if token.kind == Kind::Word || token.is("*") => words.push(self.word()),
                _ => break,
            }
        }
        let alias = self.alias(&mut words);
        self.add(&words, &alias, public, line);
    }

    fn group(&mut self, trunk: &[String], public: bool) {
        self.at += 1;
        while self.at < self.tokens.len() && !self.tokens[self.at].is("}") {
            if self.is_word(self.at) || ["::", "{", "*"].iter().any(|t| self.tokens[self.at].is(t))
            {
                self.branch(trunk, public);
            } else {
                self.at += 1;
            }
        }
        self.at += 1;
    }

    /// The name that an import gets; `a::{self}` is `a`.
    fn alias(&mut self, words: &mut Vec<String>) -> String {
        if words.len() > 1 && words.last().is_some_and(|word| word == "self") {
            words.pop();
        }
        if reads(self.tokens, self.at, &["as"]) {
            self.at += 1;
            return self.word();
        }
        words.last().cloned().unwrap_or_default()
    }

    fn word(&mut self) -> String {
        self.at += 1;
        self.tokens.get(self.at - 1).map(|token| token.text.clone()).unwrap_or_default()
    }

    fn is_word(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| token.kind == Kind::Word)
    }

    fn add(&mut self, words: &[String], alias: &str, public: bool, line: usize) {
        if !words.is_empty() {
            let words = absolute(words, &self.module);
            self.found.push(Named { words, alias: alias.to_owned(), public, line });
        }
    }
}

/// `self::a` and `super::a`, as seen from `module`, as `crate::...`.
fn absolute(words: &[String], module: &[String]) -> Vec<String> {
    let selfs = usize::from(words.first().is_some_and(|word| word == "self"));
    let above = words.iter().skip(selfs).take_while(|word| *word == "super").count();
    if selfs + above == 0 {
        return words.to_vec();
    }
    let base = &module[..module.len().saturating_sub(above)];
    let rest = &words[selfs + above..];
    [&["crate".to_owned()], base, rest].concat()
}
