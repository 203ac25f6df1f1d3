//! Each fault of the proxy does what it says, in front of a server that echoes lines.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    time::Duration,
};

use cerrojo_testbed::{
    Direction::{ToClient, ToServer},
    Proxy,
};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);

/// A server that sends back what it gets, and ends a connection when its client does. Ends with the test program.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || std::io::copy(&mut stream.try_clone()?, &mut stream));
        }
    });
    port
}

fn client(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn hear(stream: &mut TcpStream, count: usize) -> String {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SHORT)).unwrap();
    let nothing = stream.read(&mut [0]);
    stream.set_read_timeout(Some(LONG)).unwrap();
    nothing.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn ends(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0))
}

fn breaks(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn without_a_fault_all_passes_in_order_and_is_counted() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    let sent: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    let mut writer = stream.try_clone().unwrap();
    let bytes = sent.clone().into_bytes();
    let writing = std::thread::spawn(move || writer.write_all(&bytes));
    assert!(hear(&mut stream, sent.len()) == sent);
    writing.join().unwrap().unwrap();
    let counts = proxy.counts().unwrap();
    assert_eq!((counts.connections_seen, counts.connections_open), (1, 1));
    let all = u64::try_from(sent.len()).unwrap();
    assert_eq!((counts.to_server.passed, counts.to_client.passed), (all, all));
}

#[test]
fn a_half_closed_connection_goes_on_the_other_way() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.hold(ToClient).unwrap();
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    proxy.await_counts(LONG, |counts| counts.to_client.arrived == 5).unwrap();
    assert!(is_silent(&mut stream));
    proxy.flow(ToClient).unwrap();
    assert_eq!(hear(&mut stream, 5), "hello");
    assert!(ends(&mut stream));
    proxy.await_counts(LONG, |counts| counts.connections_open == 0).unwrap();
}

#[test]
fn what_is_held_arrives_later_and_whole() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.hold(ToServer).unwrap();
    stream.write_all(b"one").unwrap();
    let held = proxy.await_counts(LONG, |counts| counts.to_server.arrived == 3).unwrap();
    assert_eq!(held.to_server.passed, 0);
    proxy.flow(ToServer).unwrap();
    assert_eq!(hear(&mut stream, 3), "one");
}

#[test]
fn what_is_swallowed_never_arrives_and_the_connection_stays() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.swallow(ToClient).unwrap();
    stream.write_all(b"one").unwrap();
    proxy.await_counts(LONG, |counts| counts.to_client.arrived == 3).unwrap();
    proxy.flow(ToClient).unwrap();
    stream.write_all(b"two").unwrap();
    assert_eq!(hear(&mut stream, 3), "two");
    assert_eq!(proxy.counts().unwrap().to_client.passed, 3);
}

#[test]
fn a_delay_delays_and_keeps_the_order_also_when_it_ends() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.delay(ToServer, SHORT).unwrap();
    stream.write_all(b"one").unwrap();
    let delayed = proxy.await_counts(LONG, |counts| counts.to_server.arrived == 3).unwrap();
    assert_eq!(delayed.to_server.passed, 0);
    proxy.delay(ToServer, Duration::ZERO).unwrap();
    stream.write_all(b"two").unwrap();
    assert_eq!(hear(&mut stream, 6), "onetwo");
}

#[test]
fn cut_and_reset_end_what_is_open_and_nothing_that_comes_later() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut streams = [client(&proxy), client(&proxy)];
    proxy.await_counts(LONG, |counts| counts.connections_open == 2).unwrap();
    proxy.cut().unwrap();
    assert!(streams.iter_mut().all(ends));
    let mut stream = client(&proxy);
    stream.write_all(b"one").unwrap();
    assert_eq!(hear(&mut stream, 3), "one");
    proxy.reset().unwrap();
    assert!(breaks(&mut stream));
    let counts = proxy.counts().unwrap();
    assert_eq!((counts.connections_seen, counts.connections_open), (3, 0));
}

#[test]
fn a_cut_after_n_bytes_comes_after_exactly_n_bytes_and_once() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.cut_after(ToClient, 2).unwrap();
    stream.write_all(b"one").unwrap();
    assert_eq!(hear(&mut stream, 2), "on");
    assert!(ends(&mut stream));
    let mut stream = client(&proxy);
    stream.write_all(b"one").unwrap();
    assert_eq!(hear(&mut stream, 3), "one");
}

#[test]
fn a_cut_after_no_bytes_leaves_a_request_done_and_unanswered() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.cut_after(ToClient, 0).unwrap();
    assert!(is_silent(&mut stream), "an idle connection is not cut");
    stream.write_all(b"one").unwrap();
    assert!(ends(&mut stream));
    let counts = proxy.counts().unwrap();
    assert_eq!((counts.to_server.passed, counts.to_client.passed), (3, 0));
    assert_eq!(counts.to_client.arrived, 3);
}

#[test]
fn refused_connections_are_refused_and_open_ones_stay() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.await_counts(LONG, |counts| counts.connections_open == 1).unwrap();
    proxy.refuse().unwrap();
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    stream.write_all(b"one").unwrap();
    assert_eq!(hear(&mut stream, 3), "one");
    proxy.accept().unwrap();
    client(&proxy).write_all(b"two").unwrap();
}

#[test]
fn healing_ends_all_faults() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.await_counts(LONG, |counts| counts.connections_open == 1).unwrap();
    proxy.refuse().unwrap();
    proxy.hold(ToServer).unwrap();
    proxy.swallow(ToClient).unwrap();
    proxy.cut_after(ToClient, 0).unwrap();
    proxy.heal().unwrap();
    stream.write_all(b"one").unwrap();
    assert_eq!(hear(&mut stream, 3), "one");
    assert_eq!(client(&proxy).write(b"two").unwrap(), 3);
}

#[test]
fn dropping_it_ends_connections_and_frees_the_port() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.await_counts(LONG, |counts| counts.connections_open == 1).unwrap();
    let port = proxy.port();
    drop(proxy);
    assert!(ends(&mut stream));
    TcpListener::bind(("127.0.0.1", port)).unwrap();
}

#[test]
fn waiting_for_counts_is_bounded() {
    let proxy = Proxy::start(echo()).unwrap();
    let late = proxy.await_counts(SHORT, |counts| counts.connections_seen == 1).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
}

#[test]
fn a_server_that_does_not_listen_resets_its_clients() {
    let port = cerrojo_testbed::Port::reserve().unwrap();
    let proxy = Proxy::start(port.number()).unwrap();
    assert!(breaks(&mut client(&proxy)));
    TcpListener::bind(port.address()).unwrap();
}
