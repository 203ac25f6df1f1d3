//! Redis servers do what the testbed says of them. Ignored where `redis-server` is missing.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    path::Path,
    process::ExitCode,
    sync::{Arc, mpsc::channel},
    time::Duration,
};

use cerrojo_testbed::{Certificates, RedisCluster, RedisServer, Sentinels, need};
use libtest_mimic::{Arguments, Failed, Trial};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

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
        trial("a_dropped_server_leaves_no_process_and_no_folder", dropped),
        trial("passwords_and_acl_users_are_demanded_of_everyone_but_the_testbed", access),
        trial("tls_trusts_by_the_authority_and_names_localhost_and_127_0_0_1", tls),
        trial("mutual_tls_refuses_clients_without_a_certificate_of_the_authority", mutual_tls),
        trial("the_servers_time_jumps_both_ways_while_it_runs", clock),
        trial("a_power_loss_keeps_what_was_acknowledged_with_appendfsync_always", synced),
        trial("a_power_loss_loses_what_appendfsync_no_has_acknowledged", unsynced),
        trial("a_power_loss_keeps_with_appendfsync_everysec_what_is_seconds_old", every_second),
        trial("a_server_that_ended_by_itself_is_not_running_and_can_be_restarted", ended),
        trial("a_replica_stays_one_over_a_restart", replica_restart),
        trial("sentinels_promote_the_replica_of_a_frozen_master", sentinels),
        trial("a_cluster_serves_each_slot_at_one_node_and_outlives_a_node", cluster),
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
    let (heard, answer) = channel();
    let asking = std::thread::spawn(move || heard.send(client.command(&["PING"])));
    answer.recv_timeout(Duration::from_millis(200)).unwrap_err();
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
    for round in 1..=50 {
        master.command(&["SET", "a", &round.to_string()])?;
        replica.await_sync(&master)?;
        assert_eq!(replica.command(&["GET", "a"])?, round.to_string().as_str());
    }
    replica.promote()?;
    assert_eq!(replica.command(&["SET", "a", "0"])?, "OK");
    assert_eq!(master.command(&["GET", "a"])?, "50");
    Ok(())
}

fn failing_start() -> Result<(), Failed> {
    let error = RedisServer::builder().option("no-such-option", "yes").start().unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
    Ok(())
}

fn dropped() -> Result<(), Failed> {
    let server = RedisServer::start()?;
    let process = format!("/proc/{}", server.id().unwrap());
    let folder = server.socket().parent().unwrap().to_owned();
    assert!(Path::new(&process).exists() && folder.exists());
    drop(server);
    assert!(!Path::new(&process).exists() && !folder.exists());
    Ok(())
}

/// Sends lines over a stream, and hears the first line of the answer to the last.
fn ask(stream: &mut (impl Read + Write), lines: &[&str]) -> io::Result<String> {
    let mut answer = String::new();
    for line in lines {
        write!(stream, "{line}\r\n")?;
        answer.clear();
        while !answer.ends_with('\n') {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            answer.push(byte[0].into());
        }
    }
    Ok(answer.trim_end().to_owned())
}

fn access() -> Result<(), Failed> {
    let server = RedisServer::builder()
        .password("secret")
        .user("jobs", "on >also-secret ~jobs:* +set +get")
        .start()?;
    let over_tcp = |lines: &[&str]| ask(&mut TcpStream::connect(server.address())?, lines);
    assert!(over_tcp(&["PING"])?.starts_with("-NOAUTH"));
    assert!(over_tcp(&["AUTH wrong"])?.starts_with("-WRONGPASS"));
    assert_eq!(over_tcp(&["AUTH secret", "PING"])?, "+PONG");
    assert_eq!(over_tcp(&["AUTH jobs also-secret", "SET jobs:1 a"])?, "+OK");
    assert!(over_tcp(&["AUTH jobs also-secret", "SET other a"])?.starts_with("-NOPERM"));
    assert_eq!(server.command(&["GET", "jobs:1"])?, "a");
    Ok(())
}

/// PING over TLS, as a client that trusts `trusted`, with or without a certificate.
fn ping(
    server: &RedisServer,
    name: &'static str,
    trusted: &Certificates,
    own: Option<&Certificates>,
) -> Result<String, Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted.authority())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => config.with_client_auth_cert(
            vec![CertificateDer::from_pem_file(own.client())?],
            PrivateKeyDer::from_pem_file(own.client_key())?,
        )?,
    };
    let session = ClientConnection::new(Arc::new(config), ServerName::try_from(name)?)?;
    let mut stream = StreamOwned::new(session, TcpStream::connect(server.address())?);
    Ok(ask(&mut stream, &["PING"])?)
}

fn tls() -> Result<(), Failed> {
    let (certificates, strangers) = (Certificates::new()?, Certificates::new()?);
    let server = RedisServer::builder().tls(&certificates).start()?;
    for name in ["localhost", "127.0.0.1"] {
        assert_eq!(ping(&server, name, &certificates, None)?, "+PONG");
    }
    ping(&server, "example.org", &certificates, None).unwrap_err();
    ping(&server, "localhost", &strangers, None).unwrap_err();
    ask(&mut TcpStream::connect(server.address())?, &["PING"]).unwrap_err();
    drop(certificates);
    server.restart()?;
    Ok(())
}

fn mutual_tls() -> Result<(), Failed> {
    let (certificates, strangers) = (Certificates::new()?, Certificates::new()?);
    let server = RedisServer::builder().mutual_tls(&certificates).start()?;
    assert_eq!(ping(&server, "localhost", &certificates, Some(&certificates))?, "+PONG");
    ping(&server, "localhost", &certificates, None).unwrap_err();
    ping(&server, "localhost", &certificates, Some(&strangers)).unwrap_err();
    Ok(())
}

fn clock() -> Result<(), Failed> {
    let server = RedisServer::builder().clock_skew().start()?;
    let time = || -> Result<i64, Failed> {
        Ok(server.command(&["TIME"])?.to_string().split_once(' ').unwrap().0.parse()?)
    };
    let before = time()?;
    server.command(&["SET", "a", "b", "EX", "1000"])?;
    server.set_clock_nanos(-500_000_000_000)?;
    let jump = time()? - before;
    assert!((-500..-400).contains(&jump), "{jump}");
    let left = server.command(&["TTL", "a"])?.to_string().parse::<i64>()?;
    assert!((1_400..=1_500).contains(&left), "{left}");
    server.set_clock_nanos(2_000_000_000_000)?;
    let jump = time()? - before;
    assert!((2_000..2_100).contains(&jump), "{jump}");
    assert_eq!(server.command(&["GET", "a"])?, "nil");
    RedisServer::start()?.set_clock_nanos(0).unwrap_err();
    Ok(())
}

fn with_power_loss(appendfsync: &str) -> io::Result<RedisServer> {
    let builder = RedisServer::builder().option("appendonly", "yes");
    builder.option("appendfsync", appendfsync).power_loss().start()
}

fn synced() -> Result<(), Failed> {
    let server = with_power_loss("always")?;
    for round in ["1", "2"] {
        server.command(&["SET", "a", round])?;
        server.lose_power()?;
        server.restart()?;
        assert_eq!(server.command(&["GET", "a"])?, round);
    }
    server.restart_empty()?;
    server.lose_power()?;
    server.restart()?;
    assert_eq!(server.command(&["GET", "a"])?, "nil");
    Ok(())
}

fn unsynced() -> Result<(), Failed> {
    let server = with_power_loss("no")?;
    server.command(&["SET", "a", "1"])?;
    server.lose_power()?;
    server.restart()?;
    assert_eq!(server.command(&["GET", "a"])?, "nil");
    RedisServer::start()?.lose_power().unwrap_err();
    Ok(())
}

fn every_second() -> Result<(), Failed> {
    let server = with_power_loss("everysec")?;
    let mut client = server.client()?;
    client.command(&["SET", "old", "kept"])?;
    for round in 1..=30 {
        client.command(&["SET", "new", &round.to_string()])?;
        assert_eq!(client.command(&["BLPOP", "never", "0.1"])?, "nil");
    }
    server.lose_power()?;
    server.restart()?;
    assert_eq!(server.command(&["GET", "old"])?, "kept");
    let new: u32 = server.command(&["GET", "new"])?.to_string().parse()?;
    assert!((1..=30).contains(&new), "{new}");
    Ok(())
}

fn ended() -> Result<(), Failed> {
    let server = RedisServer::start()?;
    server.command(&["SHUTDOWN", "NOSAVE"]).unwrap_err();
    server.command(&["PING"]).unwrap_err();
    server.restart()?;
    assert_eq!(server.command(&["PING"])?, "PONG");
    server.kill()?;
    server.freeze().unwrap_err();
    server.thaw().unwrap_err();
    assert_eq!(server.id(), None);
    server.kill()?;
    Ok(())
}

fn replica_restart() -> Result<(), Failed> {
    let (master, replica) = (RedisServer::start()?, RedisServer::start()?);
    replica.replica_of(&master)?;
    replica.restart()?;
    assert_eq!(replica.info("role")?, "slave");
    replica.promote()?;
    replica.restart()?;
    assert_eq!(replica.info("role")?, "master");
    replica.info("no_such_field").unwrap_err();
    Ok(())
}

fn sentinels() -> Result<(), Failed> {
    let all = Sentinels::over(&RedisServer::builder().password("secret"))?;
    let [master, replica] = all.servers();
    assert_eq!(all.master_address()?, master.address());
    master.freeze()?;
    assert_eq!(all.await_failover(&master.address())?, replica.address());
    assert_eq!(replica.command(&["SET", "a", "b"])?, "OK");
    let [first, ..] = all.sentinels();
    first.kill()?;
    assert_eq!(all.master_address()?, replica.address());
    Ok(())
}

/// Waits until a node of the cluster, which serves `b`, has given another up.
fn await_failed_node(node: &RedisServer) -> Result<(), Failed> {
    for _ in 0..200 {
        if node.command(&["CLUSTER", "NODES"])?.to_string().contains("master,fail ") {
            return Ok(());
        }
        node.command(&["BLPOP", "{b}never", "0.1"])?;
    }
    Err("no node was given up".into())
}

fn cluster() -> Result<(), Failed> {
    let cluster = RedisCluster::start()?;
    let (here, there) = (cluster.node_of("a")?, cluster.node_of("b")?);
    assert_eq!(here.command(&["SET", "a", "1"])?, "OK");
    let moved = there.command(&["SET", "a", "1"]).unwrap_err().to_string();
    assert!(moved.starts_with("MOVED") && moved.ends_with(&here.address()), "{moved}");
    here.kill()?;
    await_failed_node(there)?;
    assert_eq!(there.command(&["SET", "b", "1"])?, "OK");
    here.restart()?;
    assert_eq!(there.command(&["GET", "b"])?, "1");
    Ok(())
}
