//! Requests that travel together: one statement, one transaction, one commit.

use std::{fmt::Write, time::Duration};

use tokio_postgres::{Row, types::Type};

use super::{
    answer::{self, Answer, write_identity},
    dial::Parameter,
    error::PgError,
    server_clock::ServerClock,
};
use crate::{LockName, OwnerId, Ttl, clock::Instant, holder::Identity, sql::Names};

/// What is asked of one name.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) name: LockName,
    pub(super) owner: OwnerId,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Acquire {
        ttl: Ttl,
        identity: std::sync::Arc<Identity>,
        /// Where a waiter hears, empty where it does not; none for one that does not wait.
        channel: Option<String>,
        asked: Instant,
    },
    Renew {
        ttl: Ttl,
    },
    Release,
}

/// The functions, in the order in which a statement runs them: what lasts least comes first.
const FUNCTIONS: [Function; 3] = [
    Function { name: "acquire", arrays: 6, numbers: 3 },
    Function { name: "renew", arrays: 3, numbers: 1 },
    Function { name: "release", arrays: 2, numbers: 1 },
];

/// How many arguments one takes: arrays first, then the last so many of the batch's numbers.
#[derive(Clone, Copy)]
struct Function {
    name: &'static str,
    arrays: usize,
    numbers: usize,
}

/// The columns of one function's requests.
#[derive(Default)]
struct Columns {
    /// Where each request stands among all.
    places: Vec<usize>,
    names: Vec<String>,
    owners: Vec<String>,
    ttls: Vec<i64>,
    identities: Vec<String>,
    channels: Vec<Option<String>>,
    asked: Vec<i64>,
}

impl Columns {
    fn add(&mut self, place: usize, ask: &Ask) {
        self.places.push(place);
        self.names.push(ask.name.as_str().to_owned());
        self.owners.push(ask.owner.to_hex());
        match &ask.what {
            What::Release => {}
            What::Renew { ttl } => self.ttls.push(millis(*ttl)),
            What::Acquire { ttl, identity, channel, asked } => {
                self.ttls.push(millis(*ttl));
                self.identities.push(write_identity(identity));
                self.channels.push(channel.clone());
                self.asked.push(i64::try_from(asked.as_nanos()).unwrap_or(i64::MAX));
            }
        }
    }

    fn arrays(&self) -> [Parameter<'_>; 6] {
        [
            (&self.names, Type::TEXT_ARRAY),
            (&self.owners, Type::TEXT_ARRAY),
            (&self.ttls, Type::INT8_ARRAY),
            (&self.identities, Type::TEXT_ARRAY),
            (&self.channels, Type::TEXT_ARRAY),
            (&self.asked, Type::INT8_ARRAY),
        ]
    }
}

/// Up to as many requests as a worker takes, each name once.
pub(super) struct Batch {
    columns: [Columns; 3],
    size: usize,
    numbers: [i64; 3],
}

/// What holds for a batch as a whole.
pub(super) struct Terms {
    /// The tables that are to grant.
    pub(super) table: i64,
    /// Until when grants may be made, by the server's clock.
    pub(super) until_us: i64,
    /// How long a request that is alone waits for its row.
    pub(super) patience: Duration,
}

impl Batch {
    pub(super) fn of(asks: &[Ask], terms: &Terms) -> Self {
        let patience_ms = i64::try_from(terms.patience.as_millis()).unwrap_or(0);
        let numbers = [terms.table, terms.until_us, patience_ms];
        let mut batch = Self { columns: Default::default(), size: asks.len(), numbers };
        let mut order: Vec<_> = asks.iter().enumerate().collect();
        // All batches go through names in the same order.
        order.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        let [acquire, renew, release] = &mut batch.columns;
        for (place, ask) in order {
            let columns = match ask.what {
                What::Acquire { .. } => &mut *acquire,
                What::Renew { .. } => &mut *renew,
                What::Release => &mut *release,
            };
            columns.add(place, ask);
        }
        batch
    }

    fn used(&self) -> impl Iterator<Item = (usize, Function, &Columns)> {
        let all = FUNCTIONS.into_iter().zip(&self.columns).enumerate();
        all.filter(|(_, (_, columns))| !columns.places.is_empty()).map(|(at, (f, c))| (at, f, c))
    }

    pub(super) fn statement(&self, names: &Names) -> String {
        let mut text = String::new();
        let mut next = 1;
        for (at, Function { name, arrays, numbers }, _) in self.used() {
            let join = if text.is_empty() { "" } else { " UNION ALL " };
            // Writing to a text does not fail.
            let _ =
                write!(text, "{join}SELECT {at} AS function, * FROM \"cerrojo\".\"lock_{name}\"(");
            for argument in 0..arrays + numbers {
                let comma = if argument == 0 { "" } else { ", " };
                // Owners travel as text.
                let cast = if argument == 1 { "::uuid[]" } else { "" };
                let _ = write!(text, "{comma}${next}{cast}");
                next += 1;
            }
            text.push(')');
        }
        names.fill_in(&text)
    }

    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        let mut parameters = Vec::new();
        for (_, Function { arrays, numbers, .. }, columns) in self.used() {
            parameters.extend(columns.arrays().into_iter().take(arrays));
            let unused = self.numbers.len().saturating_sub(numbers);
            let numbers = self.numbers.iter().skip(unused);
            parameters.extend(numbers.map(|number| -> Parameter<'_> { (number, Type::INT8) }));
        }
        parameters
    }

    /// What the server's clock showed meanwhile.
    pub(super) fn clock(rows: &[Row], read_at: Instant) -> Option<ServerClock> {
        let micros = rows.last()?.try_get("clock_us").ok()?;
        Some(ServerClock { read_at, micros })
    }

    /// One answer for each request, in the order in which they were given.
    pub(super) fn answers(&self, rows: &[Row]) -> Result<Vec<Answer>, PgError> {
        let mut answers = vec![None; self.size];
        for row in rows {
            let function: i32 = row.try_get("function").map_err(PgError::Call)?;
            let columns = usize::try_from(function).ok().and_then(|at| self.columns.get(at));
            for (at, answer) in answer::of_batch(row)? {
                let place = columns.and_then(|columns| columns.places.get(at));
                if let Some(slot) = place.and_then(|place| answers.get_mut(*place)) {
                    *slot = Some(answer);
                }
            }
        }
        let all: Option<Vec<_>> = answers.into_iter().collect();
        all.ok_or_else(|| PgError::Answer("fewer than were asked for".to_owned()))
    }
}

fn millis(ttl: Ttl) -> i64 {
    i64::try_from(ttl.get().as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(name: &str, what: What) -> Ask {
        Ask { name: name.parse().unwrap(), owner: OwnerId::random(), what }
    }

    #[test]
    fn names_are_in_order_and_functions_are_joined() {
        let ttl = Ttl::secs(1).unwrap();
        let asks =
            [ask("c", What::Release), ask("b", What::Renew { ttl }), ask("a", What::Release)];
        let batch = Batch::of(&asks, &Terms { table: 0, until_us: 0, patience: Duration::ZERO });
        assert_eq!(
            batch.statement(&Names::of("lock")),
            "SELECT 1 AS function, * FROM \"cerrojo\".\"lock_renew\"($1, $2::uuid[], $3, $4) UNION ALL \
             SELECT 2 AS function, * FROM \"cerrojo\".\"lock_release\"($5, $6::uuid[], $7)"
        );
        assert_eq!(batch.parameters().len(), 7);
        assert_eq!(batch.columns[2].names, ["a", "c"]);
        assert_eq!(batch.columns[2].places, [2, 0]);
    }
}
