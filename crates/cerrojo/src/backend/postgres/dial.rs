//! Connections to the server, and everything that is done with one: within a time limit, or it is given up.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use tokio_postgres::{
    AsyncMessage, Client, Connection, Row, Socket,
    config::SslMode,
    error::SqlState,
    tls::MakeTlsConnect,
    types::{ToSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    config::Config,
    error::PgError,
    greeting::{self, About},
    tls::Mode,
};
use crate::clock::{self, Instant};

type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// A parameter with its type, so that no statement has to be prepared.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// One connection. It moves only while somebody waits for something here: there is no task of its own behind it.
pub(super) struct Wire {
    client: Client,
    connection: Connection<Socket, Stream>,
    ear: Ear,
}

/// Hears what the server says of its own accord.
pub(super) type Ear = Box<dyn FnMut(AsyncMessage) + Send>;

impl Wire {
    /// A connection that is there within the limit, or never.
    pub(super) async fn dial(config: &Config) -> Result<Self, PgError> {
        let tls = config.tls.connector()?;
        let servers = config.servers();
        let hosts = u32::try_from(servers.len()).unwrap_or(u32::MAX);
        let limit = config.dial_limit() / hosts.max(1);
        let mut failure = PgError::DialTooSlow(limit);
        for server in servers {
            match clock::within(limit, Self::connect(&server, config.tls.mode, &tls)).await {
                Ok(Ok(wire)) => return Ok(wire),
                Ok(Err(error)) => failure = error,
                Err(clock::Elapsed) => failure = PgError::DialTooSlow(limit),
            }
        }
        Err(failure)
    }

    /// The same, to a store of locks: says which.
    pub(super) async fn dial_store(config: &Config) -> Result<(Self, About), PgError> {
        let mut wire = Self::dial(config).await?;
        let end = Instant::now() + config.dial_limit();
        let about = wire.drive(end, |client| greeting::greet(client, &config.names)).await?;
        Ok((wire, about))
    }

    async fn connect(
        server: &tokio_postgres::Config,
        mode: Mode,
        tls: &MakeRustlsConnect,
    ) -> Result<Self, PgError> {
        let connected = match server.connect(tls.clone()).await {
            Err(error) if mode == Mode::Allow && wants_tls(&error) => {
                server.clone().ssl_mode(SslMode::Require).connect(tls.clone()).await
            }
            connected => connected,
        };
        let (client, connection) = connected.map_err(PgError::Dial)?;
        Ok(Self { client, connection, ear: Box::new(|_| {}) })
    }

    /// What `work` answers, before `end`. After an error of the connection itself it is of no further use.
    pub(super) async fn drive<'a, T, F>(
        &'a mut self,
        end: Instant,
        work: impl FnOnce(&'a Client) -> F,
    ) -> Result<T, PgError>
    where
        F: Future<Output = Result<T, PgError>>,
    {
        let start = Instant::now();
        let mut work = pin!(work(&self.client));
        let both = poll_fn(|cx| {
            // First what has arrived, then whoever waits for it, then what it sends.
            let cut = poll_connection(&mut self.connection, cx, &mut self.ear);
            if let Poll::Ready(answer) = work.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            if let Poll::Ready(error) = cut {
                return Poll::Ready(Err(error));
            }
            match poll_connection(&mut self.connection, cx, &mut self.ear) {
                Poll::Ready(error) => match work.as_mut().poll(cx) {
                    Poll::Ready(answer) => Poll::Ready(answer),
                    Poll::Pending => Poll::Ready(Err(error)),
                },
                Poll::Pending => Poll::Pending,
            }
        });
        clock::until(end, both).await.unwrap_or(Err(PgError::NoAnswer(end.since(start))))
    }

    /// Rows, in one round trip and without a named statement.
    pub(super) async fn query(
        &mut self,
        end: Instant,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, PgError> {
        self.drive(end, |client| async move {
            client.query_typed(statement, parameters).await.map_err(PgError::Call)
        })
        .await
    }

    /// Several statements without answers.
    pub(super) async fn run(&mut self, end: Instant, statements: &str) -> Result<(), PgError> {
        self.drive(end, |client| async move {
            client.batch_execute(statements).await.map_err(PgError::Call)
        })
        .await
    }

    /// From now on this hears it.
    pub(super) fn hear_with(&mut self, ear: Ear) {
        self.ear = ear;
    }

    /// Hears until the connection is cut. May be dropped at any time.
    pub(super) async fn hear(&mut self) -> PgError {
        poll_fn(|cx| poll_connection(&mut self.connection, cx, &mut self.ear)).await
    }

    /// Says good-bye, so that the server's log has no complaint.
    pub(super) async fn close(self) {
        let Self { client, mut connection, mut ear } = self;
        drop(client);
        let closed = poll_fn(|cx| poll_connection(&mut connection, cx, &mut ear));
        drop(clock::within(Duration::from_secs(1), closed).await);
    }
}

/// Ready when the connection is cut.
fn poll_connection(
    connection: &mut Connection<Socket, Stream>,
    cx: &mut std::task::Context<'_>,
    ear: &mut Ear,
) -> Poll<PgError> {
    loop {
        match connection.poll_message(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(message))) => ear(message),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(PgError::Call(error)),
            Poll::Ready(None) => return Poll::Ready(PgError::Closed),
        }
    }
}

/// Whether the server lets nobody in without.
fn wants_tls(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}
