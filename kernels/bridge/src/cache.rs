//! A bounded number of prepared operators, by call and stream.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::thread::ThreadId;

use proofhouse_contract::{Call, Dtype, ParamValue};

use crate::backend::Ready;

/// CUDA's number for the default stream of the calling thread, `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// What an operator is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    operator: &'static str,
    dtype: Dtype,
    /// In the contract's order.
    dims: Vec<Option<u64>>,
    /// In the contract's order; real numbers by their bits, absent ones by their defaults.
    params: Vec<(&'static str, u64)>,
    /// Launches of one operator share its workspace, so every stream has its own.
    stream: usize,
    /// The stream of this number is another one on every thread.
    thread: Option<ThreadId>,
    /// So have graphs, which may run while the stream that they were captured from goes on.
    captured: bool,
}

impl Key {
    /// The key of a valid call.
    pub(crate) fn new(call: &Call, stream: usize, captured: bool) -> Self {
        let bits = |value: ParamValue| match value {
            ParamValue::Float(value) => value.to_bits(),
            ParamValue::Int(value) => value.cast_unsigned(),
            ParamValue::Bool(value) => u64::from(value),
        };
        let param = |spec: &proofhouse_contract::spec::ParamSpec| {
            let value = call.params.get(spec.name).copied().unwrap_or(spec.default);
            (value.kind(), bits(value))
        };
        Self {
            operator: call.operator.name,
            dtype: call.dtype,
            dims: call.operator.dims.iter().map(|dim| call.dims.get(dim.name).copied()).collect(),
            params: call.operator.params.iter().map(param).collect(),
            stream,
            thread: (stream == PER_THREAD).then(|| std::thread::current().id()),
            captured,
        }
    }

    fn of_graphs(&self) -> Self {
        Self { captured: true, ..self.clone() }
    }
}

struct Entry {
    ready: Arc<dyn Ready>,
    used: u64,
}

/// What became of an operator that was put into the cache.
pub(crate) enum Put {
    /// It is there, and the one to use; another left for it, where one is given.
    Kept(Arc<dyn Ready>, Option<Arc<dyn Ready>>),
    /// There is no room, see [`Cache::is_full_of_graphs`].
    Full,
}

/// At most so many operators. The one that was used the longest ago leaves first; those that graphs were captured with
/// never do.
pub(crate) struct Cache {
    most: usize,
    clock: u64,
    entries: HashMap<Key, Entry>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("most", &self.most)
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl Cache {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, clock: 0, entries: HashMap::new() }
    }

    /// The operator of a key that is not a graph's.
    pub(crate) fn find(&mut self, key: &Key) -> Option<Arc<dyn Ready>> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(Arc::clone(&entry.ready))
    }

    /// The operator for a capture: a graph's from an earlier capture, or the stream's, which becomes the graph's.
    pub(crate) fn find_for_graph(&mut self, key: &Key) -> Option<Arc<dyn Ready>> {
        let of_graphs = key.of_graphs();
        if let Some(ready) = self.find(&of_graphs) {
            return Some(ready);
        }
        let entry = self.entries.remove(key)?;
        let ready = Arc::clone(&entry.ready);
        self.entries.insert(of_graphs, entry);
        Some(ready)
    }

    /// Whether there is no room, because every operator here is a graph's.
    pub(crate) fn is_full_of_graphs(&self) -> bool {
        self.entries.len() >= self.most && self.entries.keys().all(|key| key.captured)
    }

    /// Puts an operator there, unless another thread has put one there meanwhile.
    pub(crate) fn put(&mut self, key: Key, ready: Arc<dyn Ready>) -> Put {
        if let Some(ready) = self.find(&key) {
            return Put::Kept(ready, None);
        }
        let mut left = None;
        if self.entries.len() >= self.most {
            let oldest = self.entries.iter().filter(|(key, _)| !key.captured);
            let Some(key) = oldest.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())
            else {
                return Put::Full;
            };
            left = self.entries.remove(&key).map(|entry| entry.ready);
        }
        self.entries.insert(key, Entry { ready: Arc::clone(&ready), used: self.clock });
        Put::Kept(ready, left)
    }

    /// Takes everything out, what is a graph's too.
    pub(crate) fn clear(&mut self) -> Vec<Arc<dyn Ready>> {
        self.entries.drain().map(|(_, entry)| entry.ready).collect()
    }
}
