//! The connection to the supervisor and the strict loop over its requests.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use proofhouse_schema::canonical::{self, CanonicalError};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{
    Hello, MAX_LINE, NONCE_VARIABLE, PROTOCOL, Reply, ReplyLine, Request, RequestLine,
    SOCKET_VARIABLE, Witnessed,
};

use crate::cases::{Cases, unknown_case};
use crate::host::HostCases;
use crate::line::{LineError, read_line};
use crate::provider::{Description, Mode, Worker};
use crate::reasons::chain;
use crate::witness::Libraries;

/// Why a session ended without a `bye`.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The environment does not say where the supervisor is.
    #[error("{0} is not set: this program is started by proofhouse and not by hand")]
    NoVariable(&'static str),
    /// The supervisor cannot be reached.
    #[error("no connection to {}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line could not be read.
    #[error("the next request cannot be read")]
    Line(#[from] LineError),
    /// A line is no request.
    #[error("request {seq} is not understood")]
    Garbage {
        /// The number that the request should have had.
        seq: u64,
        /// Why.
        source: CanonicalError,
    },
    /// A request is out of turn.
    #[error("request {found} arrived where {expected} was due")]
    OutOfTurn {
        /// The number that was due.
        expected: u64,
        /// The number that arrived.
        found: u64,
    },
    /// An answer could not be written as JSON.
    #[error("the answer to request {seq} cannot be written as JSON")]
    Unwritable {
        /// The request.
        seq: u64,
        /// Why.
        source: serde_json::Error,
    },
    /// An answer could not be sent.
    #[error("the answer to request {seq} cannot be sent")]
    Send {
        /// The request; 0 for the hello.
        seq: u64,
        /// Why.
        source: std::io::Error,
    },
    /// The device is broken for this process; it ends without an answer, so that no later case is blamed for it.
    #[error("the device is lost to this process: {detail}")]
    Device {
        /// What it said.
        detail: String,
    },
    /// The supervisor went away.
    #[error("the supervisor closed the socket after request {seq} without a bye")]
    Closed {
        /// The last request.
        seq: u64,
    },
}

/// Connects as the environment says and serves until `bye`.
///
/// # Errors
/// Any [`SessionError`]; the process must then end with a failure.
pub fn serve(worker: &mut dyn Worker) -> Result<(), SessionError> {
    serve_cases(&mut HostCases::new(worker))
}

/// As [`serve`], for a worker that holds its cases itself.
///
/// # Errors
/// Any [`SessionError`]; the process must then end with a failure.
pub fn serve_cases(cases: &mut dyn Cases) -> Result<(), SessionError> {
    let path = std::env::var_os(SOCKET_VARIABLE)
        .map(PathBuf::from)
        .ok_or(SessionError::NoVariable(SOCKET_VARIABLE))?;
    let nonce =
        std::env::var(NONCE_VARIABLE).map_err(|_| SessionError::NoVariable(NONCE_VARIABLE))?;
    let stream =
        UnixStream::connect(&path).map_err(|source| SessionError::Connect { path, source })?;
    serve_connected(cases, stream, nonce)
}

/// Serves over a connected socket until `bye`.
///
/// # Errors
/// Any [`SessionError`].
pub fn serve_stream(
    worker: &mut dyn Worker,
    stream: UnixStream,
    nonce: String,
) -> Result<(), SessionError> {
    serve_connected(&mut HostCases::new(worker), stream, nonce)
}

/// As [`serve_stream`], for a worker that holds its cases itself.
///
/// # Errors
/// Any [`SessionError`].
pub fn serve_connected(
    cases: &mut dyn Cases,
    stream: UnixStream,
    nonce: String,
) -> Result<(), SessionError> {
    let description = cases.describe();
    let provider = description.provider.clone();
    let mut reader = BufReader::new(stream.try_clone().map_err(LineError::Read)?);
    let mut sender = Sender { stream, nonce, provider };
    sender.send(0, Reply::Hello(hello(description.clone())))?;
    let mut session = Session { cases, libraries: Libraries::default(), description };
    let mut line = Vec::new();
    let mut seq = 0;
    while read_line(&mut reader, MAX_LINE, &mut line)?.is_some() {
        seq += 1;
        let request = match parse(&line, seq) {
            Ok(request) => request,
            Err(error) => {
                // The broken request is the news, whether or not the other side still listens.
                let _ = sender.send(seq, Reply::Failed { detail: chain(&error) });
                return Err(error);
            }
        };
        let bye = matches!(request, Request::Bye);
        let answer = session.answer(&request);
        if let Some(detail) = session.cases.broken() {
            return Err(SessionError::Device { detail });
        }
        sender.send(seq, answer)?;
        if bye {
            return Ok(());
        }
    }
    Err(SessionError::Closed { seq })
}

fn hello(description: Description) -> Hello {
    Hello {
        protocol: PROTOCOL,
        version: description.version,
        pid: std::process::id(),
        language: concat!("rust ", env!("CARGO_PKG_RUST_VERSION")).to_owned(),
        packages: description.packages,
        operators: description.operators,
        capabilities: description.capabilities,
        device: description.device,
    }
}

fn parse(line: &[u8], expected: u64) -> Result<Request, SessionError> {
    let parsed: RequestLine =
        canonical::parse(line).map_err(|source| SessionError::Garbage { seq: expected, source })?;
    if parsed.seq == expected {
        Ok(parsed.request)
    } else {
        Err(SessionError::OutOfTurn { expected, found: parsed.seq })
    }
}

struct Sender {
    stream: UnixStream,
    nonce: String,
    provider: ProviderId,
}

impl Sender {
    fn send(&mut self, seq: u64, reply: Reply) -> Result<(), SessionError> {
        let line =
            ReplyLine { nonce: self.nonce.clone(), seq, provider: self.provider.clone(), reply };
        let mut bytes =
            serde_json::to_vec(&line).map_err(|source| SessionError::Unwritable { seq, source })?;
        bytes.push(b'\n');
        self.stream.write_all(&bytes).map_err(|source| SessionError::Send { seq, source })
    }
}

struct Session<'a> {
    cases: &'a mut dyn Cases,
    libraries: Libraries,
    description: Description,
}

impl Session<'_> {
    /// Answers one request; a panic becomes a failure, and its case is forgotten.
    fn answer(&mut self, request: &Request) -> Reply {
        match catch_unwind(AssertUnwindSafe(|| self.dispatch(request))) {
            Ok(reply) => reply,
            Err(panic) => {
                if let Some(case) = case_of(request) {
                    self.cases.forget(case);
                }
                Reply::Failed { detail: format!("panic: {}", panic_text(&*panic)) }
            }
        }
    }

    fn dispatch(&mut self, request: &Request) -> Reply {
        match request {
            Request::Prepare(prepare) => self.cases.prepare(prepare),
            Request::Check { case, checked } => {
                let mode = if *checked { Mode::Checked } else { Mode::Unchecked };
                self.cases.check(case, mode)
            }
            Request::Measure(measure) => self.cases.measure(measure),
            Request::Capture { case } => self.cases.capture(case),
            Request::Replay { case } => self.cases.replay(case),
            Request::Ceilings => self.cases.ceilings(),
            Request::Witness => self.witness(),
            Request::Release { case } => {
                let known = self.cases.forget(case);
                match self.cases.answer(request) {
                    Some(reply) => reply,
                    None if known => Reply::Released { case: case.clone() },
                    None => unknown_case(case),
                }
            }
            Request::Bye => Reply::Bye,
            Request::Catalog | Request::Pose(_) | Request::Judge(_) | Request::Qualify { .. } => {
                self.cases.answer(request).unwrap_or_else(|| Reply::Failed {
                    detail: "this provider is no checker".to_owned(),
                })
            }
        }
    }

    fn witness(&mut self) -> Reply {
        match self.libraries.mapped() {
            Ok(libraries) => Reply::Witnessed(Witnessed {
                libraries,
                packages: self.description.packages.clone(),
                kernels: self.cases.kernels(),
                dispatch: self.cases.dispatch(),
            }),
            Err(error) => Reply::Failed { detail: format!("/proc/self/maps: {error}") },
        }
    }
}

fn case_of(request: &Request) -> Option<&str> {
    match request {
        Request::Prepare(prepare) => Some(&prepare.case),
        Request::Check { case, .. }
        | Request::Capture { case }
        | Request::Replay { case }
        | Request::Release { case } => Some(case),
        Request::Measure(measure) => Some(&measure.case),
        _ => None,
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
