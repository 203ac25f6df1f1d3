//! Rust source as tokens, without comments and without what only tests build.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier, a keyword or a number.
    Word,
    /// `::`, or one character of punctuation.
    Mark,
    /// What stands between the quotes of a string.
    Text,
}

/// One token and the line on which it begins.
#[derive(Clone, Debug)]
pub struct Token {
    pub kind: Kind,
    pub text: String,
    pub line: usize,
}

impl Token {
    pub fn is(&self, text: &str) -> bool {
        self.kind != Kind::Text && self.text == text
    }
}

/// The tokens of what a build without tests sees.
pub fn built(source: &str) -> Vec<Token> {
    without_tests(&tokens(source))
}

/// Whether the tokens from `at` on read like `wanted`.
pub fn reads(tokens: &[Token], at: usize, wanted: &[&str]) -> bool {
    wanted.iter().enumerate().all(|(i, text)| tokens.get(at + i).is_some_and(|t| t.is(text)))
}

fn tokens(source: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while !rest.is_empty() {
        let (length, token) = next(rest);
        let (piece, after) = rest.split_at(length);
        found.extend(token.map(|(kind, text)| Token { kind, text: text.to_owned(), line }));
        line += piece.matches('\n').count();
        rest = after;
    }
    found
}

/// How long the piece at the start of `rest` is, and the token that it makes, if any.
fn next(rest: &str) -> (usize, Option<(Kind, &str)>) {
    if let Some(length) = comment(rest) {
        return (length, None);
    }
    if let Some((length, inside)) = string(rest) {
        return (length, Some((Kind::Text, inside)));
    }
    if let Some(length) = char_or_lifetime(rest) {
        return (length, None);
    }
    let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    if word > 0 {
        return (word, Some((Kind::Word, &rest[..word])));
    }
    let first = rest.chars().next().map_or(1, char::len_utf8);
    let length = if rest.starts_with("::") { 2 } else { first };
    let blank = rest.starts_with(char::is_whitespace);
    (length, (!blank).then(|| (Kind::Mark, &rest[..length])))
}

fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    rest.starts_with("/*").then(|| block_comment(rest))
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut at, mut depth) = (0, 0_u32);
    while at < rest.len() {
        let step = match rest.as_bytes().get(at..at + 2) {
            Some(b"/*") => 1,
            Some(b"*/") => -1,
            _ => 0,
        };
        depth = depth.saturating_add_signed(step);
        at += if step == 0 { 1 } else { 2 };
        if depth == 0 {
            break;
        }
    }
    at.min(rest.len())
}

/// The length of a string literal of any kind, and what stands inside.
fn string(rest: &str) -> Option<(usize, &str)> {
    let prefix = rest.find(|c| !matches!(c, 'b' | 'c' | 'r'))?;
    let raw = rest[..prefix].ends_with('r');
    let hashes = rest[prefix..].bytes().take_while(|&b| raw && b == b'#').count();
    let start = prefix + hashes;
    let body = rest[start..].strip_prefix('"').filter(|_| prefix <= 2)?;
    let end =
        if raw { body.find(&format!("\"{}", "#".repeat(hashes))) } else { unescaped(body, b'"') };
    let inside = end.unwrap_or(body.len());
    Some(((start + 1 + inside + 1 + hashes).min(rest.len()), &body[..inside]))
}

/// Where `quote` first stands without a backslash before it.
fn unescaped(body: &str, quote: u8) -> Option<usize> {
    let mut escaped = false;
    body.bytes().position(|byte| {
        let found = byte == quote && !escaped;
        escaped = byte == b'\\' && !escaped;
        found
    })
}

fn char_or_lifetime(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    if body.starts_with('\\') {
        return unescaped(body, b'\'').map(|end| end + 2);
    }
    let first = body.chars().next()?.len_utf8();
    let is_char = body[first..].starts_with('\'');
    Some(if is_char { first + 2 } else { 1 })
}

fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_for_tests(tokens, at) {
            at = end_of_item(tokens, at);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

fn is_for_tests(tokens: &[Token], at: usize) -> bool {
    let ways: [&[&str]; 2] =
        [&["#", "[", "cfg", "(", "test", ")"], &["#", "[", "cfg", "(", "all", "(", "test"]];
    ways.iter().any(|way| reads(tokens, at, way))
}

/// Where the item ends that begins, attributes and all, at `at`: after its braces or its semicolon.
fn end_of_item(tokens: &[Token], mut at: usize) -> usize {
    while reads(tokens, at, &["#", "["]) {
        at = end_of_group(tokens, at + 1);
    }
    let import = tokens[at..].iter().take(2).any(|t| t.is("use"));
    while at < tokens.len() {
        let token = &tokens[at];
        if token.is(";") {
            return at + 1;
        }
        let opens = ["(", "[", "{"].iter().any(|mark| token.is(mark));
        let braces = token.is("{");
        at = if opens { end_of_group(tokens, at) } else { at + 1 };
        if braces && !import {
            return at;
        }
    }
    at
}

/// Where the group ends that opens at `at`.
fn end_of_group(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_u32;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "(" | "[" | "{" if token.kind == Kind::Mark => depth += 1,
            ")" | "]" | "}" if token.kind == Kind::Mark => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// The tokens' texts between blanks, for tests of the scanner.
#[cfg(test)]
pub fn spelled(source: &str) -> String {
    let texts: Vec<_> = built(source).into_iter().map(|token| token.text).collect();
    texts.join(" ")
}
