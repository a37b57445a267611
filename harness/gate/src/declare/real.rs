//! Cells whose inputs come from a file of real tensors.

use std::collections::BTreeMap;

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::catalog::{Operator, Role};
use proofhouse_schema::gate::Inputs;
use proofhouse_schema::units::Wide;

use super::fault::Fault;
use super::resolve::Resolver;
use super::spec::{CellsSpec, FileSpec};
use super::tensors;

/// What is known of a file that was read.
#[derive(Clone)]
pub(super) struct FileFacts {
    sha256: Digest,
    tensors: BTreeMap<String, tensors::FileTensor>,
}

impl Resolver<'_> {
    /// Adds the extents that follow from the file, and refuses those that contradict it.
    pub(super) fn infer(
        &mut self,
        operator: &Operator,
        file: &FileSpec,
        axes: &mut BTreeMap<String, Vec<u64>>,
    ) -> Option<()> {
        let facts = self.facts(file)?;
        let shapes: Vec<(&str, &[u64])> = file
            .tensors
            .iter()
            .filter_map(|(ours, theirs)| {
                Some((ours.value.as_str(), facts.tensors.get(&theirs.value)?.shape.as_slice()))
            })
            .collect();
        let mut dims: BTreeMap<String, u64> = BTreeMap::new();
        for (name, axis) in axes.iter() {
            if let [only] = axis.as_slice() {
                dims.insert(name.clone(), *only);
            }
        }
        if let Err(found) = tensors::infer(operator, &shapes, &mut dims) {
            let accepted = "every extent must follow from the file's tensors alike".to_owned();
            self.sink.push(file.span.clone(), Fault::Tensor { found, accepted });
            return None;
        }
        for (name, extent) in dims {
            if operator.dims.iter().any(|dim| dim.name == name) {
                axes.entry(name).or_insert_with(|| vec![extent]);
            }
        }
        Some(())
    }

    fn facts(&mut self, file: &FileSpec) -> Option<FileFacts> {
        let path = &file.path.value;
        if let Some(known) = self.read.get(path) {
            return known.clone();
        }
        let read =
            self.bindings.files.read(path).map_err(|error| error.to_string()).and_then(|bytes| {
                let tensors = tensors::header(&bytes)?;
                Ok(FileFacts { sha256: Digest::of(&bytes), tensors })
            });
        let facts = match read {
            Ok(facts) => Some(facts),
            Err(why) => {
                self.sink.push(file.path.span.clone(), Fault::Unreadable { why });
                None
            }
        };
        self.read.insert(path.clone(), facts.clone());
        facts
    }

    /// The inputs of cells with a file, with the words that name them in keys; empty for others, `None` after an error.
    pub(super) fn file_inputs(
        &mut self,
        operator: &Operator,
        cells: &CellsSpec,
    ) -> Option<Vec<(String, Inputs)>> {
        let Some(file) = &cells.file else { return Some(Vec::new()) };
        let facts = self.facts(file)?;
        let ours: Vec<String> = operator
            .tensors
            .iter()
            .filter(|tensor| tensor.role != Role::Out)
            .map(|tensor| tensor.name.clone())
            .collect();
        let theirs: Vec<String> = facts.tensors.keys().cloned().collect();
        for (our, their) in &file.tensors {
            self.check_names("input tensor of this operator", std::slice::from_ref(our), &ours);
            self.check_names("tensor of this file", std::slice::from_ref(their), &theirs);
        }
        let path = file.path.value.clone();
        let stem = path.rsplit('/').next().unwrap_or(&path).trim_end_matches(".safetensors");
        let named: Vec<String> =
            file.tensors.iter().map(|(o, t)| format!("{}={}", o.value, t.value)).collect();
        let word = format!("{stem}:{}", named.join(","));
        let tensors =
            file.tensors.iter().map(|(o, t)| (o.value.clone(), t.value.clone())).collect();
        let seed = Wide(cells.seed);
        Some(vec![(word, Inputs::File { path, sha256: facts.sha256, tensors, seed })])
    }
}
