//! Defects of the process itself.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Signal, getpid, kill_process};

/// Set once SIGTERM is ignored.
const TRAPPED: &str = "PROOFHOUSE_FAKE_TRAPPED";

/// What goes wrong before there is a connection.
pub(crate) fn before_connecting(defect: &str) {
    match defect {
        "never-connects" => hang(),
        "hang-ignoring-sigterm" if std::env::var_os(TRAPPED).is_none() => {
            // An ignored signal stays ignored over exec; the shell asks for it without unsafe code here.
            let me = std::env::current_exe().unwrap_or_default();
            let error = Command::new("/bin/sh")
                .args(["-c", "trap '' TERM; exec \"$0\" \"$@\""])
                .arg(me)
                .args(std::env::args_os().skip(1))
                .env(TRAPPED, "1")
                .exec();
            drop(error);
        }
        "stderr-flood" => flood(&mut std::io::stderr()),
        "stdout-noise" => noise(),
        _ => {}
    }
}

/// What goes wrong when a check is asked for; most never return.
pub(crate) fn at_check(defect: &str) {
    match defect {
        "hang" | "hang-ignoring-sigterm" | "hung-kernel" => hang(),
        "segfault" => die(Signal::SEGV),
        "abort" => std::process::abort(),
        "oom" => eat(),
        "leaves-child" => leave(false),
        "leaves-child-scrubbed" => leave(true),
        "stdout-noise" => noise(),
        _ => {}
    }
}

/// A process that was left behind: it leaves its session and waits.
pub(crate) fn linger() -> ExitCode {
    // It leads no group, so this cannot fail; if it did, the group's end would end it, which is the same to the test.
    let _ = rustix::process::setsid();
    hang();
    ExitCode::SUCCESS
}

fn hang() {
    loop {
        std::thread::park();
    }
}

/// The runtime's own handler takes the first SIGSEGV, finds no fault behind it and steps aside; the second one counts.
fn die(signal: Signal) {
    for _ in 0..2 {
        let _ = kill_process(getpid(), signal);
    }
    hang();
}

fn eat() {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        eaten.push(vec![1; 4 << 20]);
        std::hint::black_box(&eaten);
        std::thread::yield_now();
    }
}

fn leave(scrubbed: bool) {
    let me = std::env::current_exe().unwrap_or_default();
    let mut command = Command::new(me);
    // The argument after it lets a test find the process when its environment is gone.
    let stage = std::env::var_os("PROOFHOUSE_FAKE_STAGE").unwrap_or_default();
    command
        .arg("--linger")
        .arg(stage)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if scrubbed {
        command.env_clear();
    }
    // Not waited for: that is the defect.
    drop(command.spawn());
}

fn noise() {
    let mut out = std::io::stdout();
    let _ = out.write_all(b"{\"verb\":\"checked\",\"seq\":1}\nnoise on stdout\n");
    let _ = out.flush();
}

fn flood(out: &mut impl std::io::Write) {
    let line = [b'x'; 1023];
    for _ in 0..4096 {
        let _ = out.write_all(&line).and_then(|()| out.write_all(b"\n"));
    }
    let _ = out.write_all(b"the last line\n");
}
