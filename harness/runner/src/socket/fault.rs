//! The ways in which a worker can break the protocol.

/// A broken protocol. The worker that did it is ended; nothing it said after it counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolFault {
    /// The line is not a reply.
    #[error("garbage on the socket: {detail}; the line begins {excerpt:?}")]
    Garbage {
        /// What is wrong with it.
        detail: String,
        /// Its first characters.
        excerpt: String,
    },
    /// The line is longer than any reply may be.
    #[error("a line of more than {limit} bytes")]
    Overlong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The nonce is not the one that this attempt was given.
    #[error("a reply with a wrong nonce: it is not from this attempt")]
    WrongNonce,
    /// The reply carries another provider's id.
    #[error("a reply by provider {found}, expected {expected}")]
    WrongProvider {
        /// The id found.
        found: String,
        /// The id expected.
        expected: String,
    },
    /// The reply answers an earlier request: it is late, or a second one.
    #[error(
        "a late or double reply: it answers request {found}, the request under way is {expected}"
    )]
    LateReply {
        /// The number found.
        found: u64,
        /// The number expected.
        expected: u64,
    },
    /// The reply answers a request that was not made.
    #[error("a reply to request {found}, which was not made: the last one is {expected}")]
    EarlyReply {
        /// The number found.
        found: u64,
        /// The number expected.
        expected: u64,
    },
    /// The reply is of another kind than the request asks for.
    #[error("the answer to {asked} is {found}: accepted are {accepted}")]
    UnexpectedVerb {
        /// The request.
        asked: &'static str,
        /// The reply.
        found: &'static str,
        /// The replies that would do.
        accepted: &'static str,
    },
    /// The reply names another case, phase or block than the request.
    #[error("the answer to {asked} is about {found:?}, asked was {expected:?}")]
    WrongSubject {
        /// The request.
        asked: &'static str,
        /// What it is about.
        found: String,
        /// What was asked.
        expected: String,
    },
    /// The worker speaks another version.
    #[error("protocol version {found}, expected {expected}")]
    Version {
        /// The version found.
        found: u32,
        /// The version expected.
        expected: u32,
    },
    /// Who connected is not of the attempt's process group.
    #[error("process {pid} connected, which is not of the attempt's process group")]
    ForeignPeer {
        /// Its process id; 0 where the kernel told none.
        pid: i32,
    },
    /// The worker closed the socket while a reply was due.
    #[error("the socket was closed while the answer to {asked} was due")]
    Closed {
        /// The request.
        asked: &'static str,
    },
    /// The worker's account of a measurement contradicts itself or the supervisor's clock.
    #[error("the measurement contradicts itself: {detail}")]
    Account {
        /// How.
        detail: String,
    },
    /// The socket failed.
    #[error("the socket failed: {detail}")]
    Socket {
        /// The system's message.
        detail: String,
    },
    /// After `bye` the process did not end by itself with code 0.
    #[error("after bye the process ended wrong: {detail}")]
    BadEnd {
        /// How.
        detail: String,
    },
    /// Processes were left behind.
    #[error("{count} processes were left behind and ended by the runner")]
    LeftBehind {
        /// How many.
        count: u32,
    },
}
