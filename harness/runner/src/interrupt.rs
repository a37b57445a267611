//! Stopping a run from outside.

use std::sync::Arc;

use tokio::sync::watch;

/// Stops a run cleanly: what finished is kept, workers are ended. Clones stop the same run.
#[derive(Debug, Clone)]
pub struct Stop {
    sender: Arc<watch::Sender<bool>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// A stop that was not requested.
    #[must_use]
    pub fn new() -> Self {
        Self { sender: Arc::new(watch::Sender::new(false)) }
    }

    /// Asks the run to stop; may be called from any thread, and again.
    pub fn request(&self) {
        self.sender.send_replace(true);
    }

    /// Whether it was asked to.
    #[must_use]
    pub fn requested(&self) -> bool {
        *self.sender.borrow()
    }

    /// Waits until it is asked to.
    pub(crate) async fn wait(&self) {
        let mut receiver = self.sender.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|requested| *requested).await;
    }
}
