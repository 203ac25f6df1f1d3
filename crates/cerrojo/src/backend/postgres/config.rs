//! Which server, how it is reached, and which tables: from a URL or from keywords and values, as libpq reads them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::{
    backend::Postgres,
    error::PgError,
    passfile::{self, Wanted},
    schema,
    tls::{Mode, Tls},
};
use crate::{
    Error, Result,
    sql::{Names, quoted_role},
};

/// Where a socket is looked for when no host is given.
const SOCKET_FOLDER: &str = "/var/run/postgresql";
const PORT: u16 = 5432;
const CALL_LIMIT: Duration = Duration::from_secs(2);

/// How waiters learn that they have been made the owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Listen {
    /// By LISTEN on one more connection to the same address. Where that is not heard, behind a pooler in transaction mode, they
    /// poll, and a warning says so once.
    #[default]
    Here,
    /// By LISTEN on a connection to the server itself, past the pooler that the others go through.
    At {
        /// Its host name, or the folder of its socket.
        host: String,
        /// Its port.
        port: u16,
    },
    /// Not at all: they poll, each 10 to 20 times a second; where a process waits for more than 100 names, all of them together 1,000
    /// to 2,000 times, but each once at least.
    No,
}

/// Everything that a store is made of.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// What the driver reads itself. Hides its password.
    pub(super) server: tokio_postgres::Config,
    pub(super) tls: Tls,
    pub(super) names: Names,
    pub(super) listen: Listen,
    pub(super) call_limit: Duration,
}

impl Config {
    /// The configurations by which a server is looked for, one after another.
    pub(super) fn servers(&self) -> Vec<tokio_postgres::Config> {
        each_host(&self.server)
    }

    /// Where waiters are told.
    pub(super) fn for_listening(&self) -> Self {
        let Listen::At { host, port } = &self.listen else {
            return self.clone();
        };
        let host = match host.starts_with('/') {
            #[cfg(unix)]
            true => Host::Unix(host.into()),
            _ => Host::Tcp(host.clone()),
        };
        Self { server: moved(&self.server, &host, *port), ..self.clone() }
    }

    /// How long connecting may take: a server forks, and checks a password, for each.
    pub(super) fn dial_limit(&self) -> Duration {
        self.call_limit.max(crate::spi::CALL_LIMIT)
    }
}

/// Settings of a [`Postgres`] store, before it connects.
#[derive(Clone, Debug)]
pub struct Builder {
    config: std::result::Result<Config, String>,
    roles: BTreeSet<String>,
}

impl Builder {
    pub(super) fn new(url: &str) -> Self {
        Self { config: parse(url), roles: BTreeSet::new() }
    }

    /// The schema in which the tables are, `cerrojo` unless set: 1 to 40 of a-z, 0-9 and _.
    #[must_use]
    pub fn schema(self, schema: impl Into<String>) -> Self {
        self.try_set(|config| {
            let names = config.names.with_schema(schema.into())?;
            Ok(Config { names, ..config })
        })
    }

    /// The table of the locks, `lock` unless set, with whose name all others begin: 1 to 40 of a-z, 0-9 and _.
    #[must_use]
    pub fn table(self, table: impl Into<String>) -> Self {
        self.try_set(|config| {
            let names = config.names.with_table(table.into())?;
            Ok(Config { names, ..config })
        })
    }

    /// The password; a URL shows up in places where a password should not.
    #[must_use]
    pub fn password(self, password: &str) -> Self {
        self.try_set(|mut config| {
            config.server.password(password);
            Ok(config)
        })
    }

    /// How waiters learn that they have been made the owner.
    #[must_use]
    pub fn listen(self, listen: Listen) -> Self {
        self.try_set(|config| Ok(Config { listen, ..config }))
    }

    /// How long a call may take before its outcome is unknown, 2 s unless set; from 10 ms to 1 minute.
    #[must_use]
    pub fn call_limit(self, limit: Duration) -> Self {
        self.try_set(|config| Ok(Config { call_limit: checked_limit(limit)?, ..config }))
    }

    /// [`Builder::init`] lets this role use the locks, with no more rights than that takes.
    #[must_use]
    pub fn grant_to(mut self, role: impl Into<String>) -> Self {
        self.roles.insert(role.into());
        self
    }

    fn try_set(self, change: impl FnOnce(Config) -> std::result::Result<Config, String>) -> Self {
        Self { config: self.config.and_then(change), ..self }
    }

    /// Connects, and checks that what answers is a store of locks that lets us in.
    ///
    /// # Errors
    ///
    /// As [`Postgres::connect`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn connect(self) -> Result<Postgres> {
        Postgres::open(self.config.map_err(wrong)?).await
    }

    /// Makes the tables and functions, or brings them up to date: in one transaction, as often as one likes, also when many start
    /// at once.
    ///
    /// The role needs CREATE on the database, or on the schema where that exists; it owns the store from then on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) without the rights, on a standby, and where the store is of a newer version;
    /// else as [`Postgres::connect`]. Nothing is half done.
    ///
    /// # Cancel safety
    ///
    /// When dropped, it takes effect wholly or not at all.
    pub async fn init(self) -> Result<()> {
        let roles: Result<Vec<_>> = self.roles.iter().map(|role| quoted_role(role)).collect();
        let config = self.config.map_err(wrong)?;
        super::backend::init(&config, &schema::transaction(&config.names, &roles?)).await
    }

    /// What [`Builder::init`] would run, for somebody to read and apply.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for wrong settings.
    pub fn init_sql(self) -> Result<String> {
        let roles: Result<Vec<_>> = self.roles.iter().map(|role| quoted_role(role)).collect();
        let config = self.config.map_err(wrong)?;
        Ok(schema::transaction(&config.names, &roles?))
    }
}

fn wrong(why: String) -> Error {
    PgError::Config(why).plain()
}

/// Neither URL nor value is repeated in an error: it may hold a password.
pub(super) fn parse(text: &str) -> std::result::Result<Config, String> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let (mut options, rest) = if is_url {
        take_from_url(text)?
    } else {
        take_from_words(text.strip_prefix("postgres:").unwrap_or(text))?
    };
    let mut server = tokio_postgres::Config::from_str(&rest).map_err(|error| unreadable(&error))?;
    let tls = options.tls()?;
    let names = options.names()?;
    let listen = options.listen()?;
    let call_limit = options.call_limit()?;
    settle(&mut server, &tls, call_limit);
    if let (Some(path), None) = (options.take("passfile"), server.get_password()) {
        use_passfile(&mut server, Path::new(&path))?;
    }
    Ok(Config { server, tls, names, listen, call_limit })
}

/// The driver's own words are about keys, ports and numbers; the text it read is not among them.
fn unreadable(error: &tokio_postgres::Error) -> String {
    let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    format!("neither a URL nor keywords and values, as libpq has them: {why}")
}

/// What libpq would take for granted, and what a lock cannot do without.
fn settle(server: &mut tokio_postgres::Config, tls: &Tls, call_limit: Duration) {
    if server.get_hosts().is_empty() && server.get_hostaddrs().is_empty() {
        server.host_path(SOCKET_FOLDER);
    }
    let all_are_sockets = server.get_hosts().iter().all(|host| !matches!(host, Host::Tcp(_)))
        && server.get_hostaddrs().is_empty();
    server.ssl_mode(match tls.mode {
        _ if all_are_sockets => SslMode::Disable,
        Mode::Disable | Mode::Allow => SslMode::Disable,
        Mode::Prefer => SslMode::Prefer,
        Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
    });
    if server.get_application_name().is_none() {
        server.application_name("cerrojo");
    }
    if server.get_hosts().len() > 1 {
        server.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    let idle = call_limit.max(Duration::from_secs(1));
    server.tcp_user_timeout(call_limit);
    server.keepalives(true).keepalives_idle(idle).keepalives_interval(idle).keepalives_retries(2);
}

/// One for each host: a host that is stopped must not keep us from the next.
fn each_host(server: &tokio_postgres::Config) -> Vec<tokio_postgres::Config> {
    let (hosts, ports) = (server.get_hosts(), server.get_ports());
    if hosts.len() < 2 || !server.get_hostaddrs().is_empty() {
        return vec![server.clone()];
    }
    let port = |at| ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
    hosts.iter().enumerate().map(|(at, host)| moved(server, host, port(at))).collect()
}

/// The same by another address.
fn moved(server: &tokio_postgres::Config, host: &Host, port: u16) -> tokio_postgres::Config {
    let mut there = tokio_postgres::Config::new();
    match host {
        Host::Tcp(host) => there.host(host),
        #[cfg(unix)]
        Host::Unix(folder) => there.host_path(folder),
    };
    there.port(port).ssl_mode(server.get_ssl_mode()).ssl_negotiation(server.get_ssl_negotiation());
    there.channel_binding(server.get_channel_binding());
    there.target_session_attrs(server.get_target_session_attrs());
    if let Some(user) = server.get_user() {
        there.user(user);
    }
    if let Some(password) = server.get_password() {
        there.password(password);
    }
    if let Some(database) = server.get_dbname() {
        there.dbname(database);
    }
    if let Some(options) = server.get_options() {
        there.options(options);
    }
    if let Some(name) = server.get_application_name() {
        there.application_name(name);
    }
    if let Some(limit) = server.get_connect_timeout() {
        there.connect_timeout(*limit);
    }
    if let Some(limit) = server.get_tcp_user_timeout() {
        there.tcp_user_timeout(*limit);
    }
    let (idle, retries) = (server.get_keepalives_idle(), server.get_keepalives_retries());
    there.keepalives_idle(idle).keepalives_interval(idle);
    if let Some(retries) = retries {
        there.keepalives_retries(retries);
    }
    there
}

fn use_passfile(
    server: &mut tokio_postgres::Config,
    path: &Path,
) -> std::result::Result<(), String> {
    let user = server.get_user().ok_or("a passfile needs a user in the URL")?;
    let host = match server.get_hosts().first() {
        Some(Host::Tcp(host)) => host.as_str(),
        _ => "localhost",
    };
    let wanted = Wanted {
        host,
        port: server.get_ports().first().copied().unwrap_or(PORT),
        database: server.get_dbname().unwrap_or(user),
        user,
    };
    if let Some(password) = passfile::look_up(path, &wanted)? {
        server.password(password);
    }
    Ok(())
}

/// Options that the driver does not know, or not all of.
const OWN: [&str; 9] = [
    "schema",
    "table",
    "listen",
    "call_limit_ms",
    "passfile",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
];

struct Options(BTreeMap<String, String>);

fn take_from_url(text: &str) -> std::result::Result<(Options, String), String> {
    let (head, query) = text.split_once('?').unwrap_or((text, ""));
    let mut options = BTreeMap::new();
    let mut left = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or("an option is name=value")?;
        match OWN.contains(&name) {
            true => insert(&mut options, name, decoded(value)?)?,
            false => left.push(pair),
        }
    }
    let mark = if left.is_empty() { "" } else { "?" };
    Ok((Options(options), format!("{head}{mark}{}", left.join("&"))))
}

fn take_from_words(text: &str) -> std::result::Result<(Options, String), String> {
    let mut options = BTreeMap::new();
    let mut left = String::new();
    for (name, value) in words(text)? {
        if OWN.contains(&name.as_str()) {
            insert(&mut options, &name, value)?;
        } else {
            let value = value.replace('\\', r"\\").replace('\'', r"\'");
            left.push_str(&format!("{name}='{value}' "));
        }
    }
    Ok((Options(options), left))
}

fn insert(
    options: &mut BTreeMap<String, String>,
    name: &str,
    value: String,
) -> std::result::Result<(), String> {
    match options.insert(name.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(format!("the option `{name}` stands there twice")),
    }
}

/// `name = value` pairs; a value in single quotes may have spaces, and a backslash takes the next character as it is.
fn words(text: &str) -> std::result::Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, behind) = rest.split_once('=').ok_or("keywords and values are name=value")?;
        let (value, behind) = value(behind.trim_start())?;
        pairs.push((name.trim().to_owned(), value));
        rest = behind.trim_start();
    }
    Ok(pairs)
}

fn value(text: &str) -> std::result::Result<(String, &str), String> {
    let quoted = text.strip_prefix('\'');
    let mut value = String::new();
    let mut chars = quoted.unwrap_or(text).chars();
    loop {
        match chars.next() {
            Some('\\') => value.extend(chars.next()),
            Some('\'') if quoted.is_some() => return Ok((value, chars.as_str())),
            Some(c) if quoted.is_none() && c.is_whitespace() => return Ok((value, chars.as_str())),
            Some(c) => value.push(c),
            None if quoted.is_some() => return Err("a quote is not closed".to_owned()),
            None => return Ok((value, "")),
        }
    }
}

fn decoded(text: &str) -> std::result::Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| "a part of the URL is not UTF-8".to_owned())
}

fn checked_limit(limit: Duration) -> std::result::Result<Duration, String> {
    match (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&limit) {
        true => Ok(limit),
        false => Err(format!("a call's limit is from 10 ms to 1 minute, not {limit:?}")),
    }
}

impl Options {
    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn names(&mut self) -> std::result::Result<Names, String> {
        let names = match self.take("schema") {
            Some(schema) => Names::of("lock").with_schema(schema)?,
            None => Names::of("lock"),
        };
        self.take("table").map_or(Ok(names.clone()), |table| names.with_table(table))
    }

    fn listen(&mut self) -> std::result::Result<Listen, String> {
        let wrong = || "`listen` is yes, no or host:port".to_owned();
        match self.take("listen").as_deref() {
            None | Some("yes") => Ok(Listen::Here),
            Some("no") => Ok(Listen::No),
            Some(address) => {
                let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
                let port = port.parse().map_err(|_| wrong())?;
                Ok(Listen::At { host: host.to_owned(), port })
            }
        }
    }

    fn call_limit(&mut self) -> std::result::Result<Duration, String> {
        match self.take("call_limit_ms").map(|text| text.parse()) {
            None => Ok(CALL_LIMIT),
            Some(Ok(ms)) => checked_limit(Duration::from_millis(ms)),
            Some(Err(_)) => Err("`call_limit_ms` is a number".to_owned()),
        }
    }

    fn tls(&mut self) -> std::result::Result<Tls, String> {
        let mode = self.take("sslmode").map_or(Ok(Mode::Prefer), |mode| mode.parse())?;
        let path = |text: Option<String>| text.map(PathBuf::from);
        let client = match (path(self.take("sslcert")), path(self.take("sslkey"))) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("`sslcert` and `sslkey` go together".to_owned()),
        };
        let root = self.take("sslrootcert").filter(|root| root != "system");
        Ok(Tls { mode, root: path(root), client })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_and_keywords_say_the_same() {
        let url = "postgresql://ann:p%40ss@db:7/app?sslmode=verify-full&sslrootcert=/ca&table=job&options=-c%20x%3D1";
        let words = r"host=db port=7 user=ann password='p@ss' dbname=app sslmode=verify-full sslrootcert=/ca table=job options='-c x=1'";
        for text in [url, words, &format!("postgres:{words}")] {
            let config = parse(text).unwrap();
            assert_eq!(config.server.get_user(), Some("ann"));
            assert_eq!(config.server.get_password(), Some("p@ss".as_bytes()));
            assert_eq!(config.server.get_ports(), [7]);
            assert_eq!(config.server.get_dbname(), Some("app"));
            assert_eq!(config.server.get_options(), Some("-c x=1"));
            assert_eq!(config.tls.mode, Mode::VerifyFull);
            assert_eq!(config.tls.root, Some(PathBuf::from("/ca")));
            assert_eq!(config.names.shown(), "cerrojo.job");
            assert!(!format!("{config:?}").contains("p@ss"));
        }
    }

    #[test]
    fn quotes_and_backslashes_are_read_as_libpq_does() {
        let config = parse(r"user = 'a b' password = 'it\'s \\ x' host=/run/p").unwrap();
        assert_eq!(config.server.get_user(), Some("a b"));
        assert_eq!(config.server.get_password(), Some(r"it's \ x".as_bytes()));
        assert_eq!(config.server.get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn without_a_host_it_is_the_socket() {
        let config = parse("postgres:///app?user=ann").unwrap();
        assert_eq!(config.server.get_hosts(), [Host::Unix(SOCKET_FOLDER.into())]);
        assert!(parse("user=ann").is_ok());
    }

    #[test]
    fn several_hosts_are_asked_for_the_one_that_writes() {
        let config = parse("postgres://a:1,b:2/app?user=ann").unwrap();
        assert_eq!(config.server.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn options_have_their_ranges() {
        let config =
            parse("postgres://h?schema=s&listen=db:5432&call_limit_ms=500&user=u").unwrap();
        assert_eq!(config.names.shown(), "s.lock");
        assert_eq!(config.listen, Listen::At { host: "db".to_owned(), port: 5432 });
        assert_eq!(config.call_limit, Duration::from_millis(500));
        assert_eq!(parse("postgres://h?listen=no").unwrap().listen, Listen::No);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (text, wanted) in [
            ("postgres://u:secret@h?pool=3", "pool"),
            ("postgres://u:secret@h:x/", "port"),
            ("password=secret host", "name=value"),
            ("password='secret", "quote"),
            ("password=secret sslmode=maybe", "verify-full"),
            ("password=secret sslcert=a", "go together"),
            ("password=secret table=A", "a-z"),
            ("password=secret listen=x", "host:port"),
            ("password=secret call_limit_ms=1", "10 ms"),
            ("password=secret table=a table=b", "twice"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(wanted), "{text}: {why}");
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
