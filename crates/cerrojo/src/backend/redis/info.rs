//! What a server tells of itself.

use redis::Value;

/// Some lines of INFO.
#[derive(Debug, Default)]
pub(super) struct Info(String);

impl Info {
    pub(super) fn of(answer: &Value) -> Self {
        match answer {
            Value::BulkString(bytes) => Self(String::from_utf8_lossy(bytes).into_owned()),
            Value::VerbatimString { text, .. } => Self(text.clone()),
            _ => Self::default(),
        }
    }

    fn get(&self, field: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
    }

    pub(super) fn is_replica(&self) -> bool {
        self.get("role") == Some("slave")
    }

    /// By which policy it takes away what is still in use, if it does.
    pub(super) fn evicts(&self) -> Option<&str> {
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
}
