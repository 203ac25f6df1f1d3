//! Walking through all keys of a server, or of each master of a cluster.

use std::sync::Arc;

use redis::{Cmd, FromRedisValue, Value};

use super::{config::Address, error::RedisError, link::Link};

/// How many keys the server looks at in one step.
const STEP: u32 = 1_000;

/// The keys that match `pattern`, in no order; those that come or go meanwhile may be missing or there.
pub(in crate::backend) async fn keys(
    link: &Arc<Link>,
    pattern: &str,
) -> Result<Vec<String>, RedisError> {
    let mut keys = Vec::new();
    for node in nodes(link).await? {
        let mut cursor = 0;
        loop {
            let answer = ask(link, node.as_ref(), &step(cursor, pattern)).await?;
            let (next, found): (u64, Vec<Vec<u8>>) = FromRedisValue::from_redis_value(answer)
                .map_err(|error| RedisError::Answer(error.to_string()))?;
            // What is not UTF-8 is no key of a lock.
            keys.extend(found.into_iter().filter_map(|key| String::from_utf8(key).ok()));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
    }
    Ok(keys)
}

fn step(cursor: u64, pattern: &str) -> Cmd {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP).arg("TYPE").arg("string");
    scan
}

async fn ask(link: &Arc<Link>, node: Option<&Address>, command: &Cmd) -> Result<Value, RedisError> {
    match node {
        Some(node) => link.ask_node(node, command).await,
        None => link.ask(command).await,
    }
}

/// The masters of a cluster; elsewhere the one server.
async fn nodes(link: &Arc<Link>) -> Result<Vec<Option<Address>>, RedisError> {
    if !link.is_cluster() {
        return Ok(vec![None]);
    }
    let mut command = redis::cmd("CLUSTER");
    let answer = link.ask(command.arg("NODES")).await?;
    let text: String = FromRedisValue::from_redis_value(answer)
        .map_err(|error| RedisError::Answer(error.to_string()))?;
    Ok(text.lines().filter_map(master).map(Some).collect())
}

/// `ID HOST:PORT@BUS[,NAME] FLAGS ...`
fn master(line: &str) -> Option<Address> {
    let mut words = line.split(' ').skip(1);
    let (address, flags) = (words.next()?, words.next()?);
    let is_master = flags.split(',').any(|flag| flag == "master");
    let (host, port) = address.split_once('@')?.0.rsplit_once(':')?;
    is_master.then_some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_read_from_the_list_of_nodes() {
        let line =
            |flags| format!("07c3 127.0.0.1:30004@31004,host {flags} - 0 0 1 connected 0-5460");
        let address = Some(("127.0.0.1".to_owned(), 30_004));
        assert_eq!(master(&line("myself,master")), address);
        assert_eq!(master(&line("slave")), None);
        assert_eq!(master("nonsense"), None);
    }
}
