//! What a server says of itself by HTTP.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::TcpStream,
    time::Duration,
};

/// How long one that runs may take; only a frozen one takes longer, and it is asked again.
const LIMIT: Duration = Duration::from_secs(1);

/// The body of its answer, whatever the status.
pub(super) fn get(address: &str, path: &str) -> io::Result<String> {
    ask(address, &format!("GET {path} HTTP/1.0\r\n\r\n"))
}

/// The same for a request of the JSON gateway that says nothing but its name.
pub(super) fn post(address: &str, path: &str) -> io::Result<String> {
    ask(address, &format!("POST {path} HTTP/1.0\r\nContent-Length: 2\r\n\r\n{{}}"))
}

fn ask(address: &str, request: &str) -> io::Result<String> {
    let address = address.parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(request.as_bytes())?;
    body(&mut BufReader::new(stream))
}

/// As long as the headers say: the server may close the connection seconds later.
fn body(answer: &mut impl BufRead) -> io::Result<String> {
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "an answer of no known length");
    let mut length = None;
    loop {
        let mut line = String::new();
        answer.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some(("Content-Length", value)) => length = value.parse().ok(),
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length.ok_or_else(missing)?];
    answer.read_exact(&mut body)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// A number in a flat piece of JSON, with or without quotes.
pub(super) fn number(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let rest = rest.trim_start_matches('"');
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_as_long_as_the_headers_say() {
        let ask = |mut answer: &[u8]| body(&mut answer);
        let whole = b"HTTP/1.0 200 OK\r\nDate: today\r\nContent-Length: 2\r\n\r\nokay";
        assert_eq!(ask(whole).unwrap(), "ok");
        assert!(ask(b"HTTP/1.0 200 OK\r\n\r\nok").is_err());
        assert!(ask(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n").is_err());
        assert!(ask(b"").is_err());
    }

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let json = r#"{"header":{"member_id":"18446744073709551615","raft_term":"2"},"leader":7}"#;
        assert_eq!(number(json, "member_id"), Some(u64::MAX));
        assert_eq!(number(json, "raft_term"), Some(2));
        assert_eq!(number(json, "leader"), Some(7));
        assert_eq!((number(json, "id"), number(json, "header")), (None, None));
    }
}
