//! ZooKeeper as a Java program, small and quick to start.

use std::{fs::File, path::Path, process::Command};

const CLASS: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// Where Debian has Java's libraries.
const LIBRARIES: &str = "/usr/share/java";

/// The first one names most of what it needs, but neither a way to log nor all of what netty needs for TLS.
const JARS: [&str; 5] = [
    "zookeeper",
    "slf4j-simple",
    "netty-codec",
    "netty-resolver",
    "netty-transport-native-unix-common",
];

const FLAGS: [&str; 8] = [
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    // A file in /tmp that would outlive a server that is killed.
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.io.tmpdir=.",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
];

/// A server with this configuration, which writes all its files into `folder`.
pub(super) fn command(folder: &Path, configuration: &Path, log: File) -> Command {
    let jars = JARS.map(|name| format!("{LIBRARIES}/{name}.jar")).join(":");
    let mut command = Command::new("java");
    command.args(FLAGS).args(["-cp", &jars, CLASS]).arg(configuration);
    command.current_dir(folder).stderr(log);
    command
}
