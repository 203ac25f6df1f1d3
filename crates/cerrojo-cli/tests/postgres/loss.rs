//! A server that is away for a moment.

use crate::{
    served::{Trials, loss::STAYS},
    servers::{Servers, Site},
};

pub(crate) const TRIALS: Trials =
    &[("a_command_outlives_a_restart_of_the_server", a_server_that_is_restarted)];

/// The lock is on the disk, and renewed again soon enough.
fn a_server_that_is_restarted(_: &Servers) {
    let site = Site::alone();
    let holder = site.world.start_script(&["x", "--ttl", "1m"], STAYS);
    site.world.await_file("ready");
    site.server.kill().unwrap();
    site.server.restart().unwrap();
    site.world.run(&["run", "x", "-n", "--", "true"]).assert_code(75);
    site.world.touch("end");
    holder.finish().assert_code(0);
    site.world.run(&["show", "x"]).assert_code(1);
}
