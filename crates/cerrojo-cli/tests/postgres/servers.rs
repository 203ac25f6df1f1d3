//! The server that trials share, those that they have for themselves, and how each gets a store of its own there.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use cerrojo_testbed::{PostgresBuilder, PostgresServer};

use crate::world::World;

/// May make a schema, and so a store.
const OWNER: &str = "owner";
/// May do what `cerrojo store init --grant` lets it, and nothing else.
pub(crate) const CLIENT: &str = "client";
/// Has no rights at all.
pub(crate) const STRANGER: &str = "stranger";

/// The one that is shared; it is started by whoever asks first.
#[derive(Default)]
pub(crate) struct Servers(Mutex<Option<Arc<PostgresServer>>>);

/// A schema on a server, and a folder in which the store there is the client's.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) schema: String,
    pub(crate) world: World,
}

impl Servers {
    /// A place for a store on the shared server.
    pub(crate) fn bare(&self) -> Site {
        let mut shared = self.0.lock().unwrap();
        let start = || Arc::new(start(&builder()));
        Site::on(Arc::clone(shared.get_or_insert_with(start)))
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
        let owner = self.url(OWNER);
        self.world.run(&["--store", &owner, "store", "init", "--grant", CLIENT]).assert_code(0);
        self
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
