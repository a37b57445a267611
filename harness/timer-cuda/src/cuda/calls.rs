//! The driver's calls, each checked. Every function but those for graphs, which are beside it.
//!
//! Handles come from this module or from outside on trust (see [`crate::handle`]), addresses from
//! [`crate::memory`], and the context is current in the thread that holds the [`Cuda`].

use std::ffi::{CStr, c_void};

use cudarc::driver::sys;
use proofhouse_timer::host::monotonic_raw_ns;
use proofhouse_timer::{DeviceError, LoadedCode};

use super::{Cuda, check};
use crate::driver::{Driven, Driver, Node};
use crate::handle::{Event, Function, Graph, GraphExec, Stream};

fn stream(stream: Stream) -> sys::CUstream {
    stream.raw() as sys::CUstream
}

fn event(event: Event) -> sys::CUevent {
    event.raw() as sys::CUevent
}

impl Driver for Cuda {
    fn stream_create(&self) -> Driven<Stream> {
        let mut made = std::ptr::null_mut();
        let flag = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `made` is writable.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut made, flag) })?;
        Ok(Stream::new(made as usize))
    }

    fn stream_destroy(&self, gone: Stream) -> Driven<()> {
        // SAFETY: the stream came from `stream_create` and its owner gives it up.
        check("cuStreamDestroy_v2", unsafe { sys::cuStreamDestroy_v2(stream(gone)) })
    }

    fn event_create(&self) -> Driven<Event> {
        let mut made = std::ptr::null_mut();
        let flag = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: `made` is writable.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut made, flag) })?;
        Ok(Event::new(made as usize))
    }

    fn event_destroy(&self, gone: Event) -> Driven<()> {
        // SAFETY: the event came from `event_create` and its owner gives it up.
        check("cuEventDestroy_v2", unsafe { sys::cuEventDestroy_v2(event(gone)) })
    }

    fn event_record(&self, mark: Event, on: Stream) -> Driven<()> {
        // SAFETY: event and stream are alive.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event(mark), stream(on)) })
    }

    fn event_reached(&self, mark: Event) -> Driven<bool> {
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(event(mark)) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => check("cuEventQuery", other).map(|()| true),
        }
    }

    fn event_wait(&self, mark: Event) -> Driven<()> {
        // SAFETY: the event is alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event(mark)) })
    }

    fn event_elapsed_ms(&self, from: Event, to: Event) -> Driven<f32> {
        let mut elapsed = f32::NAN;
        // SAFETY: `elapsed` is writable, and both events are alive.
        let result =
            unsafe { sys::cuEventElapsedTime_v2(&raw mut elapsed, event(from), event(to)) };
        check("cuEventElapsedTime_v2", result)?;
        Ok(elapsed)
    }

    fn device_wait(&self) -> Driven<()> {
        // SAFETY: it takes no argument; the context is current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    fn capture_begin(&self, on: Stream) -> Driven<()> {
        // Other threads may go on; what this one enqueues elsewhere in a way that a capture forbids
        // fails.
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        check("cuStreamBeginCapture_v2", unsafe { sys::cuStreamBeginCapture_v2(stream(on), mode) })
    }

    fn capture_end(&self, on: Stream) -> Driven<Graph> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is alive, and `graph` is writable.
        let result = unsafe { sys::cuStreamEndCapture(stream(on), &raw mut graph) };
        check("cuStreamEndCapture", result)?;
        Ok(Graph::new(graph as usize))
    }

    fn graph_nodes(&self, graph: Graph) -> Driven<Vec<Node>> {
        super::graph::nodes(graph)
    }

    fn graph_instantiate(&self, graph: Graph) -> Driven<GraphExec> {
        super::graph::instantiate(graph)
    }

    fn graph_destroy(&self, graph: Graph) -> Driven<()> {
        super::graph::destroy(graph)
    }

    fn exec_upload(&self, exec: GraphExec, on: Stream) -> Driven<()> {
        let exec = exec.raw() as sys::CUgraphExec;
        // SAFETY: graph and stream are alive.
        check("cuGraphUpload", unsafe { sys::cuGraphUpload(exec, stream(on)) })
    }

    fn exec_launch(&self, exec: GraphExec, on: Stream) -> Driven<()> {
        let exec = exec.raw() as sys::CUgraphExec;
        // SAFETY: graph and stream are alive; the memory that the graph uses is kept by whoever
        // captured it.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(exec, stream(on)) })
    }

    fn exec_destroy(&self, exec: GraphExec) -> Driven<()> {
        let exec = exec.raw() as sys::CUgraphExec;
        // SAFETY: the graph came from `graph_instantiate` and its owner gives it up.
        check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(exec) })
    }

    fn allocate(&self, bytes: u64) -> Driven<u64> {
        let mut address = 0;
        // SAFETY: `address` is writable. The target is of 64 bits, so the cast is exact.
        let result = unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes as usize) };
        check("cuMemAlloc_v2", result)?;
        Ok(address)
    }

    fn free(&self, address: u64) -> Driven<()> {
        // SAFETY: the address came from `allocate` and its owner gives it up.
        check("cuMemFree_v2", unsafe { sys::cuMemFree_v2(address) })
    }

    fn free_bytes(&self) -> Driven<u64> {
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: both are writable.
        let result = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        check("cuMemGetInfo_v2", result)?;
        Ok(free as u64)
    }

    fn upload(&self, to: u64, bytes: &[u8]) -> Driven<()> {
        // SAFETY: `bytes` is readable for its length, and the owner of the device memory sees to it
        // that so many bytes lie at the address.
        let result = unsafe { sys::cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), bytes.len()) };
        check("cuMemcpyHtoD_v2", result)
    }

    fn download(&self, from: u64, bytes: &mut [u8]) -> Driven<()> {
        // SAFETY: `bytes` is writable for its length, and the owner of the device memory sees to it
        // that so many bytes lie at the address.
        let result = unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, bytes.len()) };
        check("cuMemcpyDtoH_v2", result)
    }

    fn copy(&self, to: u64, from: u64, bytes: u64, on: Stream) -> Driven<()> {
        // SAFETY: both ranges lie in memory whose owners keep it; the stream is alive.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes as usize, stream(on)) };
        check("cuMemcpyDtoDAsync_v2", result)
    }

    fn fill(&self, to: u64, byte: u8, bytes: u64, on: Stream) -> Driven<()> {
        // SAFETY: the range lies in memory whose owner keeps it; the stream is alive.
        let result = unsafe { sys::cuMemsetD8Async(to, byte, bytes as usize, stream(on)) };
        check("cuMemsetD8Async", result)
    }

    fn reset_persisting_cache(&self) -> Driven<()> {
        // SAFETY: it takes no argument; the context is current.
        check("cuCtxResetPersistingL2Cache", unsafe { sys::cuCtxResetPersistingL2Cache() })
    }

    fn load(&self, ptx: &'static CStr, names: &[&CStr]) -> Driven<Vec<Function>> {
        let text = ptx.as_ptr() as usize;
        if let Some(functions) = self.0.loaded.borrow().get(&text) {
            return Ok(functions.clone());
        }
        let mut module = std::ptr::null_mut();
        // SAFETY: `module` is writable, and PTX is text with a closing zero.
        let loaded = unsafe { sys::cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()) };
        check("cuModuleLoadData", loaded)?;
        let mut functions = Vec::with_capacity(names.len());
        for name in names {
            let mut function = std::ptr::null_mut();
            // SAFETY: `function` is writable, the module was just loaded and is never unloaded
            // before the context ends, and the name has a closing zero.
            let found =
                unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
            check("cuModuleGetFunction", found)?;
            functions.push(Function::new(function as usize));
        }
        self.0.loaded.borrow_mut().insert(text, functions.clone());
        Ok(functions)
    }

    fn launch(
        &self,
        kernel: Function,
        blocks: u32,
        threads: u32,
        parameters: &[u64],
        on: Stream,
    ) -> Driven<()> {
        let mut values = parameters.to_vec();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let kernel = kernel.raw() as sys::CUfunction;
        // SAFETY: kernel and stream are alive; each pointer is to a parameter of 64 bits, which is
        // what every kernel of this crate takes (`kernels.rs` holds their number), and the driver
        // copies them before it returns.
        let result = unsafe {
            sys::cuLaunchKernel(
                kernel,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream(on),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check("cuLaunchKernel", result)
    }

    fn loaded_code(&self) -> Result<LoadedCode, DeviceError> {
        // The driver tells no number of loaded modules. Whatever compiles one in this process loads
        // host code for it, too: a library of the compiler, or the launcher that it made. The memory
        // map of a process with a device takes tens of milliseconds to read, twice a turn; the
        // loader's own counts take none.
        Ok(loaded_objects())
    }

    fn host_now_ns(&self) -> Result<u64, DeviceError> {
        monotonic_raw_ns()
    }
}

/// How many shared objects the loader has added so far, with those that it took away as the fingerprint.
fn loaded_objects() -> LoadedCode {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _bytes: libc::size_t,
        counts: *mut c_void,
    ) -> libc::c_int {
        // SAFETY: the loader gives a valid structure, and the counts are the caller's below.
        unsafe {
            let info = &*info;
            *counts.cast::<LoadedCode>() =
                LoadedCode { count: info.dlpi_adds, fingerprint: info.dlpi_subs };
        }
        // The counts are the same in every object's structure.
        1
    }
    let mut counts = LoadedCode::default();
    // SAFETY: the callback writes the counts, which live here, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counts).cast()) };
    counts
}
