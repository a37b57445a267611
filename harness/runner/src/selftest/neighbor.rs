//! A process on the device that is no part of the run: the run must see it, so it must not descend from it.

use std::io::{self, BufRead as _, BufReader};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::device::DEVICE_VARIABLE;
use crate::options::RunOptions;
use crate::provider::find_program;

/// How long it may take until it computes.
const LIMIT: Duration = Duration::from_secs(120);
/// Starts a program with this shell's standard input and leaves it to whoever takes orphans.
const LEAVE: &str = "exec 3<&0; \"$0\" \"$@\" <&3 3<&- & exit 0";

/// A process beside the run. It ends when this is dropped, and when this process ends in any way: its standard input does.
#[derive(Debug)]
pub(super) struct Neighbor {
    _input: ChildStdin,
}

impl Neighbor {
    /// Starts it and waits until it says that it computes.
    pub(super) fn start(command: &[String], run: &RunOptions) -> io::Result<Self> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(io::Error::other("no program is declared for it"));
        };
        let found = find_program(program.as_ref(), run);
        let found = found.ok_or_else(|| io::Error::other(format!("{program} is not there")))?;
        // An earlier run made this process the one that takes orphans; the next run does so again.
        rustix::process::set_child_subreaper(None)?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", LEAVE]).arg(found).args(arguments);
        for (name, value) in run.devices.variables(proofhouse_schema::device::DeviceKind::Cuda) {
            if name != DEVICE_VARIABLE {
                shell.env(name, value);
            }
        }
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (shell.stdin.take(), shell.stdout.take());
        shell.wait()?;
        let (Some(input), Some(output)) = (input, output) else {
            return Err(io::Error::other("it has no standard input or output"));
        };
        hear(output)?;
        Ok(Self { _input: input })
    }
}

fn hear(output: ChildStdout) -> io::Result<()> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let heard = BufReader::new(output).read_line(&mut line).map(|_| line);
        // Nobody waits any more where it took too long.
        let _ = sender.send(heard);
    });
    match receiver.recv_timeout(LIMIT) {
        Ok(Ok(line)) if !line.is_empty() => Ok(()),
        Ok(Ok(_)) => Err(io::Error::other("it ended before it computed")),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other(format!("it did not compute within {} s", LIMIT.as_secs()))),
    }
}
