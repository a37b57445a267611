//! The last lines of a log stream, in bounded memory.

use std::cell::RefCell;
use std::rc::Rc;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes of a log that are kept.
const KEPT: usize = 8 << 10;

/// Reads a stream to its end and keeps the last bytes.
#[derive(Debug)]
pub(super) struct Tail {
    kept: Rc<RefCell<Vec<u8>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Tail {
    /// Starts reading; it must be called within a local task set.
    pub(super) fn follow(stream: impl AsyncRead + Unpin + 'static) -> Self {
        let kept = Rc::new(RefCell::new(Vec::new()));
        let task = tokio::task::spawn_local(drain(stream, Rc::clone(&kept)));
        Self { kept, task }
    }

    /// Waits until the stream has ended, but no longer than `limit`: a process left behind may hold it open.
    pub(super) async fn finish(&mut self, limit: std::time::Duration) {
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }

    /// What is kept.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept.borrow()).trim_end().to_owned()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn drain(mut stream: impl AsyncRead + Unpin, kept: Rc<RefCell<Vec<u8>>>) {
    let mut chunk = vec![0; 16 << 10];
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        let mut kept = kept.borrow_mut();
        kept.extend_from_slice(&chunk[..read]);
        if kept.len() > KEPT {
            let cut = kept.len() - KEPT;
            kept.drain(..cut);
        }
    }
}
