//! ZooKeeper servers do what the testbed says of them. Ignored where ZooKeeper is missing.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    path::Path,
    process::ExitCode,
    sync::{Arc, mpsc::channel},
    time::Duration,
};

use cerrojo_testbed::{Certificates, ZooKeeperEnsemble, ZooKeeperServer, need};
use libtest_mimic::{Arguments, Failed, Trial};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

type Proof = fn() -> Result<(), Failed>;

/// ZooKeeper's number for what one may not do.
const NO_AUTH: i32 = -102;

/// Its number for a node that is not there.
const NO_NODE: i32 = -101;

fn main() -> ExitCode {
    let ignored = need("zkServer.sh").is_ignored();
    let trial = |name: &str, proof: Proof| Trial::test(name, proof).with_ignored_flag(ignored);
    let trials = vec![
        trial("a_server_answers_commands_and_clients", commands),
        trial("limits_of_session_timeouts_are_options", timeouts),
        trial("a_restart_keeps_port_and_data_and_an_empty_one_only_the_port", restarts),
        trial("a_kill_keeps_what_was_acknowledged", killed),
        trial("a_frozen_server_is_silent_until_it_is_thawed", frozen),
        trial("a_digest_opens_what_is_closed_to_others", digest),
        trial("tls_trusts_by_the_authority_and_names_localhost_and_127_0_0_1", tls),
        trial("mutual_tls_refuses_clients_without_a_certificate_of_the_authority", mutual_tls),
        trial("a_failing_start_shows_the_log", failing_start),
        trial("a_dropped_server_leaves_no_process_and_no_folder", dropped),
        trial("a_killed_leader_is_replaced_and_follows_when_it_is_back", leader_killed),
        trial("a_frozen_leader_is_replaced_and_follows_when_it_is_thawed", leader_frozen),
        trial("without_a_majority_nothing_is_served_until_there_is_one_again", no_majority),
        trial("an_ensemble_outlives_a_rolling_restart_and_an_emptied_member", rolling),
        trial("an_ensemble_with_tls_serves_its_clients_by_it", ensemble_tls),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Enough of ZooKeeper's protocol to write a node and to read it: each message after its length, all numbers with
/// the highest byte first, each text after its length.
struct Client<S>(S);

impl Client<TcpStream> {
    fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Self::over(stream)
    }
}

impl<S: Read + Write> Client<S> {
    fn over(stream: S) -> io::Result<Self> {
        let mut client = Self(stream);
        client.session(30_000)?;
        Ok(client)
    }

    /// Asks for a session, and hears what timeout it got.
    fn session(&mut self, timeout_ms: i32) -> io::Result<i32> {
        let zeros = [0; 16];
        let request = [
            &[0; 12][..],
            &timeout_ms.to_be_bytes(),
            &[0; 8],
            &text(zeros),
            // Not one that only reads.
            &[0],
        ];
        self.send(&request.concat())?;
        let answer = self.receive()?;
        Ok(number(answer.get(4..8).unwrap()))
    }

    fn create(&mut self, path: &str, data: &str, (scheme, id): (&str, &str)) -> io::Result<i32> {
        let (one, all, lasting) = (1_i32.to_be_bytes(), 31_i32.to_be_bytes(), [0; 4]);
        let acl = [&one[..], &all, &text(scheme), &text(id)].concat();
        let request = [text(path), text(data), acl, lasting.to_vec()].concat();
        Ok(self.ask(1, 1, &request)?.0)
    }

    /// Its data, or ZooKeeper's number for why there is none.
    fn get(&mut self, path: &str) -> io::Result<Result<String, i32>> {
        let (error, answer) = self.ask(1, 4, &[text(path), vec![0]].concat())?;
        if error != 0 {
            return Ok(Err(error));
        }
        let length = usize::try_from(number(answer.get(..4).unwrap())).unwrap();
        Ok(Ok(String::from_utf8_lossy(answer.get(4..4 + length).unwrap()).into_owned()))
    }

    fn digest(&mut self, user_and_password: &str) -> io::Result<i32> {
        let request = [vec![0; 4], text("digest"), text(user_and_password)].concat();
        Ok(self.ask(-4, 100, &request)?.0)
    }

    /// The error's number, and what comes after it.
    fn ask(&mut self, id: i32, kind: i32, request: &[u8]) -> io::Result<(i32, Vec<u8>)> {
        self.send(&[&id.to_be_bytes(), &kind.to_be_bytes(), request].concat())?;
        let answer = self.receive()?;
        assert_eq!(number(answer.get(..4).unwrap()), id);
        Ok((number(answer.get(12..16).unwrap()), answer.get(16..).unwrap().to_vec()))
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.0.write_all(&text(message))?;
        self.0.flush()
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut message = vec![0; usize::try_from(number(&length)).unwrap()];
        self.0.read_exact(&mut message)?;
        Ok(message)
    }
}

fn text(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let length = i32::try_from(bytes.as_ref().len()).unwrap();
    [&length.to_be_bytes(), bytes.as_ref()].concat()
}

fn number(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes.try_into().unwrap())
}

const ANYONE: (&str, &str) = ("world", "anyone");

/// A node `/a` with this data.
fn write(address: &str, data: &str) -> Result<(), Failed> {
    assert_eq!(Client::connect(address)?.create("/a", data, ANYONE)?, 0);
    Ok(())
}

fn read(address: &str) -> io::Result<Result<String, i32>> {
    Client::connect(address)?.get("/a")
}

fn commands() -> Result<(), Failed> {
    let server = ZooKeeperServer::start()?;
    assert_eq!(server.command("ruok")?, "imok");
    assert_eq!(server.mode()?, "standalone");
    assert!(server.command("mntr")?.contains("zk_znode_count"));
    assert_eq!(read(&server.address())?, Err(NO_NODE));
    write(&server.address(), "kept")?;
    assert_eq!(read(&server.address())?, Ok("kept".to_owned()));
    assert!(server.log()?.contains("INFO"));
    Ok(())
}

fn timeouts() -> Result<(), Failed> {
    let asked = |server: &ZooKeeperServer, timeout_ms| {
        Client(TcpStream::connect(server.address())?).session(timeout_ms)
    };
    let server = ZooKeeperServer::builder()
        .option("tickTime", "100")
        .option("minSessionTimeout", "700")
        .option("maxSessionTimeout", "3000");
    let server = server.start()?;
    assert_eq!(asked(&server, 1)?, 700);
    assert_eq!(asked(&server, 2_000)?, 2_000);
    assert_eq!(asked(&server, 30_000)?, 3_000);
    Ok(())
}

fn restarts() -> Result<(), Failed> {
    let server = ZooKeeperServer::builder().fast().start()?;
    let address = server.address();
    write(&address, "kept")?;
    server.restart()?;
    assert_eq!(read(&address)?, Ok("kept".to_owned()));
    server.stop()?;
    server.freeze().unwrap_err();
    assert_eq!(server.id(), None);
    server.restart_empty()?;
    assert_eq!(read(&address)?, Err(NO_NODE));
    assert_eq!(server.address(), address);
    Ok(())
}

fn killed() -> Result<(), Failed> {
    for builder in [ZooKeeperServer::builder(), ZooKeeperServer::builder().fast()] {
        let server = builder.start()?;
        write(&server.address(), "kept")?;
        server.freeze()?;
        server.kill()?;
        server.command("ruok").unwrap_err();
        TcpStream::connect(server.address()).unwrap_err();
        server.restart()?;
        assert_eq!(read(&server.address())?, Ok("kept".to_owned()));
    }
    Ok(())
}

fn frozen() -> Result<(), Failed> {
    let server = ZooKeeperServer::start()?;
    let mut client = Client::connect(&server.address())?;
    server.freeze()?;
    server.mode().unwrap_err();
    let (heard, answer) = channel();
    let asking = std::thread::spawn(move || heard.send(client.get("/a")));
    answer.recv_timeout(Duration::from_millis(200)).unwrap_err();
    server.thaw()?;
    assert_eq!(answer.recv()??, Err(NO_NODE));
    asking.join().unwrap()?;
    Ok(())
}

fn digest() -> Result<(), Failed> {
    let server = ZooKeeperServer::start()?;
    let mut owner = Client::connect(&server.address())?;
    assert_eq!(owner.digest("jobs:secret")?, 0);
    // The one by whom it is made.
    assert_eq!(owner.create("/a", "closed", ("auth", ""))?, 0);
    assert_eq!(owner.get("/a")?, Ok("closed".to_owned()));
    let mut stranger = Client::connect(&server.address())?;
    assert_eq!(stranger.get("/a")?, Err(NO_AUTH));
    assert_eq!(stranger.digest("jobs:wrong")?, 0);
    assert_eq!(stranger.get("/a")?, Err(NO_AUTH));
    assert_eq!(stranger.digest("jobs:secret")?, 0);
    assert_eq!(stranger.get("/a")?, Ok("closed".to_owned()));
    Ok(())
}

type Encrypted = Client<StreamOwned<ClientConnection, TcpStream>>;

/// A client over TLS that trusts `trusted`, with or without a certificate.
fn encrypted(
    address: &str,
    name: &'static str,
    trusted: &Certificates,
    own: Option<&Certificates>,
) -> Result<Encrypted, Box<dyn std::error::Error>> {
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
    Ok(Client::over(StreamOwned::new(session, TcpStream::connect(address)?))?)
}

fn tls() -> Result<(), Failed> {
    let (certificates, strangers) = (Certificates::new()?, Certificates::new()?);
    let server = ZooKeeperServer::builder().tls(&certificates).start()?;
    let address = server.address();
    for name in ["localhost", "127.0.0.1"] {
        let mut client = encrypted(&address, name, &certificates, None)?;
        assert_eq!(client.get("/a")?, Err(NO_NODE));
    }
    assert!(encrypted(&address, "example.org", &certificates, None).is_err());
    assert!(encrypted(&address, "localhost", &strangers, None).is_err());
    assert!(Client::connect(&address).is_err());
    assert_eq!(server.mode()?, "standalone");
    drop(certificates);
    server.restart()?;
    Ok(())
}

fn mutual_tls() -> Result<(), Failed> {
    let (certificates, strangers) = (Certificates::new()?, Certificates::new()?);
    let server = ZooKeeperServer::builder().mutual_tls(&certificates).start()?;
    let come =
        |own| encrypted(&server.address(), "localhost", &certificates, own).map(drop).is_ok();
    assert!(come(Some(&certificates)));
    assert!(!come(None));
    assert!(!come(Some(&strangers)));
    Ok(())
}

fn failing_start() -> Result<(), Failed> {
    let error = ZooKeeperServer::builder().option("tickTime", "often").start().unwrap_err();
    assert!(error.to_string().contains("\"often\""), "{error}");
    Ok(())
}

fn dropped() -> Result<(), Failed> {
    let server = ZooKeeperServer::start()?;
    let process = format!("/proc/{}", server.id().unwrap());
    let folder = server.folder().to_owned();
    assert!(Path::new(&process).exists() && folder.exists());
    drop(server);
    assert!(!Path::new(&process).exists() && !folder.exists());
    Ok(())
}

fn ensemble() -> io::Result<ZooKeeperEnsemble> {
    ZooKeeperEnsemble::of(&ZooKeeperServer::builder().fast())
}

fn member(ensemble: &ZooKeeperEnsemble, at: usize) -> &ZooKeeperServer {
    ensemble.nodes().get(at % 3).unwrap()
}

fn leader_killed() -> Result<(), Failed> {
    let ensemble = ensemble()?;
    let first = ensemble.leader()?;
    write(&member(&ensemble, first + 1).address(), "kept")?;
    member(&ensemble, first).kill()?;
    let second = ensemble.await_leader_other_than(first)?;
    assert_eq!(read(&member(&ensemble, second).address())?, Ok("kept".to_owned()));
    member(&ensemble, first).restart()?;
    ensemble.await_complete()?;
    assert_eq!(ensemble.leader()?, second);
    Ok(())
}

fn leader_frozen() -> Result<(), Failed> {
    let ensemble = ensemble()?;
    let first = ensemble.leader()?;
    let former = member(&ensemble, first);
    former.freeze()?;
    let second = ensemble.await_leader_other_than(first)?;
    write(&member(&ensemble, second).address(), "kept")?;
    former.thaw()?;
    // It may still take itself for the leader: nobody else does.
    assert_eq!(ensemble.leader()?, second);
    ensemble.await_complete()?;
    assert_eq!(former.mode()?, "follower");
    assert_eq!(read(&former.address())?, Ok("kept".to_owned()));
    Ok(())
}

fn no_majority() -> Result<(), Failed> {
    let ensemble = ensemble()?;
    let [first, second, third] = ensemble.nodes();
    write(&first.address(), "kept")?;
    second.kill()?;
    third.kill()?;
    first.stop()?;
    first.restart()?;
    first.mode().unwrap_err();
    assert_eq!(first.command("ruok")?, "imok");
    second.restart()?;
    ensemble.leader()?;
    first.await_serving()?;
    assert_eq!(read(&first.address())?, Ok("kept".to_owned()));
    Ok(())
}

fn rolling() -> Result<(), Failed> {
    let ensemble = ensemble()?;
    let [first, ..] = ensemble.nodes();
    write(&first.address(), "kept")?;
    for node in ensemble.nodes() {
        node.restart()?;
        node.await_serving()?;
        assert_eq!(read(&node.address())?, Ok("kept".to_owned()));
    }
    first.restart_empty()?;
    first.await_serving()?;
    assert_eq!(read(&first.address())?, Ok("kept".to_owned()));
    Ok(())
}

fn ensemble_tls() -> Result<(), Failed> {
    let certificates = Certificates::new()?;
    let builder = ZooKeeperServer::builder().fast().mutual_tls(&certificates);
    let ensemble = ZooKeeperEnsemble::of(&builder)?;
    for address in ensemble.endpoints() {
        let mut client = encrypted(&address, "localhost", &certificates, Some(&certificates))?;
        assert_eq!(client.get("/a")?, Err(NO_NODE));
    }
    Ok(())
}
