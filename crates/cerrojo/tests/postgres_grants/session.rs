//! One connection without anything of ours, by which a trial holds rows, calls the store's functions and looks at its tables.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::site::{Outcome, client, soon, until};

/// A connection, for one table: in its texts `"lock"` and whatever begins with `"lock_` are that table's.
#[derive(Clone)]
pub(crate) struct Session {
    client: Arc<Client>,
    table: String,
    pid: i32,
}

/// Nothing here waits for a row.
const PATIENCE_MS: &str = "0";

/// One of the owners of a trial, who are known by small numbers.
pub(crate) type Owner = u32;

/// What is asked of one name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) name: &'static str,
    pub(crate) owner: Owner,
    pub(crate) ttl_ms: u32,
    /// Whether it takes a place in the line.
    pub(crate) waits: bool,
}

/// A call that may be held up by somebody's transaction.
pub(crate) struct Call {
    pid: i32,
    answer: JoinHandle<Outcome<String>>,
}

impl Call {
    /// Waits until it has been answered, or waits for a lock in the server.
    pub(crate) async fn settle(&self, observer: &Session) -> Outcome {
        let look = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = {} AND wait_event_type = 'Lock'",
            self.pid
        );
        until("a call that is answered or held up", async || {
            Ok(self.answer.is_finished() || observer.ask(&look).await? == "1")
        })
        .await
    }

    pub(crate) async fn answer(self) -> Outcome<String> {
        soon("a call's answer", self.answer).await??
    }
}

impl Session {
    pub(crate) async fn open(url: &str, table: &str) -> Outcome<Self> {
        let client = Arc::new(client(url).await?);
        let mut session = Self { client, table: table.to_owned(), pid: 0 };
        session.pid = session.ask("SELECT pg_backend_pid()").await?.parse()?;
        Ok(session)
    }

    /// Runs statements; their rows, one a line, with `|` between columns.
    pub(crate) async fn ask(&self, text: &str) -> Outcome<String> {
        let text = text.replace("\"lock", &format!("\"{}", self.table));
        let said = soon(&text, self.client.simple_query(&text)).await?;
        let said = said.map_err(|error| match error.as_db_error() {
            Some(said) => format!("{}: {}", said.code().code(), said.message()),
            None => error.to_string(),
        })?;
        let rows = said.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let line = |row: &tokio_postgres::SimpleQueryRow| {
            let columns = (0..row.len()).map(|at| row.get(at).unwrap_or_default());
            columns.collect::<Vec<_>>().join("|")
        };
        Ok(rows.map(line).collect::<Vec<_>>().join("\n"))
    }

    /// The same as a number.
    pub(crate) async fn number(&self, text: &str) -> Outcome<i64> {
        Ok(self.ask(text).await?.parse()?)
    }

    /// The same, in a task of its own.
    pub(crate) fn call(&self, text: &str) -> Call {
        let (session, text) = (self.clone(), text.to_owned());
        let pid = self.pid;
        Call { pid, answer: tokio::spawn(async move { session.ask(&text).await }) }
    }

    /// What the store answers, asked again while it says that the row is somebody's.
    pub(crate) async fn until_not_busy(&self, text: &str) -> Outcome<String> {
        let end = cerrojo::Instant::now() + crate::site::LONG;
        loop {
            match self.ask(text).await? {
                answer if answer == "busy" && cerrojo::Instant::now() < end => {}
                answer => return Ok(answer),
            }
        }
    }

    /// Who has a name: the owner's number, nothing where nobody has it.
    pub(crate) async fn owner(&self, name: &str) -> Outcome<Option<Owner>> {
        let look = format!(
            "SELECT right(owner::text, 12) FROM \"cerrojo\".\"lock\"
             WHERE name = '{name}' AND expires_at > clock_timestamp()"
        );
        match self.ask(&look).await? {
            none if none.is_empty() => Ok(None),
            digits => Ok(Some(digits.parse()?)),
        }
    }

    /// The token of the latest grant.
    pub(crate) async fn token(&self, name: &str) -> Outcome<i64> {
        self.number(&format!("SELECT token FROM \"cerrojo\".\"lock\" WHERE name = '{name}'")).await
    }

    /// How many stand in the line.
    pub(crate) async fn waiting(&self, name: &str) -> Outcome<i64> {
        let look = "SELECT count(*) FROM \"cerrojo\".\"lock_waiter\" WHERE name =";
        self.number(&format!("{look} '{name}'")).await
    }
}

/// One line for each: the outcome, in the order of the requests.
pub(crate) fn acquire(asks: &[Ask]) -> String {
    let channel = |ask: &Ask| if ask.waits { "''" } else { "NULL" };
    let columns = [
        array(asks, "text", |ask| format!("'{}'", ask.name)),
        array(asks, "uuid", |ask| uuid(ask.owner)),
        array(asks, "bigint", |ask| ask.ttl_ms.to_string()),
        array(asks, "text", |_| "''".to_owned()),
        array(asks, "text", |ask| channel(ask).to_owned()),
        array(asks, "bigint", |_| "1".to_owned()),
        "'\"cerrojo\".\"lock\"'::regclass::oid::bigint".to_owned(),
        i64::MAX.to_string(),
        PATIENCE_MS.to_owned(),
    ];
    outcomes("acquire", &columns)
}

pub(crate) fn renew(asks: &[Ask]) -> String {
    let columns = [
        array(asks, "text", |ask| format!("'{}'", ask.name)),
        array(asks, "uuid", |ask| uuid(ask.owner)),
        array(asks, "bigint", |ask| ask.ttl_ms.to_string()),
        PATIENCE_MS.to_owned(),
    ];
    outcomes("renew", &columns)
}

pub(crate) fn release(asks: &[Ask]) -> String {
    let columns = [
        array(asks, "text", |ask| format!("'{}'", ask.name)),
        array(asks, "uuid", |ask| uuid(ask.owner)),
        PATIENCE_MS.to_owned(),
    ];
    outcomes("release", &columns)
}

pub(crate) fn break_now(name: &str) -> String {
    format!("SELECT outcome FROM \"cerrojo\".\"lock_break\"('{name}', true)")
}

/// Also of rows that have just become free.
pub(crate) fn prune() -> String {
    "SELECT removed FROM \"cerrojo\".\"lock_prune\"('', 1000, 0)".to_owned()
}

/// A transaction that takes the name's row, as a guarded one does.
pub(crate) fn key_share(name: &str) -> String {
    format!("BEGIN; SELECT FROM \"cerrojo\".\"lock\" WHERE name = '{name}' FOR KEY SHARE")
}

pub(crate) fn uuid(owner: Owner) -> String {
    format!("'00000000-0000-0000-0000-{owner:012}'")
}

fn array(asks: &[Ask], kind: &str, value: impl Fn(&Ask) -> String) -> String {
    let values: Vec<_> = asks.iter().map(value).collect();
    format!("ARRAY[{}]::{kind}[]", values.join(", "))
}

fn outcomes(function: &str, columns: &[String]) -> String {
    format!(
        "SELECT r.outcome FROM \"cerrojo\".\"lock_{function}\"({}) a,
         unnest(a.requests, a.outcomes) AS r (request, outcome) ORDER BY r.request",
        columns.join(", ")
    )
}
