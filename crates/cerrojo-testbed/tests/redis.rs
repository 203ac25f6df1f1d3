//! Redis servers do what the testbed says of them. Ignored where `redis-server` is missing.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{net::TcpStream, process::ExitCode};

use cerrojo_testbed::{RedisServer, need};
use libtest_mimic::{Arguments, Failed, Trial};

type Proof = fn() -> Result<(), Failed>;

fn main() -> ExitCode {
    let ignored = need("redis-server").is_ignored();
    let trial = |name: &str, proof: Proof| Trial::test(name, proof).with_ignored_flag(ignored);
    let trials = vec![
        trial("a_command_is_answered_and_an_error_is_the_servers_own", commands),
        trial("a_restart_keeps_port_and_data_and_an_empty_one_only_the_port", restarts),
        trial("a_kill_loses_what_no_option_keeps", killed),
        trial("an_append_only_file_outlives_a_kill", append_only),
        trial("a_frozen_server_is_silent_until_it_is_thawed", frozen),
        trial("a_replica_follows_until_it_is_promoted", replication),
        trial("a_failing_start_shows_the_log", failing_start),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn commands() -> Result<(), Failed> {
    let server = RedisServer::start()?;
    assert_eq!(server.command(&["SET", "a", "two words"])?, "OK");
    assert_eq!(server.command(&["GET", "a"])?, "two words");
    assert_eq!(server.command(&["GET", "b"])?, "nil");
    assert_eq!(server.command(&["MGET", "a", "b"])?, "two words nil");
    let wrong = server.command(&["INCR", "a"]).unwrap_err().to_string();
    assert!(wrong.contains("not an integer"), "{wrong}");
    TcpStream::connect(server.address())?;
    Ok(())
}

fn restarts() -> Result<(), Failed> {
    let server = RedisServer::start()?;
    let port = server.port();
    server.command(&["SET", "a", "b"])?;
    server.restart()?;
    assert_eq!(server.command(&["GET", "a"])?, "b");
    server.restart_empty()?;
    assert_eq!(server.command(&["DBSIZE"])?, "0");
    assert_eq!(server.port(), port);
    TcpStream::connect(server.address())?;
    Ok(())
}

fn killed() -> Result<(), Failed> {
    let server = RedisServer::start()?;
    server.command(&["SET", "a", "b"])?;
    server.kill()?;
    server.command(&["PING"]).unwrap_err();
    TcpStream::connect(server.address()).unwrap_err();
    server.restart()?;
    assert_eq!(server.command(&["DBSIZE"])?, "0");
    Ok(())
}

fn append_only() -> Result<(), Failed> {
    let server = RedisServer::builder().option("appendonly", "yes").start()?;
    server.command(&["SET", "a", "b"])?;
    server.kill()?;
    server.restart()?;
    assert_eq!(server.command(&["GET", "a"])?, "b");
    Ok(())
}

fn frozen() -> Result<(), Failed> {
    let server = RedisServer::start()?;
    let mut client = server.client()?;
    server.freeze()?;
    let (heard, answer) = std::sync::mpsc::channel();
    let asking = std::thread::spawn(move || heard.send(client.command(&["PING"])));
    answer.recv_timeout(std::time::Duration::from_millis(200)).unwrap_err();
    server.thaw()?;
    assert_eq!(answer.recv()??, "PONG");
    asking.join().unwrap()?;
    server.freeze()?;
    server.kill()?;
    Ok(())
}

fn replication() -> Result<(), Failed> {
    let (master, replica) =
        (RedisServer::builder().password("secret").start()?, RedisServer::start()?);
    master.command(&["SET", "a", "1"])?;
    replica.replica_of(&master)?;
    assert_eq!(replica.command(&["GET", "a"])?, "1");
    replica.command(&["SET", "a", "2"]).unwrap_err();
    master.command(&["SET", "a", "3"])?;
    replica.await_sync(&master)?;
    assert_eq!(replica.command(&["GET", "a"])?, "3");
    replica.promote()?;
    assert_eq!(replica.command(&["SET", "a", "4"])?, "OK");
    assert_eq!(master.command(&["GET", "a"])?, "3");
    Ok(())
}

fn failing_start() -> Result<(), Failed> {
    let error = RedisServer::builder().option("no-such-option", "yes").start().unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
    Ok(())
}
