//! Servers to measure, and what they and the kernel say of the work that was done.

use std::process::{Command, Stdio};

use cerrojo_bench::fleet::Fleet;
use cerrojo_testbed::RedisServer;

use crate::{Result, process};

/// The commands with which we ask; they are not the contestants'.
const OURS: [&str; 3] = ["cmdstat_info:", "cmdstat_config|resetstat:", "cmdstat_auth:"];

/// What a server did since its counters were set to zero.
pub(super) struct Work {
    /// Commands run, those inside of scripts included.
    pub(super) commands: f64,
    /// How often it read something from a client: with one request at a time, that is round trips.
    pub(super) reads: f64,
}

/// Fresh ones, with nothing else to do.
pub(in super::super) fn start(count: usize) -> Result<Vec<RedisServer>> {
    Ok((0..count).map(|_| RedisServer::start()).collect::<Result<_, _>>()?)
}

pub(in super::super) fn ports(servers: &[RedisServer]) -> Vec<u16> {
    servers.iter().map(RedisServer::port).collect()
}

pub(super) fn reset(servers: &[RedisServer]) -> Result<()> {
    for server in servers {
        server.command(&["CONFIG", "RESETSTAT"])?;
    }
    Ok(())
}

/// Of all together.
pub(super) fn work(servers: &[RedisServer]) -> Result<Work> {
    let mut sum = Work { commands: 0.0, reads: 0.0 };
    for server in servers {
        let Work { commands, reads } = work_of(server)?;
        sum = Work { commands: sum.commands + commands, reads: sum.reads + reads };
    }
    Ok(sum)
}

fn work_of(server: &RedisServer) -> Result<Work> {
    let all = server.command(&["INFO", "all"])?.to_string();
    let reads = all.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
    let reads: f64 = reads.ok_or("no total_reads_processed in INFO")?.trim().parse()?;
    Ok(Work { commands: all.lines().filter_map(calls).sum(), reads })
}

/// `cmdstat_get:calls=7,usec=...`, unless it is our own command.
fn calls(line: &str) -> Option<f64> {
    let is_ours = OURS.iter().any(|ours| line.starts_with(ours));
    let rest = line.strip_prefix("cmdstat_").filter(|_| !is_ours)?;
    let (_, counts) = rest.split_once(":calls=")?;
    counts.split(',').next()?.parse().ok()
}

pub(super) fn pid(server: &RedisServer) -> Result<u32> {
    Ok(server.id().ok_or("the server does not run")?)
}

/// Seconds of CPU of the server, and of all processes of a fleet.
pub(super) fn cpu_seconds(server: &RedisServer, fleet: &Fleet) -> Result<[f64; 2]> {
    let all = fleet.pids().into_iter().map(process::cpu_seconds);
    Ok([process::cpu_seconds(pid(server)?)?, all.sum::<Result<f64>>()?])
}

/// Clients and servers share one core, so that no time is spent on waking another.
pub(in super::super) fn pin(servers: &[RedisServer], fleet: &Fleet) -> Result<()> {
    let servers = servers.iter().map(pid).collect::<Result<Vec<_>>>()?;
    let pids = fleet.pids().into_iter().chain(servers);
    pids.map(|pid| pid.to_string()).try_for_each(|pid| {
        let mut taskset = Command::new("taskset");
        taskset.args(["--all-tasks", "--cpu-list", "--pid", "0", &pid]).stdout(Stdio::null());
        let done = taskset.status()?;
        if done.success() { Ok(()) } else { Err(format!("taskset: {done}").into()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_contestants_commands_count() {
        assert_eq!(calls("cmdstat_evalsha:calls=12,usec=40,usec_per_call=3.33"), Some(12.0));
        assert_eq!(calls("cmdstat_info:calls=3,usec=40"), None);
        assert_eq!(calls("total_reads_processed:7"), None);
    }
}
