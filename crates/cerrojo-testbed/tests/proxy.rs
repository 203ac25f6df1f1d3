//! Each fault of the proxy does what it says, in front of a server that echoes lines.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    time::Duration,
};

use cerrojo_testbed::{
    Counts,
    Direction::{ToClient, ToServer},
    Port, Proxy,
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
    stream.set_write_timeout(Some(LONG)).unwrap();
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
fn dropping_it_ends_connections_and_its_thread_and_frees_the_port() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.await_counts(LONG, |counts| counts.connections_open == 1).unwrap();
    let port = proxy.port();
    assert!(thread_of(port).is_some());
    drop(proxy);
    assert!(thread_of(port).is_none());
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
    let port = Port::reserve().unwrap();
    let proxy = Proxy::start(port.number()).unwrap();
    assert!(breaks(&mut client(&proxy)));
    TcpListener::bind(port.address()).unwrap();
}

#[test]
fn more_than_is_kept_waits_at_its_sender_and_arrives_whole() {
    const COUNT: usize = 24 << 20;
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = client(&proxy);
    proxy.hold(ToClient).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let sent: Vec<u8> = (0..COUNT).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let bytes = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&bytes));
    let held = proxy.await_counts(LONG, |counts| counts.to_client.arrived >= 1 << 20).unwrap();
    assert_eq!(held.to_client.passed, 0);
    proxy.await_counts(SHORT, |counts| counts.to_client.arrived >= 2 << 20).unwrap_err();
    proxy.flow(ToClient).unwrap();
    let mut heard = vec![0; COUNT];
    stream.read_exact(&mut heard).unwrap();
    assert!(heard == sent);
    writing.join().unwrap().unwrap();
}

/// A client behind a proxy and the server's end of its connection.
fn pair() -> (Proxy, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap().port()).unwrap();
    let client = client(&proxy);
    let server = listener.accept().unwrap().0;
    server.set_read_timeout(Some(LONG)).unwrap();
    (proxy, client, server)
}

/// As the kernel does for a process that is killed with unread input.
fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

#[test]
fn the_reset_of_one_end_reaches_the_other_after_what_was_sent_and_held_with_it() {
    let (proxy, mut client, mut server) = pair();
    proxy.hold(ToServer).unwrap();
    client.write_all(b"one").unwrap();
    proxy.await_counts(LONG, |counts| counts.to_server.arrived == 3).unwrap();
    reset(client);
    server.write_all(b"into the void").unwrap();
    proxy.await_counts(LONG, |counts| counts.to_client.arrived == 13).unwrap();
    assert!(is_silent(&mut server));
    proxy.flow(ToServer).unwrap();
    assert_eq!(hear(&mut server, 3), "one");
    assert!(breaks(&mut server));
    proxy.await_counts(LONG, |counts| counts.connections_open == 0).unwrap();
}

#[test]
fn the_end_of_one_end_reaches_the_other_and_is_swallowed_like_all_else() {
    let (proxy, client, mut server) = pair();
    proxy.swallow(ToServer).unwrap();
    drop(client);
    assert!(is_silent(&mut server));
    proxy.heal().unwrap();
    assert!(ends(&mut server));
}

/// The folder in /proc of a proxy's thread.
fn thread_of(port: u16) -> Option<std::path::PathBuf> {
    let name = format!("proxy-{port}\n");
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    tasks.into_iter().find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|it| it == name))
}

/// How long the thread of a proxy has run, in milliseconds.
fn ran_ms(proxy: &Proxy) -> u64 {
    let ran = fs::read_to_string(thread_of(proxy.port()).unwrap().join("schedstat")).unwrap();
    ran.split(' ').next().unwrap().parse::<u64>().unwrap() / 1_000_000
}

fn rests(proxy: &Proxy) -> bool {
    let before = ran_ms(proxy);
    let never = proxy.await_counts(5 * SHORT, |_| false).unwrap_err();
    assert_eq!(never.kind(), ErrorKind::TimedOut);
    ran_ms(proxy) - before < 100
}

#[test]
fn it_rests_while_ended_and_broken_connections_are_held() {
    let (proxy, client, server) = pair();
    proxy.hold(ToServer).unwrap();
    proxy.hold(ToClient).unwrap();
    assert!(rests(&proxy), "open");
    drop(client);
    assert!(rests(&proxy), "one end has ended");
    reset(server);
    assert!(rests(&proxy), "one end has ended, the other is broken");
    assert_eq!(proxy.counts().unwrap().connections_open, 1);
}

#[test]
fn it_rests_while_nobody_reads_and_while_all_is_swallowed() {
    let (proxy, mut client, _server) = pair();
    let writing = std::thread::spawn(move || client.write_all(&vec![0; 24 << 20]));
    let full = |counts: &Counts| counts.to_server.arrived >= counts.to_server.passed + (1 << 20);
    proxy.await_counts(LONG, full).unwrap();
    assert!(rests(&proxy), "nobody reads");
    proxy.swallow(ToServer).unwrap();
    writing.join().unwrap().unwrap();
    proxy.await_counts(LONG, |counts| counts.to_server.arrived == 24 << 20).unwrap();
    assert!(rests(&proxy), "swallowed");
}
