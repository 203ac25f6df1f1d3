//! The server that trials share, those that they have for themselves, and how each gets a store of its own there.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use cerrojo_testbed::{PostgresBuilder, PostgresServer, Shared};
use serde_json::Value;

use crate::world::World;

/// May make a schema, and so a store.
const OWNER: &str = "owner";
/// May do what `cerrojo store init --grant` lets it, and nothing else.
pub(crate) const CLIENT: &str = "client";
/// Has no rights at all.
pub(crate) const STRANGER: &str = "stranger";

/// What the binary says when the password is another one.
pub(crate) const WRONG_PASSWORD: &str = "password or pg_hba.conf is wrong";

/// The one that is shared; it is started by whoever asks first.
#[derive(Default)]
pub(crate) struct Servers(Shared<PostgresServer>);

/// A schema on a server, and a folder in which the store there is the client's.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) schema: String,
    pub(crate) world: World,
}

impl Servers {
    /// A place for a store on the shared server.
    pub(crate) fn bare(&self) -> Site {
        Site::on(self.0.get_or_start(|| Ok(start(&builder()))).unwrap())
    }

    /// The same with the tables there.
    pub(crate) fn store(&self) -> Site {
        self.bare().with_tables()
    }
}

impl Site {
    fn on(server: Arc<PostgresServer>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let schema = format!("trial_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let world = World::on(url(&server, CLIENT, &schema));
        Self { server, schema, world }
    }

    /// On a server of its own, which may be broken.
    pub(crate) fn alone() -> Self {
        Self::on(Arc::new(start(&builder()))).with_tables()
    }

    fn with_tables(self) -> Self {
        self.owner().run(&["store", "init", "--grant", CLIENT]).assert_code(0);
        self
    }

    pub(crate) fn password(&self) -> &str {
        self.server.password()
    }

    /// How many wait.
    pub(crate) fn in_line(&self) -> String {
        self.sql("SELECT count(*) FROM SCHEMA.lock_waiter")
    }

    /// The same store for another role.
    pub(crate) fn url(&self, role: &str) -> String {
        url(&self.server, role, &self.schema)
    }

    /// The store for who may make it.
    pub(crate) fn owner(&self) -> World {
        World::on(self.url(OWNER))
    }

    /// What the server answers to SQL in which `SCHEMA` is ours.
    pub(crate) fn sql(&self, text: &str) -> String {
        let answer = self.server.superuser_sql(&text.replace("SCHEMA", &self.schema)).unwrap();
        answer.trim().to_owned()
    }
}

pub(crate) fn builder() -> PostgresBuilder {
    PostgresServer::builder().fast().option("max_connections", "200")
}

fn start(builder: &PostgresBuilder) -> PostgresServer {
    let server = builder.start().unwrap();
    for role in [OWNER, CLIENT, STRANGER] {
        server.create_role(role, "").unwrap();
    }
    server.superuser_sql(&format!("GRANT CREATE ON DATABASE app TO {OWNER}")).unwrap();
    server
}

/// With time for a busy machine.
fn url(server: &PostgresServer, role: &str, schema: &str) -> String {
    format!("{}?schema={schema}&call_limit_ms=10000", server.url(role, "app"))
}

/// There is one.
pub(crate) fn check_token(answer: &Value) {
    assert!(answer["token"].as_str().is_some_and(|token| token.parse::<u64>().is_ok()), "{answer}");
}
