//! Lines of bounded length.

use std::io::{BufRead, Read as _};

/// What can be wrong with an incoming line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The stream failed.
    #[error("the socket cannot be read")]
    Read(#[source] std::io::Error),
    /// The line is longer than both sides agreed on.
    #[error("a line is longer than {limit} bytes")]
    Overlong {
        /// The longest accepted line, in bytes.
        limit: usize,
    },
    /// The stream ended inside a line.
    #[error("the socket was closed inside a line, after {bytes} bytes of it")]
    Truncated {
        /// Bytes of the line that arrived.
        bytes: usize,
    },
}

/// Reads one line of at most `limit` bytes, without its newline; none at the end of the stream.
pub(crate) fn read_line(
    reader: &mut impl BufRead,
    limit: usize,
    line: &mut Vec<u8>,
) -> Result<Option<()>, LineError> {
    line.clear();
    let bound = limit as u64 + 1;
    let read = reader.by_ref().take(bound).read_until(b'\n', line).map_err(LineError::Read)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => {
            line.pop();
            Ok(Some(()))
        }
        Some(_) if read > limit => Err(LineError::Overlong { limit }),
        Some(_) => Err(LineError::Truncated { bytes: read }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_one_by_one_until_the_end() {
        let mut reader = &b"one\n\ntwo\n"[..];
        let mut line = Vec::new();
        let mut seen = Vec::new();
        while read_line(&mut reader, 8, &mut line).unwrap().is_some() {
            seen.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(seen, ["one", "", "two"]);
    }

    #[test]
    fn a_line_at_the_limit_is_read_and_one_byte_more_is_refused() {
        let mut line = Vec::new();
        assert!(read_line(&mut &b"12345678\n"[..], 8, &mut line).unwrap().is_some());
        let error = read_line(&mut &b"123456789\n"[..], 8, &mut line).unwrap_err();
        assert!(matches!(error, LineError::Overlong { limit: 8 }), "{error}");
    }

    #[test]
    fn an_end_inside_a_line_is_an_error_and_not_a_line() {
        let mut line = Vec::new();
        let error = read_line(&mut &b"half"[..], 8, &mut line).unwrap_err();
        assert!(matches!(error, LineError::Truncated { bytes: 4 }), "{error}");
    }
}
