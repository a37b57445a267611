//! From spawn to hello: `cargo bench -p proofhouse-worker-cpu` prints the least and the median of a few starts.

use std::io::BufRead as _;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};

const STARTS: usize = 21;

fn spawn_to_hello() -> std::io::Result<Duration> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket)?;
    let start = Instant::now();
    let mut worker = Command::new(env!("CARGO_BIN_EXE_proofhouse-worker-cpu"))
        .env("PROOFHOUSE_SOCKET", &socket)
        .env("PROOFHOUSE_NONCE", "bench")
        .env("PROOFHOUSE_THREADS", "1")
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let (stream, _) = listener.accept()?;
    let mut line = String::new();
    std::io::BufReader::new(&stream).read_line(&mut line)?;
    let taken = start.elapsed();
    drop(stream);
    worker.wait()?;
    Ok(taken)
}

#[allow(clippy::print_stdout, reason = "a bench prints its numbers")]
fn main() -> std::io::Result<()> {
    let mut times = (0..STARTS).map(|_| spawn_to_hello()).collect::<Result<Vec<_>, _>>()?;
    times.sort();
    println!("spawn to hello: least {:?}, median {:?} of {STARTS}", times[0], times[STARTS / 2]);
    Ok(())
}
