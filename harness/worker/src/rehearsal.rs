//! A supervisor in a few lines, for tests of workers: it asks over a real socket and checks every echo.
//!
//! It trusts its worker to answer; the real supervisor, with deadlines and limits, is the runner.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use proofhouse_schema::protocol::{Hello, Reply, ReplyLine, Request, RequestLine};

use crate::provider::Worker;
use crate::session::{SessionError, serve_stream};

const NONCE: &str = "rehearsal-nonce";

/// What went wrong in a rehearsal.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// The socket failed.
    #[error("the socket failed")]
    Socket(#[from] std::io::Error),
    /// The worker's line is no answer.
    #[error("not an answer: {line:?}")]
    Garbage {
        /// The line.
        line: String,
        /// Why.
        source: serde_json::Error,
    },
    /// Nonce, number or provider are not those of the request.
    #[error("the answer does not belong to request {seq}: {line:?}")]
    Foreign {
        /// The request.
        seq: u64,
        /// The line.
        line: String,
    },
    /// The first line is no hello.
    #[error("the first line is no hello: {0:?}")]
    NoHello(Box<Reply>),
}

/// One worker in a thread of its own, and the supervisor's end of its socket.
pub struct Rehearsal {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    thread: JoinHandle<Result<(), SessionError>>,
    seq: u64,
    /// The worker's first line.
    pub hello: Hello,
    provider: String,
}

impl Rehearsal {
    /// Starts a worker and reads its hello.
    ///
    /// # Errors
    /// [`RehearsalError`].
    pub fn start<W: Worker>(
        make: impl FnOnce() -> W + Send + 'static,
    ) -> Result<Self, RehearsalError> {
        let (stream, other) = UnixStream::pair()?;
        let thread = std::thread::spawn(move || serve_stream(&mut make(), other, NONCE.to_owned()));
        let mut reader = BufReader::new(stream.try_clone()?);
        let first = read_reply(&mut reader, 0)?;
        let provider = first.provider.to_string();
        match first.reply {
            Reply::Hello(hello) => Ok(Self { stream, reader, thread, seq: 0, hello, provider }),
            other => Err(RehearsalError::NoHello(Box::new(other))),
        }
    }

    /// Asks and gives the answer.
    ///
    /// # Errors
    /// [`RehearsalError`].
    pub fn ask(&mut self, request: Request) -> Result<Reply, RehearsalError> {
        let line = RequestLine { seq: self.seq + 1, request };
        let bytes = serde_json::to_vec(&line)
            .map_err(|source| RehearsalError::Garbage { line: String::new(), source })?;
        self.send(&bytes)?;
        self.reply()
    }

    /// Sends any bytes as a line that takes the place of the next request.
    ///
    /// # Errors
    /// [`RehearsalError::Socket`].
    pub fn send(&mut self, line: &[u8]) -> Result<(), RehearsalError> {
        self.seq += 1;
        self.stream.write_all(line)?;
        Ok(self.stream.write_all(b"\n")?)
    }

    /// Reads the answer to the last request.
    ///
    /// # Errors
    /// [`RehearsalError`].
    pub fn reply(&mut self) -> Result<Reply, RehearsalError> {
        let reply = read_reply(&mut self.reader, self.seq)?;
        if reply.provider.as_str() == self.provider {
            Ok(reply.reply)
        } else {
            Err(RehearsalError::Foreign { seq: self.seq, line: format!("{reply:?}") })
        }
    }

    /// Closes the socket and gives how the worker's session ended.
    ///
    /// # Panics
    /// When the worker's thread panicked, which the session excludes.
    pub fn end(self) -> Result<(), SessionError> {
        drop((self.stream, self.reader));
        self.thread.join().expect("a session turns panics into answers")
    }
}

fn read_reply(reader: &mut BufReader<UnixStream>, seq: u64) -> Result<ReplyLine, RehearsalError> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let reply: ReplyLine = serde_json::from_str(&line)
        .map_err(|source| RehearsalError::Garbage { line: line.clone(), source })?;
    if reply.nonce == NONCE && reply.seq == seq {
        Ok(reply)
    } else {
        Err(RehearsalError::Foreign { seq, line })
    }
}
