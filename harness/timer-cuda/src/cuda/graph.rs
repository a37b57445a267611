//! Graphs of the real driver: what is in one, and how it becomes launchable.

use std::ffi::CStr;

use cudarc::driver::sys;

use super::{check, failed};
use crate::driver::{Driven, DriverError, Kernel, Node};
use crate::handle::{Graph, GraphExec};

/// Kinds of nodes by the driver's number; the fourth holds a graph of its own.
const KINDS: [&str; 14] = [
    "kernel",
    "memcpy",
    "memset",
    "host",
    "child-graph",
    "empty",
    "event-wait",
    "event-record",
    "semaphore-signal",
    "semaphore-wait",
    "memory-allocation",
    "memory-free",
    "memory-operations",
    "conditional",
];
const KERNEL: u32 = 0;
const CHILD_GRAPH: u32 = 4;

/// The nodes of a graph and of the graphs in it.
pub(super) fn nodes(graph: Graph) -> Driven<Vec<Node>> {
    let mut nodes = Vec::new();
    list(graph.raw() as sys::CUgraph, &mut nodes)?;
    Ok(nodes)
}

fn list(graph: sys::CUgraph, into: &mut Vec<Node>) -> Driven<()> {
    let mut count = 0;
    // SAFETY: the graph is alive; with a null array the driver only tells the number.
    let counted = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count) };
    check("cuGraphGetNodes", counted)?;
    if count == 0 {
        // The driver refuses an array without room.
        return Ok(());
    }
    let mut handles = vec![std::ptr::null_mut(); count];
    // SAFETY: the array has room for as many nodes as is told.
    let listed = unsafe { sys::cuGraphGetNodes(graph, handles.as_mut_ptr(), &raw mut count) };
    check("cuGraphGetNodes", listed)?;
    handles.truncate(count);
    for node in handles {
        let mut kind = u32::MAX;
        // SAFETY: the node is one of the graph's, and the kind is an enum of 32 bits, read as a
        // number because a later driver may know more of them.
        let told = unsafe { sys::cuGraphNodeGetType(node, (&raw mut kind).cast()) };
        check("cuGraphNodeGetType", told)?;
        if kind == CHILD_GRAPH {
            let mut child = std::ptr::null_mut();
            // SAFETY: the node holds a graph, and `child` is writable.
            let found = unsafe { sys::cuGraphChildGraphNodeGetGraph(node, &raw mut child) };
            check("cuGraphChildGraphNodeGetGraph", found)?;
            list(child, into)?;
            continue;
        }
        let kernel = if kind == KERNEL { Some(kernel(node)?) } else { None };
        into.push(Node { kind: KINDS.get(kind as usize).unwrap_or(&"other"), kernel });
    }
    Ok(())
}

fn kernel(node: sys::CUgraphNode) -> Driven<Kernel> {
    let mut facts = sys::CUDA_KERNEL_NODE_PARAMS {
        func: std::ptr::null_mut(),
        gridDimX: 0,
        gridDimY: 0,
        gridDimZ: 0,
        blockDimX: 0,
        blockDimY: 0,
        blockDimZ: 0,
        sharedMemBytes: 0,
        kernelParams: std::ptr::null_mut(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    // SAFETY: the node is a kernel, and `facts` is writable.
    let told = unsafe { sys::cuGraphKernelNodeGetParams_v2(node, &raw mut facts) };
    check("cuGraphKernelNodeGetParams_v2", told)?;
    let mut name = std::ptr::null();
    // SAFETY: the node names its kernel in one of the two ways; `name` is writable.
    let (call, named) = unsafe {
        if facts.func.is_null() {
            ("cuKernelGetName", sys::cuKernelGetName(&raw mut name, facts.kern))
        } else {
            ("cuFuncGetName", sys::cuFuncGetName(&raw mut name, facts.func))
        }
    };
    check(call, named)?;
    if name.is_null() {
        let unknown = sys::CUresult::CUDA_ERROR_UNKNOWN;
        return Err(DriverError { text: "no name was given".to_owned(), ..failed(call, unknown) });
    }
    // SAFETY: not null; the driver keeps the name as long as the kernel is loaded.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    Ok(Kernel {
        name,
        grid: [facts.gridDimX, facts.gridDimY, facts.gridDimZ],
        block: [facts.blockDimX, facts.blockDimY, facts.blockDimZ],
    })
}

pub(super) fn instantiate(graph: Graph) -> Driven<GraphExec> {
    let mut exec = std::ptr::null_mut();
    // SAFETY: the graph is alive, `exec` is writable, and there are no flags.
    let result =
        unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, graph.raw() as sys::CUgraph, 0) };
    check("cuGraphInstantiateWithFlags", result)?;
    Ok(GraphExec::new(exec as usize))
}

pub(super) fn destroy(graph: Graph) -> Driven<()> {
    // SAFETY: the graph was captured by this crate, and its owner gives it up.
    check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph.raw() as sys::CUgraph) })
}
