//! What really runs: the kernels of a captured graph, from the graph itself.

use std::collections::{BTreeMap, BTreeSet};

use proofhouse_timer::Invalid;
use serde::Serialize;

use crate::driver::{Kernel, Node};

/// What a captured graph holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Witness {
    /// Calls that were captured.
    pub calls: u32,
    /// Nodes by kind.
    pub nodes: BTreeMap<&'static str, u64>,
    /// Each different kernel once, in the order of the graph, as `name grid=(x,y,z)
    /// block=(x,y,z)`; then the kinds of the other nodes that move memory, `memcpy` and `memset`.
    pub kernels: Vec<String>,
}

impl Witness {
    pub(crate) fn of(nodes: &[Node], calls: u32) -> Self {
        let mut counts = BTreeMap::new();
        let (mut seen, mut kernels) = (BTreeSet::new(), Vec::new());
        for node in nodes {
            *counts.entry(node.kind).or_insert(0) += 1;
            if let Some(kernel) = &node.kernel {
                let text = describe(kernel);
                if seen.insert(text.clone()) {
                    kernels.push(text);
                }
            }
        }
        for kind in ["memcpy", "memset"] {
            if counts.contains_key(kind) {
                kernels.push(kind.to_owned());
            }
        }
        Self { calls, nodes: counts, kernels }
    }

    /// Whether the graph allocates or frees memory: the driver gives one instance at a time of such a graph.
    pub(crate) fn allocates(&self) -> bool {
        ["memory-allocation", "memory-free"].iter().any(|kind| self.nodes.contains_key(kind))
    }

    /// Why the graph is not what is to be timed, by itself and beside an earlier one of the same
    /// work.
    pub(crate) fn fault(&self, before: Option<&Self>) -> Option<Invalid> {
        let kernels = self.nodes.get("kernel").copied().unwrap_or(0);
        if kernels < u64::from(self.calls) {
            return Some(Invalid::NoKernels { kernels, calls: self.calls });
        }
        let before = before?;
        let only = |ours: &Self, theirs: &Self| -> Vec<String> {
            ours.kernels.iter().filter(|kernel| !theirs.kernels.contains(kernel)).cloned().collect()
        };
        let (gone, new) = (only(before, self), only(self, before));
        let same = gone.is_empty() && new.is_empty();
        (!same).then_some(Invalid::KernelsChanged { gone, new })
    }
}

fn describe(kernel: &Kernel) -> String {
    let ([gx, gy, gz], [bx, by, bz]) = (kernel.grid, kernel.block);
    format!("{} grid=({gx},{gy},{gz}) block=({bx},{by},{bz})", kernel.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, blocks: u32) -> Node {
        let name = name.to_owned();
        let kernel = Kernel { name, grid: [blocks, 1, 1], block: [256, 1, 1] };
        Node { kind: "kernel", kernel: Some(kernel) }
    }

    fn other(kind: &'static str) -> Node {
        Node { kind, kernel: None }
    }

    #[test]
    fn kernels_are_told_once_in_order_and_other_nodes_by_their_kind() {
        let nodes =
            [kernel("b", 1), other("memset"), kernel("a", 2), kernel("b", 1), other("memcpy")];
        let witness = Witness::of(&nodes, 2);
        assert_eq!(
            witness.kernels,
            [
                "b grid=(1,1,1) block=(256,1,1)",
                "a grid=(2,1,1) block=(256,1,1)",
                "memcpy",
                "memset"
            ]
        );
        assert_eq!(witness.nodes, BTreeMap::from([("kernel", 3), ("memcpy", 1), ("memset", 1)]));
        assert_eq!(witness.fault(None), None);
    }

    #[test]
    fn fewer_kernels_than_calls_are_a_fault_whatever_else_is_in_the_graph() {
        let copies = Witness::of(&[other("memcpy"), other("memcpy")], 2);
        assert_eq!(copies.fault(None), Some(Invalid::NoKernels { kernels: 0, calls: 2 }));
        let remembered = Witness::of(&[kernel("a", 1)], 2);
        assert_eq!(remembered.fault(None), Some(Invalid::NoKernels { kernels: 1, calls: 2 }));
    }

    #[test]
    fn another_kernel_or_another_grid_is_a_change_and_another_count_of_calls_is_none() {
        let before = Witness::of(&[kernel("a", 1)], 1);
        let longer = Witness::of(&[kernel("a", 1), kernel("a", 1)], 2);
        assert_eq!(longer.fault(Some(&before)), None);
        let grown = Witness::of(&[kernel("a", 2)], 1);
        let Some(Invalid::KernelsChanged { gone, new }) = grown.fault(Some(&before)) else {
            panic!("not noticed")
        };
        assert_eq!(gone, ["a grid=(1,1,1) block=(256,1,1)"]);
        assert_eq!(new, ["a grid=(2,1,1) block=(256,1,1)"]);
    }
}
