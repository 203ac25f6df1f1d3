//! etcd servers do what the testbed says of them. Ignored where `etcd` or `etcdctl` is missing.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{
    net::TcpStream,
    path::Path,
    process::ExitCode,
    sync::{Arc, mpsc::channel},
    time::Duration,
};

use cerrojo_testbed::{Certificates, EtcdBuilder, EtcdCluster, EtcdServer, Process, need};
use libtest_mimic::{Arguments, Failed, Trial};

type Proof = fn() -> Result<(), Failed>;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let ignored = need("etcd").is_ignored() || need("etcdctl").is_ignored();
    let trial = |name: &str, proof: Proof| Trial::test(name, proof).with_ignored_flag(ignored);
    let trials = vec![
        trial("a_command_is_answered_and_an_error_is_etcdctls_own", commands),
        trial("a_command_that_goes_on_is_a_process", goes_on),
        trial("a_kill_loses_nothing_and_a_restart_keeps_the_port", restarts),
        trial("a_frozen_server_is_silent_until_it_is_thawed", frozen),
        trial("a_failing_start_shows_the_log", failing_start),
        trial("a_dropped_server_leaves_no_process_and_no_folder", dropped),
        trial("the_shortest_lease_follows_the_election_timeout", shortest_lease),
        trial("tls_refuses_those_who_speak_plainly_or_trust_others", tls),
        trial("mutual_tls_refuses_clients_without_a_certificate_of_the_authority", mutual_tls),
        trial("a_certificate_is_as_good_as_its_users_password", named_by_certificate),
        trial("users_are_demanded_of_everyone_and_held_to_their_prefix", users),
        trial("a_cluster_answers_at_each_node_and_demands_users_at_each", cluster),
        trial("another_node_leads_when_the_leader_is_killed", killed_leader),
        trial("another_node_leads_when_the_leader_is_frozen_until_it_follows", frozen_leader),
        trial("a_node_alone_does_not_answer_until_another_is_back", alone),
        trial("a_cluster_that_is_restarted_keeps_its_data", cluster_restart),
        trial("a_dropped_cluster_leaves_no_process_and_no_folder", dropped_cluster),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn fast() -> EtcdBuilder {
    EtcdServer::builder().fast()
}

fn cluster_of_three() -> Result<EtcdCluster, Failed> {
    Ok(EtcdCluster::of(&fast())?)
}

fn node(cluster: &EtcdCluster, at: usize) -> &EtcdServer {
    cluster.nodes().get(at).unwrap()
}

fn value(server: &EtcdServer, key: &str) -> Result<String, Failed> {
    Ok(server.etcdctl(&["get", "--print-value-only", key])?)
}

fn commands() -> Result<(), Failed> {
    let server = EtcdServer::start()?;
    assert_eq!(server.etcdctl(&["put", "a", "two words"])?, "OK");
    assert_eq!(server.etcdctl(&["get", "a"])?, "a\ntwo words");
    assert_eq!(server.etcdctl(&["get", "b"])?, "");
    let wrong = server.etcdctl(&["lease", "revoke", "abc"]).unwrap_err().to_string();
    assert!(wrong.contains("requested lease not found"), "{wrong}");
    TcpStream::connect(server.address())?;
    Ok(())
}

fn goes_on() -> Result<(), Failed> {
    let server = fast().start()?;
    let mut holder = Process::spawn(&mut server.etcdctl_command(&["lock", "name"])?)?;
    let key = holder.line(LONG)?;
    assert!(key.starts_with("name/"), "{key}");
    assert_eq!(server.etcdctl(&["get", "--keys-only", &key])?, key);
    holder.kill()?;
    Ok(())
}

fn restarts() -> Result<(), Failed> {
    for builder in [EtcdServer::builder(), fast()] {
        let server = builder.start()?;
        let port = server.port();
        server.etcdctl(&["put", "a", "b"])?;
        server.kill()?;
        TcpStream::connect(server.address()).unwrap_err();
        assert_eq!(server.id(), None);
        server.freeze().unwrap_err();
        server.thaw().unwrap_err();
        server.restart()?;
        assert_eq!(value(&server, "a")?, "b");
        server.restart()?;
        assert_eq!(value(&server, "a")?, "b");
        assert_eq!(server.port(), port);
        TcpStream::connect(server.address())?;
    }
    Ok(())
}

fn frozen() -> Result<(), Failed> {
    let server = Arc::new(fast().start()?);
    server.freeze()?;
    let (heard, answer) = channel();
    let asked = Arc::clone(&server);
    let asking = std::thread::spawn(move || {
        let words = ["--command-timeout=60s", "--dial-timeout=60s", "put", "a", "b"];
        heard.send(asked.etcdctl(&words))
    });
    answer.recv_timeout(SHORT).unwrap_err();
    server.thaw()?;
    assert_eq!(answer.recv()??, "OK");
    asking.join().unwrap()?;
    server.freeze()?;
    server.stop()?;
    server.restart()?;
    server.freeze()?;
    server.kill()?;
    Ok(())
}

fn failing_start() -> Result<(), Failed> {
    let error = fast().option("no-such-option", "yes").start().unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
    Ok(())
}

fn process_of(server: &EtcdServer) -> String {
    format!("/proc/{}", server.id().unwrap())
}

fn dropped() -> Result<(), Failed> {
    let server = fast().start()?;
    let (process, folder) = (process_of(&server), server.folder().to_owned());
    assert!(Path::new(&process).exists() && folder.exists());
    server.freeze()?;
    drop(server);
    assert!(!Path::new(&process).exists() && !folder.exists());
    Ok(())
}

/// What a lease of a second is granted as.
fn granted(server: &EtcdServer) -> Result<String, Failed> {
    let said = server.etcdctl(&["lease", "grant", "1"])?;
    Ok(said.split_once("granted with ").unwrap().1.to_owned())
}

fn shortest_lease() -> Result<(), Failed> {
    assert_eq!(granted(&fast().start()?)?, "TTL(1s)");
    let slow = fast().pace(Duration::from_millis(100), Duration::from_secs(1));
    assert_eq!(granted(&slow.start()?)?, "TTL(2s)");
    Ok(())
}

/// What a client without a password gets for `a` that comes by `scheme` to the port for clients.
fn get(
    server: &EtcdServer,
    scheme: &str,
    trusted: &Certificates,
    own: Option<&Certificates>,
) -> Result<String, Failed> {
    let endpoint = format!("{scheme}://{}", server.address());
    let authority = trusted.authority().display().to_string();
    let pair = own.map(|own| [own.client(), own.client_key()].map(|it| it.display().to_string()));
    let mut words = vec!["--endpoints", &endpoint, "--user", "", "--cacert", &authority];
    words.extend(["--command-timeout=2s", "--dial-timeout=2s"]);
    if let Some([certificate, key]) = &pair {
        words.extend(["--cert", certificate, "--key", key]);
    }
    words.extend(["get", "--print-value-only", "a"]);
    Ok(server.etcdctl(&words)?)
}

fn tls() -> Result<(), Failed> {
    let (certificates, strangers) = (Certificates::new()?, Certificates::new()?);
    let server = fast().tls(&certificates).start()?;
    server.etcdctl(&["put", "a", "b"])?;
    assert_eq!(get(&server, "https", &certificates, None)?, "b");
    get(&server, "http", &certificates, None).unwrap_err();
    assert!(server.log()?.contains("first record does not look like a TLS handshake"));
    get(&server, "https", &strangers, None).unwrap_err();
    assert!(server.log()?.contains("bad certificate"));
    drop(certificates);
    server.restart()?;
    Ok(())
}

fn mutual_tls() -> Result<(), Failed> {
    let (certificates, strangers) = (Certificates::new()?, Certificates::new()?);
    let server = fast().mutual_tls(&certificates).start()?;
    server.etcdctl(&["put", "a", "b"])?;
    assert_eq!(get(&server, "https", &certificates, Some(&certificates))?, "b");
    get(&server, "https", &certificates, None).unwrap_err();
    assert!(server.log()?.contains("client didn't provide a certificate"));
    get(&server, "https", &certificates, Some(&strangers)).unwrap_err();
    assert!(server.log()?.contains("signed by unknown authority"));
    Ok(())
}

fn named_by_certificate() -> Result<(), Failed> {
    let certificates = Certificates::new()?;
    let builder = fast().mutual_tls(&certificates);
    let own = |server: &EtcdServer| get(server, "https", &certificates, Some(&certificates));
    let server = builder.clone().user("client", "secret", "a").start()?;
    server.etcdctl(&["put", "a", "b"])?;
    assert_eq!(own(&server)?, "b");
    let refused = own(&builder.user("client", "secret", "other").start()?).unwrap_err();
    assert!(refused.message().unwrap().contains("permission denied"));
    Ok(())
}

fn users() -> Result<(), Failed> {
    let server = fast().user("jobs", "secret", "jobs/").start()?;
    let ask = |user: &str, words: &[&str]| {
        let endpoint = server.address();
        server.etcdctl(&[&["--endpoints", &endpoint, "--user", user], words].concat())
    };
    assert_eq!(ask("jobs:secret", &["put", "jobs/1", "a"])?, "OK");
    let refused = |user: &str, words: &[&str]| ask(user, words).unwrap_err().to_string();
    assert!(refused("jobs:secret", &["put", "other", "a"]).contains("permission denied"));
    assert!(refused("jobs:wrong", &["get", "jobs/1"]).contains("invalid user ID or password"));
    assert!(refused("", &["get", "jobs/1"]).contains("user name is empty"));
    assert_eq!(value(&server, "jobs/1")?, "a");
    server.restart()?;
    assert!(refused("", &["get", "jobs/1"]).contains("user name is empty"));
    let root = format!("root:{}", EtcdServer::ROOT_PASSWORD);
    assert_eq!(ask(&root, &["put", "other", "a"])?, "OK");
    Ok(())
}

fn cluster() -> Result<(), Failed> {
    let cluster = EtcdCluster::of(&EtcdServer::builder().auth())?;
    cluster.etcdctl(&["put", "a", "b"])?;
    for node in cluster.nodes() {
        assert_eq!(value(node, "a")?, "b");
        node.etcdctl(&["--user", "", "get", "a"]).unwrap_err();
        assert!(cluster.endpoints().contains(&node.address()));
    }
    let members = cluster.etcdctl(&["member", "list"])?;
    assert_eq!(members.matches("started").count(), 3, "{members}");
    Ok(())
}

fn killed_leader() -> Result<(), Failed> {
    let cluster = cluster_of_three()?;
    cluster.etcdctl(&["put", "a", "1"])?;
    let former = cluster.leader()?;
    node(&cluster, former).kill()?;
    let leader = cluster.await_leader_other_than(former)?;
    assert_ne!(leader, former);
    assert_eq!(value(node(&cluster, leader), "a")?, "1");
    cluster.etcdctl(&["put", "a", "2"])?;
    node(&cluster, former).restart()?;
    assert_eq!(value(node(&cluster, former), "a")?, "2");
    node(&cluster, leader).stop()?;
    cluster.await_leader_other_than(leader)?;
    Ok(())
}

fn frozen_leader() -> Result<(), Failed> {
    let cluster = cluster_of_three()?;
    let former = cluster.leader()?;
    node(&cluster, former).freeze()?;
    let leader = cluster.await_leader_other_than(former)?;
    node(&cluster, leader).etcdctl(&["put", "a", "b"])?;
    node(&cluster, former).thaw()?;
    assert_eq!(value(node(&cluster, former), "a")?, "b");
    cluster.leader()?;
    Ok(())
}

fn alone() -> Result<(), Failed> {
    let cluster = cluster_of_three()?;
    let [first, second, third] = cluster.nodes();
    first.kill()?;
    second.kill()?;
    let words = ["--command-timeout=1s", "put", "a", "b"];
    third.etcdctl(&words).unwrap_err();
    first.restart()?;
    assert_eq!(third.etcdctl(&["put", "a", "b"])?, "OK");
    assert_eq!(value(first, "a")?, "b");
    assert_ne!(cluster.leader()?, 1);
    Ok(())
}

fn cluster_restart() -> Result<(), Failed> {
    let cluster = cluster_of_three()?;
    cluster.etcdctl(&["put", "a", "b"])?;
    let endpoints = cluster.endpoints();
    cluster.restart()?;
    assert_eq!(cluster.etcdctl(&["get", "--print-value-only", "a"])?, "b");
    assert_eq!(cluster.endpoints(), endpoints);
    cluster.nodes().iter().try_for_each(EtcdServer::kill)?;
    cluster.restart()?;
    assert_eq!(cluster.etcdctl(&["get", "--print-value-only", "a"])?, "b");
    Ok(())
}

fn dropped_cluster() -> Result<(), Failed> {
    let cluster = cluster_of_three()?;
    let leader = cluster.leader()?;
    let processes = cluster.nodes().each_ref().map(process_of);
    let folders = cluster.nodes().each_ref().map(|node| node.folder().to_owned());
    node(&cluster, leader).freeze()?;
    drop(cluster);
    assert!(processes.iter().all(|it| !Path::new(it).exists()));
    assert!(folders.iter().all(|it| !it.exists()));
    Ok(())
}
