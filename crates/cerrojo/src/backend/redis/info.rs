//! What a server tells of itself.

use std::{collections::BTreeMap, time::Duration};

use redis::{FromRedisValue, Value};

/// Some lines of INFO, and whether all that it acknowledges is on its disk.
#[derive(Debug, Default)]
pub(in crate::backend) struct Info {
    text: String,
    /// None: it was not asked, or does not say.
    syncs: Option<bool>,
}

impl Info {
    pub(in crate::backend) fn of(answer: &Value) -> Self {
        let text = match answer {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::VerbatimString { text, .. } => text.clone(),
            _ => String::new(),
        };
        Self { text, syncs: None }
    }

    /// The same with the answer to CONFIG GET of `appendonly` and `appendfsync`.
    pub(in crate::backend) fn with_settings(self, answer: Value) -> Self {
        let settings: Option<BTreeMap<String, String>> =
            FromRedisValue::from_redis_value(answer).ok();
        let syncs = settings.map(|settings| {
            let is = |name: &str, value| settings.get(name).is_some_and(|is| is == value);
            is("appendonly", "yes") && is("appendfsync", "always")
        });
        Self { syncs, ..self }
    }

    /// Whether it forgets nothing that it has acknowledged.
    pub(in crate::backend) fn syncs(&self) -> bool {
        self.syncs.unwrap_or(false)
    }

    /// Another one after each restart.
    pub(in crate::backend) fn run_id(&self) -> Option<&str> {
        self.get("run_id")
    }

    /// What history it had before the present one; `None` unless it was promoted since it was started.
    pub(in crate::backend) fn former_history(&self) -> Option<&str> {
        self.get("master_replid2").filter(|id| id.contains(|digit| digit != '0'))
    }

    /// At least so long: it is told in whole seconds.
    pub(in crate::backend) fn uptime(&self) -> Option<Duration> {
        let seconds: u64 = self.get("uptime_in_seconds")?.parse().ok()?;
        Some(Duration::from_secs(seconds.saturating_sub(1)))
    }

    /// The server's wall clock.
    pub(in crate::backend) fn time(&self) -> Option<Duration> {
        self.get("server_time_usec")?.parse().ok().map(Duration::from_micros)
    }

    pub(in crate::backend) fn is_shard(&self) -> bool {
        self.get("cluster_enabled") == Some("1")
    }

    fn get(&self, field: &str) -> Option<&str> {
        let mut lines = self.text.lines();
        lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
    }

    pub(in crate::backend) fn is_replica(&self) -> bool {
        self.get("role") == Some("slave")
    }

    /// By which policy it takes away what is still in use, if it does.
    pub(in crate::backend) fn evicts(&self) -> Option<&str> {
        let policy = self.get("maxmemory_policy").filter(|policy| *policy != "noeviction")?;
        (self.get("maxmemory") != Some("0")).then_some(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> Info {
        Info::of(&Value::BulkString(text.as_bytes().to_vec()))
    }

    #[test]
    fn a_replica_and_an_eviction_policy_are_seen() {
        let text =
            "# Memory\r\nmaxmemory:1048576\r\nmaxmemory_policy:allkeys-lru\r\nrole:slave\r\n";
        assert!(info(text).is_replica());
        assert_eq!(info(text).evicts(), Some("allkeys-lru"));
        assert_eq!(info(&text.replace("1048576", "0")).evicts(), None);
        assert_eq!(info(&text.replace("allkeys-lru", "noeviction")).evicts(), None);
        assert!(!info("").is_replica());
    }

    #[test]
    fn who_it_is_and_for_how_long_is_read() {
        let zeros = "0".repeat(40);
        let text = format!(
            "run_id:abc\r\nuptime_in_seconds:7\r\ncluster_enabled:1\r\nmaster_replid2:{zeros}\r\n"
        );
        assert_eq!(info(&text).run_id(), Some("abc"));
        assert_eq!(info("server_time_usec:1500\r\n").time(), Some(Duration::from_micros(1_500)));
        assert_eq!(info(&text).uptime(), Some(Duration::from_secs(6)));
        assert!(info(&text).is_shard());
        assert_eq!(info(&text).former_history(), None);
        assert_eq!(info(&text.replace(&zeros, "0f")).former_history(), Some("0f"));
    }

    #[test]
    fn only_appendonly_with_always_syncs() {
        let settings = |pairs: &[(&str, &str)]| {
            let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
            let pairs = pairs.iter().map(|(name, value)| (text(name), text(value)));
            info("").with_settings(Value::Map(pairs.collect())).syncs()
        };
        assert!(settings(&[("appendonly", "yes"), ("appendfsync", "always")]));
        assert!(!settings(&[("appendonly", "yes"), ("appendfsync", "everysec")]));
        assert!(!settings(&[("appendonly", "no"), ("appendfsync", "always")]));
        assert!(!settings(&[]));
        assert!(!info("").with_settings(Value::Nil).syncs());
        assert!(!info("").syncs());
    }
}
