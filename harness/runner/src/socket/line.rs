//! Lines of bounded length from an asynchronous reader.

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::ProtocolFault;

/// Reads lines; a cancelled read loses nothing.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    searched: usize,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R, limit: usize) -> Self {
        Self { reader, buffer: Vec::new(), searched: 0, limit }
    }

    /// The next line without its end, or nothing when the other side closed.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, ProtocolFault> {
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(Some(line));
            }
            let read = self.reader.read_buf(&mut self.buffer).await;
            match read {
                Ok(0) if self.buffer.is_empty() => return Ok(None),
                Ok(0) => {
                    return Err(ProtocolFault::Garbage {
                        detail: "the socket was closed in the middle of a line".to_owned(),
                        excerpt: excerpt(&self.buffer),
                    });
                }
                Ok(_) => {}
                // A worker that dies with unread requests resets the socket; its ending says more.
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return Ok(None),
                Err(e) => return Err(ProtocolFault::Socket { detail: e.to_string() }),
            }
        }
    }

    fn take_line(&mut self) -> Result<Option<Vec<u8>>, ProtocolFault> {
        let end = self.buffer[self.searched..].iter().position(|b| *b == b'\n');
        let length = end.map_or(self.buffer.len(), |end| self.searched + end);
        if length > self.limit {
            return Err(ProtocolFault::Overlong { limit: self.limit });
        }
        self.searched = length;
        if end.is_none() {
            return Ok(None);
        }
        let rest = self.buffer.split_off(length + 1);
        let mut line = std::mem::replace(&mut self.buffer, rest);
        line.truncate(length);
        self.searched = 0;
        Ok(Some(line))
    }
}

/// The first characters of some bytes, for a message.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(320)]).into_owned();
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &'static [u8], limit: usize) -> Vec<Result<Option<Vec<u8>>, ProtocolFault>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut lines = Lines::new(bytes, limit);
            let mut all = Vec::new();
            loop {
                let next = lines.next().await;
                let last = !matches!(next, Ok(Some(_)));
                all.push(next);
                if last {
                    return all;
                }
            }
        })
    }

    #[test]
    fn lines_come_one_by_one_and_then_nothing() {
        let all = lines(b"a\n\nbc\n", 4);
        assert_eq!(
            all,
            [Ok(Some(b"a".to_vec())), Ok(Some(Vec::new())), Ok(Some(b"bc".to_vec())), Ok(None)]
        );
    }

    #[test]
    fn a_line_over_the_limit_is_refused_before_its_end_is_seen() {
        assert!(matches!(lines(b"abcde", 4)[0], Err(ProtocolFault::Overlong { limit: 4 })));
        assert!(matches!(lines(b"abcde\n", 4)[0], Err(ProtocolFault::Overlong { limit: 4 })));
        assert!(matches!(lines(b"abcd\n", 4)[0], Ok(Some(_))));
    }

    #[test]
    fn a_line_without_an_end_is_garbage() {
        assert!(matches!(lines(b"ab\ncd", 9)[1], Err(ProtocolFault::Garbage { .. })));
    }
}
