//! Both shims do to real programs what they say.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use cerrojo_testbed::{ClockSkew, PowerLoss};

fn sh(script: &str, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(folder);
    command
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn read(folder: &Path, name: &str) -> Option<String> {
    fs::read_to_string(folder.join(name)).ok()
}

#[test]
fn a_power_loss_keeps_what_was_synced_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (power, at) = (PowerLoss::new(folder.path()).unwrap(), folder.path());
    let synced = "printf synced | dd of=a conv=fsync status=none; printf -- +lost >> a;
        mkdir sub; printf below | dd of=sub/b conv=fdatasync status=none;
        printf 12345678 | dd of=c conv=fsync status=none; printf XX | dd of=c bs=1 seek=3 conv=notrunc status=none;
        printf never > d; rm sub/b";
    run(power.apply(&mut sh(synced, at)));
    assert_eq!(read(at, "c").as_deref(), Some("123XX678"));
    power.restore().unwrap();
    assert_eq!(read(at, "a").as_deref(), Some("synced"));
    assert_eq!(read(at, "c").as_deref(), Some("12345678"), "a write in place came back");
    assert_eq!(read(at, "sub/b").as_deref(), Some("below"), "an unlink that was not synced");
    assert_eq!(read(at, "d"), None, "never synced");
}

#[test]
fn a_new_file_is_there_and_empty_once_its_folder_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let (power, at) = (PowerLoss::new(folder.path()).unwrap(), folder.path());
    let script =
        "printf lost > a; printf x | dd of=b conv=fsync status=none; sync .; printf lost > c";
    run(power.apply(&mut sh(script, at)));
    power.restore().unwrap();
    assert_eq!((read(at, "a").as_deref(), read(at, "b").as_deref()), (Some(""), Some("x")));
    assert_eq!(read(at, "c"), None);
}

#[test]
fn an_unlink_lasts_once_the_folder_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let (power, at) = (PowerLoss::new(folder.path()).unwrap(), folder.path());
    let script =
        "for f in a b; do printf x | dd of=$f conv=fsync status=none; done; rm a; sync .; rm b";
    run(power.apply(&mut sh(script, at)));
    power.restore().unwrap();
    assert_eq!((read(at, "a"), read(at, "b").as_deref()), (None, Some("x")));
}

#[test]
fn a_rename_lasts_once_the_folder_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let (power, at) = (PowerLoss::new(folder.path()).unwrap(), folder.path());
    let write = "write() { printf $2 | dd of=$1 conv=fsync status=none; }; ";
    let script = "for f in a b; do write $f old; write $f.new new; mv $f.new $f; [ $f = b ] || sync .; done;
        printf never > c.new; mv c.new c; write d.new new; mv d.new d; mv d e; sync $PWD; write f.new new; mv f.new f";
    run(power.apply(&mut sh(&format!("{write}{script}"), at)));
    run(power.apply(&mut sh(&format!("{write} write b.new newer; mv b.new b"), at)));
    power.restore().unwrap();
    let read = |name| read(at, name);
    assert_eq!(read("a").as_deref(), Some("new"));
    assert_eq!(read("b").as_deref(), Some("new"), "the second rename was not synced");
    assert_eq!(read("b.new").as_deref(), Some("newer"));
    assert_eq!(read("c").as_deref(), Some(""), "renamed before it was synced");
    assert_eq!((read("d"), read("e").as_deref()), (None, Some("new")));
    assert_eq!((read("f"), read("f.new").as_deref()), (None, Some("new")));
    run(power.apply(&mut sh("sync .", at)));
    power.restore().unwrap();
    assert_eq!(read("b").as_deref(), Some("new"), "a lost rename does not come back");
}

#[test]
fn a_rename_between_folders_lasts_at_each_end_once_that_folder_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let (power, at) = (PowerLoss::new(folder.path()).unwrap(), folder.path());
    let script =
        "mkdir sub; for f in a b c d; do printf $f | dd of=$f conv=fsync status=none; done;
        mv a sub/a; mv b sub/b; sync sub; sync .; mv c sub/c; sync sub; mv d sub/d; mv sub/b sub/e";
    run(power.apply(&mut sh(script, at)));
    power.restore().unwrap();
    let read = |name| read(at, name);
    assert_eq!((read("a"), read("sub/a").as_deref()), (None, Some("a")));
    assert_eq!((read("sub/e"), read("sub/b").as_deref()), (None, Some("b")));
    assert_eq!((read("c").as_deref(), read("sub/c").as_deref()), (Some("c"), Some("c")));
    assert_eq!((read("d").as_deref(), read("sub/d")), (Some("d"), None));
}

#[test]
fn a_folder_that_was_emptied_stays_empty_once_its_copies_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let (power, at) = (PowerLoss::new(folder.path()).unwrap(), folder.path());
    run(power.apply(&mut sh("printf x | dd of=a conv=fsync status=none; mv a b", at)));
    fs::remove_file(at.join("b")).unwrap();
    power.forget().unwrap();
    power.restore().unwrap();
    assert_eq!((read(at, "a"), read(at, "b")), (None, None));
}

#[test]
fn both_shims_can_be_preloaded_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (power, at) = (PowerLoss::new(folder.path()).unwrap(), folder.path());
    let skew = ClockSkew::new().unwrap();
    skew.set_nanos(-1_577_880_000_000_000_000).unwrap();
    let mut both = sh("date +%Y | dd of=a conv=fsync status=none; printf never > b", at);
    run(skew.apply(power.apply(&mut both)));
    power.restore().unwrap();
    let year: i32 = read(at, "a").unwrap().trim().parse().unwrap();
    assert!(year < 2_000 && read(at, "b").is_none(), "{year}");
}

#[test]
fn what_was_written_back_survives_this_loss_and_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (power, at) = (PowerLoss::new(folder.path()).unwrap(), folder.path());
    run(power.apply(&mut sh("printf one > lucky; printf two > unlucky", at)));
    power.restore_except(|name| name == Path::new("lucky")).unwrap();
    assert_eq!((read(at, "lucky").as_deref(), read(at, "unlucky")), (Some("one"), None));
    run(power.apply(&mut sh("printf more >> lucky", at)));
    power.restore().unwrap();
    assert_eq!(read(at, "lucky").as_deref(), Some("one"));
}

#[test]
fn files_outside_of_the_folder_are_left_alone() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let power = PowerLoss::new(folder.path()).unwrap();
    let script = "printf x | dd of=a conv=fsync status=none; printf -- +y >> a";
    run(power.apply(&mut sh(script, other.path())));
    power.restore().unwrap();
    assert_eq!(read(other.path(), "a").as_deref(), Some("x+y"));
}

/// The wall clock, in whole seconds, as a program under the shim reads it.
fn wall(skew: &ClockSkew) -> i64 {
    let output = run(skew.apply(Command::new("date").arg("+%s")));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn the_wall_clock_moves_both_ways() {
    let skew = ClockSkew::new().unwrap();
    let now = wall(&skew);
    skew.set_nanos(7_200_500_000_000).unwrap();
    assert!((7_200..7_260).contains(&(wall(&skew) - now)));
    skew.set_nanos(-86_400_900_000_000).unwrap();
    assert!((-86_401..-86_340).contains(&(wall(&skew) - now)));
}

const CLOCKS: &str = r"
#include <stdio.h>
#include <time.h>
int main(void) {
    char line[16];
    setvbuf(stdout, 0, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        struct timespec wall, mono, boot;
        clock_gettime(CLOCK_REALTIME, &wall);
        clock_gettime(CLOCK_MONOTONIC, &mono);
        clock_gettime(CLOCK_BOOTTIME, &boot);
        printf(`%ld %ld %ld\n`, (long)wall.tv_sec, (long)mono.tv_sec, (long)boot.tv_sec);
    }
}";

#[test]
fn a_running_program_sees_the_wall_clock_jump_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("clocks.c"), folder.path().join("clocks"));
    fs::write(&source, CLOCKS.replace('`', "\"")).unwrap();
    run(Command::new("cc").arg("-o").arg(&program).arg(&source));
    let skew = ClockSkew::new().unwrap();
    let mut clocks =
        cerrojo_testbed::Process::spawn(skew.apply(&mut Command::new(program))).unwrap();
    let mut read = || -> Vec<i64> {
        let line = clocks.ask("now", std::time::Duration::from_secs(20)).unwrap();
        line.split(' ').map(|part| part.parse().unwrap()).collect()
    };
    let before = read();
    skew.set_nanos(1_000_000_000_000).unwrap();
    let after = read();
    assert!((1_000..1_060).contains(&(after[0] - before[0])), "{before:?} {after:?}");
    assert!((0..60).contains(&(after[1] - before[1])), "{before:?} {after:?}");
    assert!((0..60).contains(&(after[2] - before[2])), "{before:?} {after:?}");
}
