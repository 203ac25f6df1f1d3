//! How a locker behaves.

use std::time::Duration;

use crate::{Drift, Error, ErrorKind, Identity, LockName, Result, watched::Labels};

/// How a locker behaves; the defaults suit most.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Options {
    /// What is taken off the TTL for clocks of different rates. Default: 1 % plus 2 ms.
    pub drift: Drift,
    /// The grid on which renewals fall together, 0 to 1 s. Default: 20 ms. For short TTLs a twelfth of the TTL.
    pub tick: Duration,
    /// What others see of this process. Default: its pid, and the host name on Linux.
    pub identity: Identity,
    /// How long acquire goes on asking a store that answers only errors, when it waits without a deadline.
    /// Default: 30 s. With a deadline it is the deadline.
    pub outage_patience: Duration,
    /// How many acquisitions may be under way at once; one more is [`ErrorKind::Unavailable`]. Default: 100,000.
    pub waiters_max: usize,
    /// Whether metrics carry the lock name. Default: no, since names may be many.
    pub label_lock_name: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            drift: Drift::default(),
            tick: Duration::from_millis(20),
            identity: this_process(),
            outage_patience: Duration::from_secs(30),
            waiters_max: 100_000,
            label_lock_name: false,
        }
    }
}

impl Options {
    pub(crate) fn labels(&self, backend: &'static str, name: &LockName) -> Labels {
        Labels::new(backend, self.label_lock_name.then_some(name))
    }

    /// What is shown of a holder is kept by the store, so it has a bound.
    pub(crate) fn check(&self) -> Result<()> {
        let (max, label) = (Identity::LABEL_MAX_BYTES, self.identity.label.as_deref());
        match label.unwrap_or_default().len() {
            0..=Identity::LABEL_MAX_BYTES => Ok(()),
            bytes => {
                let message = format!("a label has at most {max} bytes, this one has {bytes}");
                Err(Error::new(ErrorKind::Invalid, message))
            }
        }
    }
}

fn this_process() -> Identity {
    Identity { host: host_name(), pid: Some(std::process::id()), label: None }
}

#[cfg(target_os = "linux")]
fn host_name() -> Option<String> {
    Some(rustix::system::uname().nodename().to_string_lossy().into_owned())
}

#[cfg(not(target_os = "linux"))]
fn host_name() -> Option<String> {
    None
}
