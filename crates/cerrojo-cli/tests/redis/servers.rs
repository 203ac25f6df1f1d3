//! A server for each trial.

use cerrojo_testbed::RedisServer;
use serde_json::Value;

use crate::world::World;

/// The password of every server here.
pub(crate) const PASSWORD: &str = "hush-hush";
/// What the binary says when it is another one.
pub(crate) const WRONG_PASSWORD: &str = "user or password is wrong";

/// Nothing is shared.
#[derive(Default)]
pub(crate) struct Servers;

/// A server, and a folder in which its URL is the store.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) server: RedisServer,
}

impl Servers {
    pub(crate) fn store(&self) -> Site {
        Site::alone()
    }
}

impl Site {
    pub(crate) fn alone() -> Self {
        let server = RedisServer::builder().password(PASSWORD).start().unwrap();
        let world = World::on(format!("redis://:{PASSWORD}@{}", server.address()));
        Self { world, server }
    }

    pub(crate) fn password(&self) -> &str {
        PASSWORD
    }

    /// How many wait for `x`.
    pub(crate) fn in_line(&self) -> String {
        self.server.command(&["ZCARD", "cerrojo:{x}:line"]).unwrap().to_string()
    }
}

/// There is none.
pub(crate) fn check_token(answer: &Value) {
    assert_eq!((&answer["token"], &answer["store_id"]), (&Value::Null, &Value::Null));
}
