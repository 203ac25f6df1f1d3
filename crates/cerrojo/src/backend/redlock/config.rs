//! Which nodes there are and how to use them: the URL, and the same in a builder.

use std::{collections::BTreeMap, time::Duration};

use percent_encoding::percent_decode_str;

use super::{
    super::redis::config::{self as single, Servers},
    Redlock,
};
use crate::{Error, ErrorKind, Result, Ttl};

/// Opens a [`Redlock`] store.
#[derive(Clone, Debug)]
pub struct Builder {
    nodes: std::result::Result<Vec<single::Config>, String>,
    pub(super) settings: Settings,
}

/// Everything beside the nodes.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) ttl_max: Ttl,
    /// None: as long as the longest TTL.
    pub(super) restart_grace: Option<Duration>,
    pub(super) clock_deviation: Duration,
    pub(super) operation_time: Duration,
    /// None: a twentieth of the TTL, but no less than [`NODE_LIMIT_MIN`].
    pub(super) node_limit: Option<Duration>,
}

/// What a node is given to answer, at the least.
const NODE_LIMIT_MIN: Duration = Duration::from_millis(50);

impl Default for Settings {
    fn default() -> Self {
        Self {
            // Nothing else is a TTL of its own here, and this is one.
            ttl_max: Ttl::secs(60).unwrap_or(Ttl::MAX),
            restart_grace: None,
            clock_deviation: Duration::from_millis(10),
            operation_time: Duration::ZERO,
            node_limit: None,
        }
    }
}

impl Settings {
    pub(super) fn restart_grace(&self) -> Duration {
        self.restart_grace.unwrap_or(self.ttl_max.get())
    }

    pub(super) fn node_limit(&self, ttl: Ttl) -> Duration {
        self.node_limit.unwrap_or_else(|| (ttl.get() / 20).max(NODE_LIMIT_MIN))
    }

    /// What has to be left of the validity when the lock is handed out.
    pub(super) fn validity_min(&self) -> Duration {
        2 * self.clock_deviation + self.operation_time
    }
}

impl Builder {
    pub(super) fn of_nodes(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let nodes = urls.into_iter().map(|url| single::parse(url.as_ref())).collect();
        Self { nodes, settings: Settings::default() }
    }

    pub(super) fn of_url(url: &str) -> Result<Self> {
        parse(url).map_err(|why| invalid(&why))
    }

    /// The longest TTL that a request may ask for, 60 s unless set: the longer, the longer a restarted node has no vote.
    #[must_use]
    pub fn ttl_max(mut self, ttl_max: Ttl) -> Self {
        self.settings.ttl_max = ttl_max;
        self
    }

    /// How long a node that may have been restarted has no vote, the longest TTL unless set. Zero gives all a vote at once:
    /// then a restart can give a lock to two holders.
    #[must_use]
    pub fn restart_grace(mut self, grace: Duration) -> Self {
        self.settings.restart_grace = Some(grace);
        self
    }

    /// How far apart the nodes' clocks may be, 10 ms unless set: twice that has to be left of the validity at hand-out.
    #[must_use]
    pub fn clock_deviation(mut self, deviation: Duration) -> Self {
        self.settings.clock_deviation = deviation;
        self
    }

    /// How long the work under the lock takes, if that is known: so much more has to be left at hand-out.
    #[must_use]
    pub fn operation_time(mut self, time: Duration) -> Self {
        self.settings.operation_time = time;
        self
    }

    /// How long a node is given to answer, 1 ms or more: a twentieth of the TTL unless set, but at least 50 ms.
    ///
    /// One that has left a call without an answer is given no more than 50 ms for its vote until it answers again.
    #[must_use]
    pub fn node_limit(mut self, limit: Duration) -> Self {
        self.settings.node_limit = Some(limit.max(Duration::from_millis(1)));
        self
    }

    /// Connects to all nodes, and checks that each may be one.
    ///
    /// # Errors
    ///
    /// As [`Redlock::connect`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn connect(self) -> Result<Redlock> {
        let nodes = self.nodes.and_then(check).map_err(|why| invalid(&why))?;
        Redlock::open(nodes, self.settings).await
    }
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("redlock: {why}"))
}

/// What no majority can be made of.
fn check(nodes: Vec<single::Config>) -> std::result::Result<Vec<single::Config>, String> {
    let first = nodes.first().ok_or("no nodes: name at least one, better three or five")?;
    if nodes.iter().any(|node| (node.format, &node.space) != (first.format, &first.space)) {
        return Err("all nodes have the same `format` and `prefix`".to_owned());
    }
    if nodes.iter().any(|node| node.overtakes || node.replicas > 0) {
        return Err("`overtake` and `replicas` are for a single server".to_owned());
    }
    if nodes.iter().any(|node| matches!(node.servers, Servers::Cluster(_))) {
        return Err(
            "a cluster is one logical node whose parts know each other; name servers".to_owned()
        );
    }
    if nodes.len().is_multiple_of(2) {
        let (nodes, fewer) = (nodes.len(), nodes.len() - 1);
        tracing::warn!(nodes, "an even number of nodes survives no more failures than {fewer}");
    }
    Ok(nodes)
}

/// What the URL says beside what each node understands is taken out of it; the rest is the nodes'.
fn parse(url: &str) -> std::result::Result<Builder, String> {
    let (scheme, rest) = url.split_once("://").ok_or("a URL begins with redlock://")?;
    let scheme = match scheme {
        "redlock" => "redis",
        "redlocks" => "rediss",
        _ => return Err("a URL begins with redlock:// or redlocks://".to_owned()),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let (own, theirs) = split(query)?;
    let hosts = hosts.split(',').filter(|host| !host.is_empty());
    let named = hosts.map(|host| format!("{scheme}://{login}{host}/{path}?{theirs}"));
    let listed = own.get("nodes").map(String::as_str).unwrap_or_default();
    let listed = listed.split_ascii_whitespace().map(str::to_owned);
    let builder = Builder::of_nodes(named.chain(listed));
    Ok(Builder { settings: settings(&own)?, ..builder })
}

const OWN: [&str; 6] = [
    "nodes",
    "ttl_max_ms",
    "restart_grace_ms",
    "clock_deviation_ms",
    "operation_time_ms",
    "node_limit_ms",
];

/// Our options, decoded, and the text of the others.
fn split(query: &str) -> std::result::Result<(BTreeMap<&str, String>, String), String> {
    let is_own = |pair: &&str| pair.split_once('=').is_some_and(|(name, _)| OWN.contains(&name));
    let (own, theirs): (Vec<_>, Vec<_>) =
        query.split('&').filter(|pair| !pair.is_empty()).partition(is_own);
    let mut options = BTreeMap::new();
    for (name, value) in own.iter().filter_map(|pair| pair.split_once('=')) {
        let value = percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| format!("the option `{name}` is not UTF-8"))?;
        if options.insert(name, value.into_owned()).is_some() {
            return Err(format!("the option `{name}` stands there twice"));
        }
    }
    Ok((options, theirs.join("&")))
}

fn settings(own: &BTreeMap<&str, String>) -> std::result::Result<Settings, String> {
    let length = |name: &str| {
        let number = own.get(name).map(|text| text.parse().map(Duration::from_millis));
        number.transpose().map_err(|_| format!("`{name}` is a number of milliseconds"))
    };
    let default = Settings::default();
    let ttl_max = length("ttl_max_ms")?.map(Ttl::try_from).transpose();
    Ok(Settings {
        ttl_max: ttl_max.map_err(|why| format!("`ttl_max_ms`: {why}"))?.unwrap_or(default.ttl_max),
        restart_grace: length("restart_grace_ms")?,
        clock_deviation: length("clock_deviation_ms")?.unwrap_or(default.clock_deviation),
        operation_time: length("operation_time_ms")?.unwrap_or(default.operation_time),
        node_limit: length("node_limit_ms")?.map(checked_limit).transpose()?,
    })
}

fn checked_limit(limit: Duration) -> std::result::Result<Duration, String> {
    match limit.is_zero() {
        true => Err("`node_limit_ms` is 1 or more: nobody answers in no time".to_owned()),
        false => Ok(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(url: &str) -> std::result::Result<Vec<single::Config>, String> {
        parse(url).and_then(|builder| builder.nodes).and_then(check)
    }

    #[test]
    fn each_host_is_a_node_with_what_is_said_for_all() {
        let nodes = nodes("redlocks://u:p%40@a,b:7,c/3?prefix=x&ca=/f&ttl_max_ms=1000").unwrap();
        let servers: Vec<_> = nodes.iter().map(|node| format!("{:?}", node.servers)).collect();
        assert_eq!(servers, [r#"One(("a", 6379))"#, r#"One(("b", 7))"#, r#"One(("c", 6379))"#]);
        for node in nodes {
            assert_eq!((node.db, node.space.as_str()), (3, "x"));
            assert_eq!(node.login.password.as_deref(), Some("p@"));
            assert!(node.tls.is_some());
        }
    }

    #[test]
    fn nodes_may_be_any_urls() {
        let nodes =
            nodes("redlock://a?nodes=redis%2Bunix%3A%2F%2F%2Fs%20rediss%3A%2F%2Fb").unwrap();
        assert_eq!(nodes.len(), 3);
        assert!(matches!(nodes.get(1).unwrap().servers, Servers::Socket(_)));
    }

    #[test]
    fn every_option_has_its_default() {
        let plain = parse("redlock://a").unwrap().settings;
        assert_eq!(plain.ttl_max, Ttl::secs(60).unwrap());
        assert_eq!(plain.restart_grace(), Duration::from_secs(60));
        assert_eq!(plain.validity_min(), Duration::from_millis(20));
        assert_eq!(plain.node_limit(Ttl::secs(30).unwrap()), Duration::from_millis(1_500));
        assert_eq!(plain.node_limit(Ttl::MIN), NODE_LIMIT_MIN);
        let set = parse(
            "redlock://a?ttl_max_ms=5000&restart_grace_ms=0&clock_deviation_ms=1&operation_time_ms=7&node_limit_ms=9",
        );
        let set = set.unwrap().settings;
        assert_eq!(
            (set.restart_grace(), set.validity_min()),
            (Duration::ZERO, Duration::from_millis(9))
        );
        assert_eq!(set.node_limit(Ttl::MAX), Duration::from_millis(9));
        assert_eq!(
            parse("redlock://a?ttl_max_ms=5000").unwrap().settings.restart_grace().as_secs(),
            5
        );
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        let cases = [
            ("redis://a", "redlock://"),
            ("redlock://", "no nodes"),
            ("redlock://u:secret@", "no nodes"),
            ("redlock://a,b:x,c", "host:port"),
            ("redlock://a?ttl_max_ms=1", "ttl_max_ms"),
            ("redlock://a?restart_grace_ms=soon", "milliseconds"),
            ("redlock://a?node_limit_ms=0", "1 or more"),
            ("redlock://a?nodes=redis%2Bcluster%3A%2F%2Fb", "cluster"),
            ("redlock://a?replicas=1", "single server"),
            ("redlock://a?overtake=yes", "single server"),
            ("redlock://a?nodes=redis%3A%2F%2Fb%3Fprefix%3Dy", "same"),
            ("redlock://a?grace=1", "no option `grace`"),
            ("redlock://a?node_limit_ms=1&node_limit_ms=2", "twice"),
        ];
        for (url, wanted) in cases {
            let why = nodes(url).unwrap_err();
            assert!(why.contains(wanted), "{url}: {why}");
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
