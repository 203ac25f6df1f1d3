//! Just enough of Redis' protocol to tell a server what to do.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// How long a server may take to answer: more than any command of the testbed takes on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing is there.
    Nil,
    /// A number.
    Integer(i64),
    /// A status or a value; bytes that are no UTF-8 are replaced.
    Text(String),
    /// Several.
    List(Vec<Reply>),
}

/// A value as it is, nothing as `nil`, a list as its parts with spaces between them.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::List(parts) => {
                let parts: Vec<_> = parts.iter().map(Self::to_string).collect();
                f.write_str(&parts.join(" "))
            }
        }
    }
}

/// As it is displayed.
impl PartialEq<&str> for Reply {
    fn eq(&self, other: &&str) -> bool {
        let shown = self.to_string();
        shown == **other
    }
}

/// A blocking connection to a server's unix socket, as the user that the testbed added for itself.
#[derive(Debug)]
pub struct RedisClient {
    stream: BufReader<UnixStream>,
}

impl RedisClient {
    pub(super) fn connect(socket: &Path, (user, password): (&str, &str)) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        let mut client = Self { stream: BufReader::new(stream) };
        client.command(&["AUTH", user, password])?;
        Ok(client)
    }

    /// Sends a command and reads the reply.
    ///
    /// # Errors
    ///
    /// The server's own error message, or what went wrong on the way; a server that is frozen does not answer for ten
    /// seconds.
    pub fn command(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.stream.get_mut().write_all(&encode(words))?;
        self.reply()
    }

    /// Reads one more reply: the next message of a subscription, say.
    ///
    /// # Errors
    ///
    /// As [`RedisClient::command`].
    pub fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| no_reply(&line))?;
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            "-" => Err(io::Error::other(rest.to_owned())),
            ":" => Ok(Reply::Integer(number(rest)?)),
            "$" => self.value(rest),
            "*" => self.list(rest),
            _ => Err(no_reply(&line)),
        }
    }

    fn value(&mut self, length: &str) -> io::Result<Reply> {
        let Ok(length) = usize::try_from(number(length)?) else { return Ok(Reply::Nil) };
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn list(&mut self, length: &str) -> io::Result<Reply> {
        let Ok(length) = usize::try_from(number(length)?) else { return Ok(Reply::Nil) };
        (0..length).map(|_| self.reply()).collect::<io::Result<_>>().map(Reply::List)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>()).into_bytes()
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| no_reply(text))
}

fn no_reply(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no reply of Redis: {line:?}"))
}
