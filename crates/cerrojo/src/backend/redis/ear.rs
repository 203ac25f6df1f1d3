//! How what the server pushes reaches the waiters of this process.

use std::sync::Arc;

use redis::{PushInfo, PushKind, Value};

use super::dial::Ear;
use crate::line::Waiters;

/// What hears the server for them.
pub(in crate::backend) fn ear(waiters: &Arc<Waiters>) -> Ear {
    let waiters = Arc::downgrade(waiters);
    Arc::new(move |info| {
        if let Some(waiters) = waiters.upgrade() {
            hear(&waiters, &info);
        }
    })
}

fn hear(waiters: &Waiters, info: &PushInfo) {
    match (&info.kind, info.data.as_slice()) {
        // After a cut nobody knows what was missed.
        (PushKind::Disconnection, _) => waiters.wake_all(),
        (PushKind::Message, [_channel, Value::BulkString(message)]) => waiters.hear(message),
        _ => {}
    }
}
