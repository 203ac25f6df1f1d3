//! The child process does what its documentation says, on `cat` and `sh`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

use std::{io::ErrorKind, os::unix::process::ExitStatusExt, process::Command, time::Duration};

use cerrojo_testbed::Process;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);

fn sh(script: &str) -> Process {
    Process::spawn(Command::new("sh").args(["-c", script])).unwrap()
}

#[test]
fn a_line_is_answered_and_the_end_is_told() {
    let mut cat = Process::spawn(&mut Command::new("cat")).unwrap();
    assert_eq!(cat.ask("hello", LONG).unwrap(), "hello");
    assert_eq!(cat.line(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    cat.hang_up();
    assert_eq!(cat.line(LONG).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(cat.wait(LONG).unwrap().code(), Some(0));
}

#[test]
fn a_frozen_process_is_silent_until_it_is_thawed() {
    let mut cat = Process::spawn(&mut Command::new("cat")).unwrap();
    cat.freeze().unwrap();
    assert_eq!(cat.ask("hello", SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    cat.thaw().unwrap();
    assert_eq!(cat.line(LONG).unwrap(), "hello");
}

#[test]
fn a_frozen_process_can_be_killed_and_what_it_said_is_heard() {
    let mut child = sh("echo one; echo two; read end");
    assert_eq!(child.line(LONG).unwrap(), "one");
    child.freeze().unwrap();
    assert_eq!(child.kill().unwrap().signal(), Some(9));
    let rest = child.rest(LONG).unwrap();
    assert!(rest.is_empty() || rest == ["two"], "{rest:?}");
}

#[test]
fn one_that_has_ended_cannot_be_frozen_and_waiting_is_bounded() {
    let mut child = sh("read end");
    assert_eq!(child.wait(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    child.hang_up();
    assert_eq!(child.wait(LONG).unwrap().code(), Some(1));
    child.freeze().unwrap_err();
}

#[test]
fn dropping_it_kills_it_and_leaves_no_zombie() {
    let child = sh("echo up; read end");
    child.line(LONG).unwrap();
    let place = format!("/proc/{}", child.id());
    assert!(std::path::Path::new(&place).exists());
    drop(child);
    assert!(!std::path::Path::new(&place).exists());
}
