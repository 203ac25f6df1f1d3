//! Where the server is and how to use it: the URL, and the same in a builder.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use percent_encoding::percent_decode_str;

use super::{Format, Redis, error::RedisError};
use crate::Result;

/// The port of a Redis server that names none.
const PORT: u16 = 6379;
/// The same of a Sentinel.
const SENTINEL_PORT: u16 = 26_379;

/// Opens a [`Redis`] store.
#[derive(Clone, Debug)]
pub struct Builder(std::result::Result<Config, String>);

/// Everything that a connection and a lock need to know.
#[derive(Clone, Debug)]
pub(in crate::backend) struct Config {
    pub(in crate::backend) servers: Servers,
    pub(in crate::backend) login: Login,
    pub(in crate::backend) db: i64,
    pub(in crate::backend) tls: Option<Tls>,
    pub(in crate::backend) format: Format,
    /// What all keys and channels of ours begin with.
    pub(in crate::backend) space: String,
    pub(in crate::backend) overtakes: bool,
    pub(in crate::backend) replicas: usize,
    pub(in crate::backend) call_limit: Duration,
}

/// A host and its port.
pub(in crate::backend) type Address = (String, u16);

#[derive(Clone, Debug)]
pub(in crate::backend) enum Servers {
    One(Address),
    Socket(PathBuf),
    Sentinels { addresses: Vec<Address>, master: String, login: Login },
    Cluster(Vec<Address>),
}

/// A user and a password. Neither is ever shown.
#[derive(Clone, Default)]
pub(in crate::backend) struct Login {
    pub(in crate::backend) user: Option<String>,
    pub(in crate::backend) password: Option<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.password.is_some() { "Login(..)" } else { "Login(none)" })
    }
}

/// Files in PEM form; without a CA those that the system trusts.
#[derive(Clone, Debug, Default)]
pub(in crate::backend) struct Tls {
    pub(in crate::backend) ca: Option<PathBuf>,
    pub(in crate::backend) client: Option<(PathBuf, PathBuf)>,
}

/// How a scheme reaches its servers.
enum Way {
    One,
    Socket,
    Sentinels,
    Cluster,
}

/// Every scheme, with whether it is encrypted.
const SCHEMES: [(&str, Way, bool); 7] = [
    ("redis", Way::One, false),
    ("rediss", Way::One, true),
    ("redis+unix", Way::Socket, false),
    ("redis+sentinel", Way::Sentinels, false),
    ("rediss+sentinel", Way::Sentinels, true),
    ("redis+cluster", Way::Cluster, false),
    ("rediss+cluster", Way::Cluster, true),
];

impl Builder {
    pub(in crate::backend) fn new(url: &str) -> Self {
        Self(parse(url))
    }

    /// Whose form keys and values have.
    #[must_use]
    pub fn format(self, format: Format) -> Self {
        self.set(|config| config.format = format)
    }

    /// What all keys and channels of ours begin with, `cerrojo` unless set: visible ASCII without braces, colon or space.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self(
            self.0.and_then(|config| Ok(Config { space: checked_space(prefix.into())?, ..config })),
        )
    }

    /// The user and the password; a URL shows up in places where a password should not.
    #[must_use]
    pub fn login(self, user: Option<&str>, password: &str) -> Self {
        let login = Login { user: user.map(str::to_owned), password: Some(password.to_owned()) };
        self.set(|config| config.login = login)
    }

    /// A request takes a free lock though others wait for it: faster, and unfair.
    #[must_use]
    pub fn overtake(self) -> Self {
        self.set(|config| config.overtakes = true)
    }

    /// A grant counts once that many replicas have acknowledged it, by WAIT. That makes a failover less likely to give two
    /// holders; it does not exclude it.
    #[must_use]
    pub fn replicas(self, replicas: usize) -> Self {
        self.set(|config| config.replicas = replicas)
    }

    /// How long a call may take before its outcome is unknown, 2 s unless set; from 10 ms to 1 minute.
    #[must_use]
    pub fn call_limit(self, limit: Duration) -> Self {
        Self(self.0.and_then(|config| Ok(Config { call_limit: checked_limit(limit)?, ..config })))
    }

    fn set(self, change: impl FnOnce(&mut Config)) -> Self {
        Self(self.0.map(|mut config| {
            change(&mut config);
            config
        }))
    }

    /// Connects, and checks that what answers is a Redis server that lets us in.
    ///
    /// # Errors
    ///
    /// As [`Redis::connect`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn connect(self) -> Result<Redis> {
        let config = self.0.map_err(|why| RedisError::Config(why).plain())?;
        Redis::open(check(config)?).await
    }
}

/// What does not go together.
fn check(config: Config) -> Result<Config> {
    let is_cluster = matches!(config.servers, Servers::Cluster(_));
    let why = if is_cluster && config.replicas > 0 {
        "`replicas` does not work on a cluster: WAIT would ask another node than the lock's"
    } else if is_cluster && config.db != 0 {
        "a cluster has database 0 only"
    } else {
        return Ok(config);
    };
    Err(RedisError::Config(why.to_owned()).plain())
}

/// The URL itself is not repeated: it may hold a password.
pub(in crate::backend) fn parse(url: &str) -> std::result::Result<Config, String> {
    let (scheme, rest) = url.split_once(':').ok_or("a URL begins with redis:")?;
    let (_, way, encrypted) =
        SCHEMES.iter().find(|(name, ..)| *name == scheme).ok_or_else(|| {
            format!("no scheme `{scheme}`; there are {}", names(SCHEMES.map(|s| s.0)))
        })?;
    let rest = rest.strip_prefix("//").ok_or("after the scheme comes //")?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (login_of(login)?, hosts),
        None => (Login::default(), authority),
    };
    let mut options = Options::of(query)?;
    let (servers, db) = match way {
        Way::One => (Servers::One(one_address(hosts)?), database(path)?),
        Way::Socket => (Servers::Socket(socket(hosts, path)?), options.number("db")?.unwrap_or(0)),
        Way::Sentinels => sentinels(hosts, path, &mut options)?,
        Way::Cluster => (Servers::Cluster(addresses(hosts, PORT)?), database(path)?),
    };
    let tls = if *encrypted { Some(options.tls()?) } else { None };
    let config = Config {
        servers,
        login,
        db,
        tls,
        format: options.format()?,
        space: checked_space(options.take("prefix").unwrap_or_else(|| "cerrojo".to_owned()))?,
        overtakes: options.yes("overtake")?,
        replicas: options.number("replicas")?.unwrap_or(0),
        call_limit: options.call_limit()?,
    };
    options.nothing_left()?;
    Ok(config)
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn decoded(text: &str) -> std::result::Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| "a part of the URL is not UTF-8".to_owned())
}

/// `user:password`, `:password` or, as Redis users write it, `password` behind an empty user.
fn login_of(text: &str) -> std::result::Result<Login, String> {
    let (user, password) = text.split_once(':').ok_or("a login is user:password or :password")?;
    let user = Some(decoded(user)?).filter(|user| !user.is_empty());
    Ok(Login { user, password: Some(decoded(password)?) })
}

fn address(text: &str, port: u16) -> std::result::Result<Address, String> {
    let wrong = || format!("`{text}` is no host:port");
    let (host, port) = match text.rsplit_once(':') {
        // An IPv6 address is in brackets.
        Some((host, number)) if !number.contains(']') => {
            (host, number.parse().map_err(|_| wrong())?)
        }
        _ => (text, port),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() { Err(wrong()) } else { Ok((decoded(host)?, port)) }
}

fn addresses(hosts: &str, port: u16) -> std::result::Result<Vec<Address>, String> {
    hosts.split(',').map(|host| address(host, port)).collect()
}

fn one_address(hosts: &str) -> std::result::Result<Address, String> {
    if hosts.contains(',') {
        return Err("one server, please: several are redis+sentinel or redis+cluster".to_owned());
    }
    address(hosts, PORT)
}

fn database(path: &str) -> std::result::Result<i64, String> {
    match path {
        "" => Ok(0),
        text => text
            .parse()
            .ok()
            .filter(|db| *db >= 0)
            .ok_or_else(|| format!("`{text}` is no database number")),
    }
}

fn socket(hosts: &str, path: &str) -> std::result::Result<PathBuf, String> {
    match (hosts, path) {
        ("", path) if !path.is_empty() => Ok(PathBuf::from(format!("/{}", decoded(path)?))),
        _ => Err("a socket is redis+unix:///path/to/socket".to_owned()),
    }
}

fn sentinels(
    hosts: &str,
    path: &str,
    options: &mut Options,
) -> std::result::Result<(Servers, i64), String> {
    let (master, db) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        return Err("Sentinel needs the master's name: redis+sentinel://host:port/NAME".to_owned());
    }
    let login =
        Login { user: options.take("sentinel_user"), password: options.take("sentinel_password") };
    let (addresses, master) = (addresses(hosts, SENTINEL_PORT)?, decoded(master)?);
    Ok((Servers::Sentinels { addresses, master, login }, database(db)?))
}

fn checked_space(space: String) -> std::result::Result<String, String> {
    let is_fit = |c: char| c.is_ascii_graphic() && !"{}:%".contains(c);
    match !space.is_empty() && space.len() <= 64 && space.chars().all(is_fit) {
        true => Ok(space),
        false => Err(format!(
            "the prefix {space:?} is not 1 to 64 visible ASCII characters without {{ }} : %"
        )),
    }
}

fn checked_limit(limit: Duration) -> std::result::Result<Duration, String> {
    match (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&limit) {
        true => Ok(limit),
        false => Err(format!("a call's limit is from 10 ms to 1 minute, not {limit:?}")),
    }
}

/// What stands behind the question mark. Each option is taken once; what nobody takes is a mistake.
struct Options(BTreeMap<String, String>);

impl Options {
    fn of(query: &str) -> std::result::Result<Self, String> {
        let mut options = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or("an option is name=value")?;
            if options.insert(decoded(name)?, decoded(value)?).is_some() {
                return Err(format!("the option `{name}` stands there twice"));
            }
        }
        Ok(Self(options))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn number<T: std::str::FromStr>(
        &mut self,
        name: &str,
    ) -> std::result::Result<Option<T>, String> {
        let number =
            self.take(name).map(|text| text.parse().map_err(|_| format!("`{name}` is a number")));
        number.transpose()
    }

    fn yes(&mut self, name: &str) -> std::result::Result<bool, String> {
        match self.take(name).as_deref() {
            None | Some("no") => Ok(false),
            Some("yes") => Ok(true),
            Some(_) => Err(format!("`{name}` is yes or no")),
        }
    }

    fn format(&mut self) -> std::result::Result<Format, String> {
        let Some(wanted) = self.take("format") else {
            return Ok(Format::Cerrojo);
        };
        let known = Format::ALL.iter().find(|(name, _)| *name == wanted);
        known.map(|(_, format)| *format).ok_or_else(|| {
            format!("no format `{wanted}`; there are {}", names(Format::ALL.map(|format| format.0)))
        })
    }

    fn tls(&mut self) -> std::result::Result<Tls, String> {
        let path = |text: Option<String>| text.map(PathBuf::from);
        let client = match (path(self.take("cert")), path(self.take("key"))) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("`cert` and `key` go together".to_owned()),
        };
        Ok(Tls { ca: path(self.take("ca")), client })
    }

    fn call_limit(&mut self) -> std::result::Result<Duration, String> {
        let millis = self.number("call_limit_ms")?;
        checked_limit(millis.map_or(Duration::from_secs(2), Duration::from_millis))
    }

    fn nothing_left(&self) -> std::result::Result<(), String> {
        const KNOWN: &str = "prefix, format, overtake, replicas, call_limit_ms; with TLS ca, cert, key; for Sentinel \
                             sentinel_user, sentinel_password; for a socket db";
        match self.0.keys().next() {
            Some(name) => Err(format!("no option `{name}` here; there are {KNOWN}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(url: &str) -> String {
        format!("{:?}", parse(url).unwrap().servers)
    }

    #[test]
    fn each_scheme_reaches_its_servers() {
        assert_eq!(servers("redis://h"), r#"One(("h", 6379))"#);
        assert_eq!(servers("rediss://[::1]:7/3"), r#"One(("::1", 7))"#);
        assert_eq!(servers("redis://[::1]"), r#"One(("::1", 6379))"#);
        assert_eq!(servers("redis+unix:///run/r%20s?db=2"), r#"Socket("/run/r s")"#);
        assert_eq!(servers("redis+cluster://a,b:7"), r#"Cluster([("a", 6379), ("b", 7)])"#);
        assert!(
            servers("redis+sentinel://a,b:7/m")
                .contains(r#"[("a", 26379), ("b", 7)], master: "m""#)
        );
        assert_eq!(parse("redis://h/3").unwrap().db, 3);
        assert_eq!(parse("redis+unix:///s?db=2").unwrap().db, 2);
        assert_eq!(parse("redis+sentinel://a/m/4").unwrap().db, 4);
    }

    #[test]
    fn logins_are_decoded_and_never_shown() {
        let config = parse("redis://ann:p%40ss%3A@h").unwrap();
        assert_eq!(config.login.user.as_deref(), Some("ann"));
        assert_eq!(config.login.password.as_deref(), Some("p@ss:"));
        assert!(!format!("{config:?}").contains("p@ss"));
        let config = parse("redis+sentinel://:s3cret@h/m?sentinel_password=guard").unwrap();
        assert_eq!(config.login.user, None);
        let shown = format!("{config:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("guard"), "{shown}");
    }

    #[test]
    fn options_have_their_ranges() {
        let config = parse(
            "rediss://h?prefix=app&format=redis-py&overtake=yes&replicas=2&call_limit_ms=500&ca=/c",
        )
        .unwrap();
        assert_eq!((config.space.as_str(), config.format), ("app", Format::RedisPy));
        assert_eq!((config.overtakes, config.replicas), (true, 2));
        assert_eq!(config.call_limit, Duration::from_millis(500));
        assert_eq!(config.tls.unwrap().ca, Some(PathBuf::from("/c")));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        let cases = [
            ("redis:h", "//"),
            ("redis+pigeon://h", "redis+cluster"),
            ("redis://", "host:port"),
            ("redis://h:x", "host:port"),
            ("redis://a,b", "redis+sentinel"),
            ("redis://h/x", "database"),
            ("redis://h/-1", "database"),
            ("redis://secret@h", "user:password"),
            ("redis+unix://h/s", "redis+unix:///"),
            ("redis+sentinel://h", "master's name"),
            ("redis://h?pool=3", "call_limit_ms"),
            ("redis://h?ca=x", "no option `ca`"),
            ("rediss://h?cert=x", "go together"),
            ("redis://h?format=mine", "redlock.net"),
            ("redis://h?overtake=1", "yes or no"),
            ("redis://h?replicas=-1", "number"),
            ("redis://h?call_limit_ms=9", "10 ms"),
            ("redis://h?prefix=a:b", "prefix"),
            ("redis://h?replicas=1&replicas=2", "twice"),
        ];
        for (url, wanted) in cases {
            let why = parse(url).unwrap_err();
            assert!(why.contains(wanted), "{url}: {why}");
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_cluster_has_no_databases_and_no_wait() {
        for url in ["redis+cluster://h/1", "redis+cluster://h?replicas=1"] {
            assert!(check(parse(url).unwrap()).is_err());
        }
    }
}
