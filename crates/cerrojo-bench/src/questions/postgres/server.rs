//! The server, and a database of it for each measurement.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use cerrojo::backend::postgres::Postgres;
use cerrojo_bench::peer::LEASE_TABLE;
use cerrojo_testbed::PostgresServer;

use crate::Result;

const USER: &str = "postgres";

/// A private server, started when it is first needed, with PostgreSQL's own defaults where the testbed has others.
#[derive(Default)]
pub(super) struct Server {
    running: RefCell<Option<Rc<PostgresServer>>>,
    databases: Cell<u32>,
}

/// A fresh database; it goes when this is dropped.
pub(super) struct Database {
    server: Rc<PostgresServer>,
    name: String,
}

impl Server {
    /// All that came before is on the disk, so that each measurement starts alike.
    pub(super) fn database(&self) -> Result<Database> {
        let server = self.running()?;
        self.databases.set(self.databases.get() + 1);
        let name = format!("play_{}", self.databases.get());
        server.superuser_sql(&format!("CREATE DATABASE {name} TEMPLATE app; CHECKPOINT;"))?;
        Ok(Database { server, name })
    }

    fn running(&self) -> Result<Rc<PostgresServer>> {
        let mut running = self.running.borrow_mut();
        if let Some(server) = &*running {
            return Ok(Rc::clone(server));
        }
        let server = PostgresServer::builder().option("shared_buffers", "128MB").start()?;
        server.superuser_sql(LEASE_TABLE)?;
        server.superuser_sql(&Postgres::builder(&server.url(USER, "app")).init_sql()?)?;
        Ok(Rc::clone(running.insert(Rc::new(server))))
    }
}

impl Database {
    pub(super) fn url(&self) -> String {
        self.server.url(USER, &self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // One that stays is gone with the server.
        drop(self.server.superuser_sql(&format!("DROP DATABASE {} WITH (FORCE)", self.name)));
    }
}
