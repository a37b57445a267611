//! Graphs and events, for timing.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ptr;

use cudarc::driver::sys;
use proofhouse_cuda::{OwnedStream, Stream};

fn ok(result: sys::CUresult) {
    assert!(result == sys::CUresult::CUDA_SUCCESS, "{result:?}");
}

const fn raw(stream: Stream) -> sys::CUstream {
    stream.raw() as sys::CUstream
}

/// A graph of captured work, ready to be replayed and timed.
pub struct Graph {
    /// How many of its edges let a launch begin while the one in front of it ends.
    pub programmatic_edges: usize,
    executable: sys::CUgraphExec,
    events: [sys::CUevent; 2],
}

impl Graph {
    /// Captures what `work` puts into the stream.
    pub fn capture(stream: &OwnedStream, work: impl FnOnce(Stream)) -> Self {
        let handle = stream.handle();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive.
        ok(unsafe { sys::cuStreamBeginCapture_v2(raw(handle), mode) });
        work(handle);
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        let mut events = [ptr::null_mut(); 2];
        let programmatic_edges;
        // SAFETY: all pointers are to handles that live through the calls, and each handle is made before its use.
        unsafe {
            ok(sys::cuStreamEndCapture(raw(handle), &mut graph));
            let mut edges = 0;
            ok(sys::cuGraphGetEdges_v2(
                graph,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                &mut edges,
            ));
            let mut ends = [vec![ptr::null_mut(); edges], vec![ptr::null_mut(); edges]];
            let mut data: Vec<sys::CUgraphEdgeData> = vec![std::mem::zeroed(); edges];
            let [from, to] = &mut ends;
            if edges > 0 {
                ok(sys::cuGraphGetEdges_v2(
                    graph,
                    from.as_mut_ptr(),
                    to.as_mut_ptr(),
                    data.as_mut_ptr(),
                    &mut edges,
                ));
            }
            let programmatic =
                sys::CUgraphDependencyType_enum::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
            programmatic_edges =
                data.iter().filter(|edge| u32::from(edge.type_) == programmatic as u32).count();
            ok(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
            ok(sys::cuGraphDestroy(graph));
            ok(sys::cuGraphUpload(executable, raw(handle)));
            for event in &mut events {
                ok(sys::cuEventCreate(event, 0));
            }
        }
        Self { programmatic_edges, executable, events }
    }

    /// Replays the graph and returns the time between its ends in microseconds.
    pub fn replay(&self, stream: &OwnedStream) -> f64 {
        let handle = raw(stream.handle());
        let mut milliseconds = 0.0f32;
        // SAFETY: graph, events and stream are alive.
        unsafe {
            ok(sys::cuEventRecord(self.events[0], handle));
            ok(sys::cuGraphLaunch(self.executable, handle));
            ok(sys::cuEventRecord(self.events[1], handle));
            ok(sys::cuEventSynchronize(self.events[1]));
            ok(sys::cuEventElapsedTime_v2(&mut milliseconds, self.events[0], self.events[1]));
        }
        f64::from(milliseconds) * 1e3
    }

    /// The median of some replays, after some that are not counted, in microseconds.
    pub fn median(&self, stream: &OwnedStream, replays: usize) -> f64 {
        for _ in 0..3 {
            self.replay(stream);
        }
        let mut times: Vec<_> = (0..replays).map(|_| self.replay(stream)).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handles are this value's own.
        unsafe {
            ok(sys::cuGraphExecDestroy(self.executable));
            for event in self.events {
                ok(sys::cuEventDestroy_v2(event));
            }
        }
    }
}

/// Puts a copy within the device into a stream.
pub fn copy(to: u64, from: u64, bytes: usize, stream: Stream) {
    // SAFETY: the callers' regions are parts of one arena.
    ok(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, raw(stream)) });
}
