//! PostgreSQL servers and PgBouncer do what the testbed says of them. Ignored where `postgres` or `pgbouncer` is
//! missing.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{
    fs::{self, Permissions},
    io::{self, ErrorKind},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output, Stdio},
    sync::mpsc::channel,
    time::Duration,
};

use cerrojo_testbed::{Certificates, Disk, PgBouncer, PostgresServer, Process, need};
use libtest_mimic::{Arguments, Failed, Trial};

type Proof = fn() -> Result<(), Failed>;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    let (server, bouncer) = (need("postgres").is_ignored(), need("pgbouncer").is_ignored());
    let trial = |name: &str, proof: Proof| Trial::test(name, proof).with_ignored_flag(server);
    let pooled =
        |name: &str, proof: Proof| Trial::test(name, proof).with_ignored_flag(server || bouncer);
    let disk = Disk::unavailable().is_some() && std::env::var_os("CERROJO_TEST_REQUIRE").is_none();
    let trials = vec![
        trial("statements_are_answered_and_an_error_is_the_servers_own", statements),
        trial("many_servers_can_be_started_at_once", at_once),
        trial("roles_come_in_by_password_over_tcp_and_the_socket", roles),
        trial("a_rule_of_ones_own_goes_before_the_passwords", rules),
        trial("a_frozen_server_and_its_backends_are_silent_until_they_are_thawed", frozen),
        trial("a_kill_and_a_restart_keep_what_was_committed_and_the_port", killed),
        trial("a_server_that_is_stopped_either_way_keeps_what_was_committed", stopped),
        trial("a_server_that_ended_by_itself_is_not_running_and_can_be_restarted", ended),
        trial("backends_are_terminated_by_a_condition", terminated),
        trial("a_standby_follows_until_it_is_promoted_to_a_later_timeline", standby),
        trial("a_backup_is_restored_to_a_point_in_time_on_a_later_timeline", restored),
        trial("tls_is_demanded_and_trusts_by_the_authority", tls),
        trial("mutual_tls_demands_a_certificate_in_the_name_of_the_role", mutual_tls),
        trial("the_servers_time_jumps_both_ways_while_it_runs", clock),
        trial("a_failing_start_shows_the_log", failing_start),
        trial("a_dropped_server_leaves_no_process_and_no_folder", dropped),
        trial("a_full_disk_refuses_writes_until_it_has_room", full_disk)
            .with_ignored_flag(server || disk),
        trial("a_process_that_used_servers_leaves_no_folder", swept),
        pooled("transactions_of_many_clients_share_few_connections", pool),
        pooled("a_session_has_a_connection_of_its_own", sessions),
        pooled("pgbouncer_speaks_tls_to_a_server_that_demands_it", bouncer_tls),
        pooled("pgbouncer_is_frozen_killed_stopped_and_restarted", bouncer_faults),
        pooled("a_dropped_pgbouncer_leaves_no_process_and_no_folder", bouncer_dropped),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// `psql` as a client of a test: by URL, and without our own environment.
fn psql(url: &str) -> Command {
    let mut psql = Command::new("psql");
    psql.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--no-password"]);
    psql.args(["--set=ON_ERROR_STOP=1", url]).env("PGCONNECT_TIMEOUT", "30");
    psql
}

fn ask(url: &str, text: &str) -> io::Result<String> {
    let Output { status, stdout, stderr } = psql(url).args(["--command", text]).output()?;
    let said = |text: &[u8]| String::from_utf8_lossy(text).trim_end().to_owned();
    if status.success() { Ok(said(&stdout)) } else { Err(io::Error::other(said(&stderr))) }
}

fn refusal(url: &str) -> String {
    ask(url, "SELECT 1").unwrap_err().to_string()
}

fn admin(server: &PostgresServer) -> String {
    server.url("postgres", "app")
}

/// The processes whose parent this one is.
fn children(parent: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_child = |path: &PathBuf| {
        let status = fs::read_to_string(path.join("status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{parent}"))
    };
    entries.filter(is_child).collect()
}

/// Whether none of the processes runs: whoever inherits one that has ended may not have reaped it yet.
fn have_ended(processes: &[PathBuf]) -> bool {
    processes.iter().all(|path| {
        let status = fs::read_to_string(path.join("status")).unwrap_or_default();
        !path.exists() || status.is_empty() || status.contains("State:\tZ")
    })
}

/// Looks again and again, for about a minute; the silence of `cat` is the pause.
fn await_that(look: impl Fn() -> bool) {
    let silent = Process::spawn(&mut Command::new("cat")).unwrap();
    let looks = (0..600).any(|_| look() || silent.line(Duration::from_millis(100)).is_ok());
    assert!(looks, "not within a minute");
}

fn statements() -> Result<(), Failed> {
    let server = PostgresServer::start()?;
    assert_eq!(server.superuser_sql("SELECT 1, 'two words'; SELECT 3")?, "1|two words\n3");
    let wrong = server.superuser_sql("SELECT 1; SELECT 1/0; SELECT 2").unwrap_err().to_string();
    assert!(wrong.contains("division by zero"), "{wrong}");
    assert_eq!(ask(&admin(&server), "SELECT current_user, current_database()")?, "postgres|app");
    assert_eq!(server.superuser_sql("SHOW fsync; SHOW max_connections")?, "on\n100");
    let fast = PostgresServer::builder().fast().option("max_connections", "7").start()?;
    assert_eq!(fast.superuser_sql("SHOW fsync; SHOW max_connections")?, "off\n7");
    assert!(server.log()?.contains("division by zero"));
    Ok(())
}

fn at_once() -> Result<(), Failed> {
    let start = || PostgresServer::builder().fast().start();
    let started: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for server in started {
        assert_eq!(server?.superuser_sql("SELECT 1")?, "1");
    }
    Ok(())
}

fn roles() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    server.create_role("jobs", "")?;
    assert_eq!(ask(&server.url("jobs", "app"), "SELECT current_user")?, "jobs");
    let (socket, password) = (server.socket_dir().display(), server.password());
    let by_socket = format!("postgres:///app?host={socket}&port={}&user=jobs", server.port());
    assert!(refusal(&by_socket).contains("no password supplied"));
    assert_eq!(ask(&format!("{by_socket}&password={password}"), "SELECT 1")?, "1");
    let wrong = server.url("jobs", "app").replace(password, "wrong");
    assert!(refusal(&wrong).contains("password authentication failed"));
    Ok(())
}

fn rules() -> Result<(), Failed> {
    let rule = "host all jobs 127.0.0.1/32 reject";
    let server = PostgresServer::builder().fast().hba(rule).start()?;
    server.create_role("jobs", "")?;
    assert!(refusal(&server.url("jobs", "app")).contains("pg_hba.conf rejects"));
    assert_eq!(ask(&admin(&server), "SELECT 1")?, "1");
    Ok(())
}

/// A session that is spoken to by lines and has answered once.
fn session(url: &str) -> io::Result<Process> {
    let mut session = Process::spawn(psql(url).arg("--file=-").stderr(Stdio::null()))?;
    assert_eq!(session.ask("SELECT 'here';", LONG)?, "here");
    Ok(session)
}

fn frozen() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    let mut session = session(&admin(&server))?;
    server.freeze()?;
    assert!(server.is_running());
    assert_eq!(session.ask("SELECT 'again';", SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    let (heard, answer) = channel();
    let url = admin(&server);
    let connecting = std::thread::spawn(move || heard.send(ask(&url, "SELECT 1")));
    answer.recv_timeout(SHORT).unwrap_err();
    server.thaw()?;
    assert_eq!(session.line(LONG)?, "again");
    assert_eq!(answer.recv()??, "1");
    connecting.join().unwrap()?;
    server.freeze()?;
    server.kill()?;
    Ok(())
}

fn killed() -> Result<(), Failed> {
    let server = PostgresServer::start()?;
    let session = session(&admin(&server))?;
    server.superuser_sql("CREATE TABLE kept AS SELECT 42 AS a")?;
    let (port, processes) = (server.port(), children(server.id().unwrap()));
    server.kill()?;
    assert!(processes.len() > 4 && have_ended(&processes), "{processes:?}");
    assert!(!server.is_running() && server.id().is_none());
    TcpStream::connect(server.address()).unwrap_err();
    server.superuser_sql("SELECT 1").unwrap_err();
    server.freeze().unwrap_err();
    server.thaw().unwrap_err();
    server.kill()?;
    drop(session);
    server.restart()?;
    assert_eq!((server.superuser_sql("SELECT a FROM kept")?.as_str(), server.port()), ("42", port));
    assert!(server.log()?.contains("automatic recovery in progress"));
    Ok(())
}

fn stopped() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    let _session = session(&admin(&server))?;
    server.superuser_sql("CREATE TABLE kept AS SELECT 42 AS a")?;
    server.stop()?;
    assert!(!server.is_running());
    server.restart()?;
    assert!(!server.log()?.contains("automatic recovery in progress"));
    server.restart()?;
    server.freeze()?;
    server.stop_immediately()?;
    server.restart()?;
    assert!(server.log()?.contains("automatic recovery in progress"));
    assert_eq!(server.superuser_sql("SELECT a FROM kept")?, "42");
    Ok(())
}

fn ended() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    let interrupt =
        || Command::new("kill").args(["-INT", &server.id().unwrap().to_string()]).status();
    assert!(interrupt()?.success());
    await_that(|| !server.is_running());
    server.restart()?;
    assert_eq!(server.superuser_sql("SELECT 1")?, "1");
    assert!(interrupt()?.success());
    await_that(|| !server.is_running());
    server.freeze().unwrap_err();
    server.kill()?;
    Ok(())
}

fn terminated() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    server.create_role("jobs", "")?;
    let mut gone = session(&server.url("jobs", "app"))?;
    let mut stays = session(&admin(&server))?;
    assert_eq!(server.terminate_backends("usename = 'jobs'")?, 1);
    gone.ask("SELECT 1;", LONG).unwrap_err();
    assert_eq!(stays.ask("SELECT 1;", LONG)?, "1");
    assert_eq!(server.terminate_backends("usename = 'nobody'")?, 0);
    Ok(())
}

fn timeline(server: &PostgresServer) -> io::Result<u32> {
    let text = server.superuser_sql("SELECT timeline_id FROM pg_control_checkpoint()")?;
    text.parse().map_err(io::Error::other)
}

fn standby() -> Result<(), Failed> {
    let primary = PostgresServer::builder().fast().start()?;
    primary.superuser_sql("CREATE TABLE steps (a int)")?;
    let standby = PostgresServer::standby_of(&primary)?;
    for round in 1..=5 {
        primary.superuser_sql(&format!("INSERT INTO steps VALUES ({round})"))?;
        standby.await_caught_up(&primary)?;
        assert_eq!(standby.superuser_sql("SELECT max(a) FROM steps")?, round.to_string());
    }
    let refused = ask(&admin(&standby), "DELETE FROM steps").unwrap_err().to_string();
    assert!(refused.contains("read-only"), "{refused}");
    standby.restart()?;
    assert_eq!(standby.superuser_sql("SELECT pg_is_in_recovery()")?, "t");
    let before = timeline(&standby)?;
    primary.kill()?;
    standby.promote()?;
    standby.superuser_sql("INSERT INTO steps VALUES (6); CHECKPOINT")?;
    assert_eq!(standby.superuser_sql("SELECT count(*) FROM steps")?, "6");
    assert!(timeline(&standby)? > before);
    standby.promote().unwrap_err();
    Ok(())
}

fn restored() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    server.superuser_sql("CREATE TABLE steps (a int)")?;
    let backup = server.back_up()?;
    server.superuser_sql("INSERT INTO steps VALUES (1); SELECT pg_create_restore_point('one')")?;
    server.superuser_sql("INSERT INTO steps VALUES (2)")?;
    let before = timeline(&server)?;
    server.stop()?;
    let restored = PostgresServer::builder().fast().restored(&backup, "one").start()?;
    assert_eq!(restored.superuser_sql("SELECT max(a) FROM steps")?, "1");
    restored.superuser_sql("INSERT INTO steps VALUES (3); CHECKPOINT")?;
    assert!(timeline(&restored)? > before);
    Ok(())
}

/// With parameters for libpq: it trusts `trusted`, and shows a certificate if it has one.
fn secured(url: &str, trusted: &Certificates, own: Option<&Certificates>) -> String {
    let root = trusted.authority().display().to_string();
    let url = format!("{url}?sslmode=verify-full&sslrootcert={root}");
    let Some(own) = own else { return url };
    let (certificate, key) = (own.client(), own.client_key());
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    format!("{url}&sslcert={}&sslkey={}", certificate.display(), key.display())
}

fn tls() -> Result<(), Failed> {
    let (certificates, strangers) = (Certificates::new()?, Certificates::new()?);
    let server = PostgresServer::builder().fast().tls(&certificates).start()?;
    let look = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let url = admin(&server);
    for url in [&url, &url.replace("127.0.0.1", "localhost")] {
        assert_eq!(ask(&secured(url, &certificates, None), look)?, "t");
    }
    assert!(refusal(&secured(&url, &strangers, None)).contains("certificate verify failed"));
    assert!(refusal(&format!("{url}?sslmode=disable")).contains("no encryption"));
    drop(certificates);
    server.restart()?;
    assert_eq!(ask(&format!("{url}?sslmode=require"), look)?, "t");
    Ok(())
}

fn mutual_tls() -> Result<(), Failed> {
    let (certificates, strangers) = (Certificates::new()?, Certificates::new()?);
    let server = PostgresServer::builder().fast().mutual_tls(&certificates).start()?;
    server.create_role("client", "")?;
    let (client, other) = (server.url("client", "app"), admin(&server));
    let own = Some(&certificates);
    assert_eq!(ask(&secured(&client, &certificates, own), "SELECT current_user")?, "client");
    assert!(refusal(&secured(&client, &certificates, None)).contains("certificate"));
    refusal(&secured(&other, &certificates, own));
    assert!(server.log()?.contains("CN mismatch"), "{}", server.log()?);
    refusal(&secured(&client, &certificates, Some(&strangers)));
    Ok(())
}

fn clock() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().clock_skew().start()?;
    let mut session = session(&admin(&server))?;
    let mut time = || -> Result<i64, Failed> {
        let look = "SELECT floor(extract(epoch FROM clock_timestamp()));";
        Ok(session.ask(look, LONG)?.parse()?)
    };
    let before = time()?;
    server.set_clock_nanos(-500_000_000_000)?;
    let jump = time()? - before;
    assert!((-500..-400).contains(&jump), "{jump}");
    server.set_clock_nanos(2_000_000_000_000)?;
    let jump = time()? - before;
    assert!((2_000..2_100).contains(&jump), "{jump}");
    server.restart()?;
    let again = server.superuser_sql("SELECT floor(extract(epoch FROM clock_timestamp()))")?;
    assert!(again.parse::<i64>()? - before >= 2_000, "{again}");
    PostgresServer::builder().fast().start()?.set_clock_nanos(0).unwrap_err();
    Ok(())
}

fn failing_start() -> Result<(), Failed> {
    let error = PostgresServer::builder().option("no_such_option", "1").start().unwrap_err();
    assert!(error.to_string().contains("no_such_option"), "{error}");
    Ok(())
}

fn dropped() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    let _session = session(&admin(&server))?;
    let id = server.id().unwrap();
    let processes = [children(id), vec![PathBuf::from(format!("/proc/{id}"))]].concat();
    let folder = server.socket_dir().to_owned();
    server.freeze()?;
    drop(server);
    assert!(processes.len() > 5 && have_ended(&processes), "{processes:?}");
    assert!(!folder.exists());
    Ok(())
}

/// This program once more, for one trial, with temporary folders in a place of its own.
fn swept() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    fs::set_permissions(place.path(), Permissions::from_mode(0o755))?;
    let mut again = Command::new(std::env::current_exe()?);
    again.args(["--exact", "statements_are_answered_and_an_error_is_the_servers_own"]);
    let mut again = Process::spawn(again.env("TMPDIR", place.path()))?;
    assert!(again.wait(LONG)?.success(), "{:?}", again.rest(LONG)?);
    await_that(|| fs::read_dir(place.path()).unwrap().next().is_none());
    Ok(())
}

fn full_disk() -> Result<(), Failed> {
    let disk = Disk::new(192 * 1024 * 1024)?;
    let server = PostgresServer::builder().fast().on_disk(&disk).start()?;
    server.superuser_sql("CREATE TABLE rows (a text)")?;
    disk.fill("ballast")?;
    let more = "INSERT INTO rows SELECT repeat('x', 1000) FROM generate_series(1, 100000)";
    let refused = server.superuser_sql(more).unwrap_err().to_string();
    assert!(refused.contains("No space left on device"), "{refused}");
    fs::remove_file(disk.path().join("ballast"))?;
    if !server.is_running() {
        server.restart()?;
    }
    server.superuser_sql("INSERT INTO rows VALUES ('one')")?;
    Ok(())
}

fn pool() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    server.create_role("jobs", "")?;
    let bouncer = PgBouncer::builder(&server).pool_size(2).user("jobs").start()?;
    let url = bouncer.url("jobs", "app");
    let mut sessions: Vec<_> = (0..6).map(|_| session(&url)).collect::<io::Result<_>>()?;
    for session in &mut sessions {
        assert_eq!(session.ask("SELECT current_user;", LONG)?, "jobs");
    }
    let count = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'jobs'";
    let count: usize = server.superuser_sql(count)?.parse()?;
    assert!((1..=2).contains(&count), "{count}");
    assert!(bouncer.admin("SHOW POOLS")?.contains("app|jobs|6|"));
    assert!(refusal(&url.replace(server.password(), "wrong")).contains("auth"));
    Ok(())
}

fn sessions() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    let bouncer = PgBouncer::builder(&server).session_mode().start()?;
    let url = bouncer.url("postgres", "app");
    let mut sessions = [session(&url)?, session(&url)?];
    let ids = sessions.each_mut().map(|it| it.ask("SELECT pg_backend_pid();", LONG).unwrap());
    assert_ne!(ids.first(), ids.last());
    Ok(())
}

fn bouncer_tls() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().tls(&Certificates::new()?).start()?;
    let bouncer = PgBouncer::start(&server)?;
    let look = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(ask(&bouncer.url("postgres", "app"), look)?, "t");
    Ok(())
}

fn bouncer_faults() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    let bouncer = PgBouncer::start(&server)?;
    let (port, url) = (bouncer.port(), bouncer.url("postgres", "app"));
    let mut session = session(&url)?;
    bouncer.freeze()?;
    assert_eq!(session.ask("SELECT 'again';", SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    bouncer.thaw()?;
    assert_eq!(session.line(LONG)?, "again");
    bouncer.kill()?;
    assert_eq!(bouncer.id(), None);
    TcpStream::connect(bouncer.address()).unwrap_err();
    for _ in 0..2 {
        bouncer.restart()?;
        assert_eq!((ask(&url, "SELECT 1")?.as_str(), bouncer.port()), ("1", port));
    }
    bouncer.stop()?;
    TcpStream::connect(bouncer.address()).unwrap_err();
    assert!(bouncer.log()?.contains("process up"));
    Ok(())
}

fn bouncer_dropped() -> Result<(), Failed> {
    let server = PostgresServer::builder().fast().start()?;
    let proxy = cerrojo_testbed::Proxy::start(server.port())?;
    let bouncer = PgBouncer::builder(&server).by_port(proxy.port()).start()?;
    assert_eq!(ask(&bouncer.url("postgres", "app"), "SELECT 1")?, "1");
    let process = format!("/proc/{}", bouncer.id().unwrap());
    assert!(Path::new(&process).exists());
    drop(bouncer);
    assert!(!Path::new(&process).exists());
    Ok(())
}
