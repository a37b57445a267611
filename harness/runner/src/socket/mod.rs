//! The private socket of an attempt: one connection, bounded lines, every reply checked for its echoes.

mod fault;
mod line;

use std::path::{Path, PathBuf};

use proofhouse_schema::canonical;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{MAX_LINE, Reply, ReplyLine, Request, RequestLine};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

pub use fault::ProtocolFault;
use line::{Lines, excerpt};

/// A socket in a folder of its own that only this user may enter, before anyone connected.
#[derive(Debug)]
pub(crate) struct Door {
    folder: tempfile::TempDir,
    listener: UnixListener,
    path: PathBuf,
    nonce: String,
}

impl Door {
    /// Makes folder, socket and nonce.
    pub(crate) fn open() -> std::io::Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::Builder::new()
            .prefix("proofhouse-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()?;
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path)?;
        Ok(Self { folder, listener, path, nonce: nonce()? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// Waits for the one connection. A cancelled wait loses nothing.
    pub(crate) async fn accept(&self) -> std::io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Closes the door behind the one connection: whoever comes later is refused.
    pub(crate) fn shut(self, stream: UnixStream, provider: ProviderId) -> Channel {
        let Door { folder, listener, path, nonce } = self;
        drop(listener);
        // The folder is removed with the channel; a socket that is gone already is as good.
        let _ = std::fs::remove_file(path);
        let (reader, writer) = stream.into_split();
        Channel {
            lines: Lines::new(reader, MAX_LINE),
            writer,
            nonce,
            provider,
            seq: 0,
            _folder: folder,
        }
    }
}

fn nonce() -> std::io::Result<String> {
    use std::io::Read as _;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// The connection of an attempt.
#[derive(Debug)]
pub(crate) struct Channel {
    lines: Lines<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    nonce: String,
    provider: ProviderId,
    seq: u64,
    _folder: tempfile::TempDir,
}

impl Channel {
    /// Sends the next request.
    pub(crate) async fn send(&mut self, request: Request) -> Result<(), ProtocolFault> {
        self.seq += 1;
        let asked = verb(&request);
        let line = RequestLine { seq: self.seq, request };
        let mut bytes = serde_json::to_vec(&line).map_err(|e| ProtocolFault::Socket {
            detail: format!("{asked} has no JSON form: {e}"),
        })?;
        bytes.push(b'\n');
        match self.writer.write_all(&bytes).await {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {
                Err(ProtocolFault::Closed { asked })
            }
            Err(e) => Err(ProtocolFault::Socket { detail: e.to_string() }),
        }
    }

    /// Waits for the reply to the last request (or the hello). A cancelled wait loses nothing.
    pub(crate) async fn receive(&mut self, asked: &'static str) -> Result<Reply, ProtocolFault> {
        let line = self.lines.next().await?.ok_or(ProtocolFault::Closed { asked })?;
        let reply: ReplyLine = canonical::parse(&line).map_err(|error| ProtocolFault::Garbage {
            detail: chain(&error),
            excerpt: excerpt(&line),
        })?;
        self.check(reply)
    }

    /// Waits until the worker closes; a line that still comes was not asked for.
    pub(crate) async fn closed(&mut self) -> Result<(), ProtocolFault> {
        match self.lines.next().await? {
            None => Ok(()),
            Some(_) => Err(ProtocolFault::LateReply { found: self.seq, expected: self.seq + 1 }),
        }
    }

    fn check(&self, line: ReplyLine) -> Result<Reply, ProtocolFault> {
        if line.nonce != self.nonce {
            return Err(ProtocolFault::WrongNonce);
        }
        if line.provider != self.provider {
            return Err(ProtocolFault::WrongProvider {
                found: line.provider.to_string(),
                expected: self.provider.to_string(),
            });
        }
        let (found, expected) = (line.seq, self.seq);
        match found.cmp(&expected) {
            std::cmp::Ordering::Less => Err(ProtocolFault::LateReply { found, expected }),
            std::cmp::Ordering::Greater => Err(ProtocolFault::EarlyReply { found, expected }),
            std::cmp::Ordering::Equal => Ok(line.reply),
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The word of a request.
pub(crate) fn verb(request: &Request) -> &'static str {
    match request {
        Request::Prepare(_) => "prepare",
        Request::Check { .. } => "check",
        Request::Measure(_) => "measure",
        Request::Capture { .. } => "capture",
        Request::Replay { .. } => "replay",
        Request::Ceilings => "ceilings",
        Request::Witness => "witness",
        Request::Release { .. } => "release",
        Request::Bye => "bye",
        Request::Catalog => "catalog",
        Request::Pose(_) => "pose",
        Request::Judge(_) => "judge",
        Request::Qualify { .. } => "qualify",
    }
}

/// The word of a reply.
pub(crate) fn reply_verb(reply: &Reply) -> &'static str {
    match reply {
        Reply::Hello(_) => "hello",
        Reply::Prepared { .. } => "prepared",
        Reply::Checked { .. } => "checked",
        Reply::Measured(_) => "measured",
        Reply::Captured { .. } => "captured",
        Reply::Replayed { .. } => "replayed",
        Reply::Ceilings { .. } => "ceilings",
        Reply::Witnessed(_) => "witnessed",
        Reply::Released { .. } => "released",
        Reply::Bye => "bye",
        Reply::Refused { .. } => "refused",
        Reply::Unsupported { .. } => "unsupported",
        Reply::Failed { .. } => "failed",
        Reply::Catalog(_) => "catalog",
        Reply::Posed(_) => "posed",
        Reply::Judged(_) => "judged",
        Reply::Qualified(_) => "qualified",
    }
}
