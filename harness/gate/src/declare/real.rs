//! Cells whose inputs come from a file of real tensors.

use std::collections::BTreeMap;

use proofhouse_schema::catalog::{Operator, ParamValue, Role, Tensor};
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::gate::Inputs;
use proofhouse_schema::units::Wide;

use super::domain::{Shapes, reaches};
use super::fault::Fault;
use super::resolve::Resolver;
use super::sited::Sited;
use super::spec::{CellsSpec, FileSpec};
use super::tensor_file::{self, FileTensor, TensorFile, TensorFileError};
use super::tensors;

/// Dtypes of a file that the checker converts, by whether they hold real numbers.
const REAL: [&str; 4] = ["F32", "F16", "BF16", "F8_E4M3"];
const WHOLE: [&str; 3] = ["I32", "I64", "U8"];

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
        let several = |(name, extent): (&String, &u64)| {
            let axis = axes.get(name)?;
            let other = axis.iter().find(|written| *written != extent)?;
            Some(format!("`{name}` is {extent} in the file, and {other} among others here"))
        };
        let misfit = match tensors::infer(operator, &shapes, &mut dims) {
            Err(found) => Some(found),
            Ok(()) => dims.iter().find_map(several),
        };
        if let Some(found) = misfit {
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

    fn facts(&mut self, file: &FileSpec) -> Option<TensorFile> {
        let path = &file.path.value;
        if let Some(known) = self.read.get(path) {
            return known.clone();
        }
        let read = self
            .bindings
            .files
            .open(path)
            .map_err(TensorFileError::Read)
            .and_then(|(length, mut bytes)| tensor_file::read(length, &mut *bytes));
        let facts = match read {
            Ok(facts) => Some(facts),
            Err(error) => {
                self.sink.push(file.path.span.clone(), fault(&error));
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
        shapes: &Shapes,
        params: &[(String, Vec<ParamValue>)],
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
            let tensor = operator.tensors.iter().find(|tensor| tensor.name == our.value);
            if let (Some(tensor), Some(found)) = (tensor, facts.tensors.get(&their.value)) {
                self.check_presence(tensor, our, params);
                self.check_dtype(tensor, their, found);
                self.check_contents(operator, tensor, (their, found), shapes);
            }
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

    /// A tensor that is part of a call only with a switch needs the switch in every cell.
    fn check_presence(
        &mut self,
        tensor: &Tensor,
        our: &Sited<String>,
        params: &[(String, Vec<ParamValue>)],
    ) {
        let Some(switch) = &tensor.present_when else { return };
        let axis = params.iter().find(|(name, _)| name == switch);
        let on = |value: &ParamValue| *value == ParamValue::Boolean(true);
        if !axis.is_some_and(|(_, values)| values.iter().all(on)) {
            let found = format!("`{}` is no part of a call without `{switch}`", tensor.name);
            let accepted = format!("write params = {{ {switch} = true }}, or leave the tensor out");
            self.sink.push(our.span.clone(), Fault::Tensor { found, accepted });
        }
    }

    fn check_dtype(&mut self, tensor: &Tensor, their: &Sited<String>, found: &FileTensor) {
        let whole = matches!(tensor.dtype, Some(Dtype::I32 | Dtype::I64 | Dtype::U8));
        let accepted: &[&str] = if whole { &WHOLE } else { &REAL };
        if !accepted.contains(&found.dtype.as_str()) {
            let found = format!("`{}` is {} in the file", tensor.name, found.dtype);
            let accepted = format!("accepted: {}", accepted.join(", "));
            self.sink.push(their.span.clone(), Fault::Tensor { found, accepted });
        }
    }

    /// Refuses contents that leave the oracle nothing finite: all of it, or something in every row that takes the row.
    fn check_contents(
        &mut self,
        operator: &Operator,
        tensor: &Tensor,
        (their, found): (&Sited<String>, &FileTensor),
        shapes: &Shapes,
    ) {
        let Some(classes) = found.classes else { return };
        let by_row = tensor.shape.first().is_some_and(|extent| extent == "rows");
        let rows = found.shape.first().copied().unwrap_or(0);
        if operator.finite_from.is_empty() || found.shape.contains(&0) {
            return;
        }
        let (what, taken) = if classes.finite == 0 {
            ("no finite element".to_owned(), true)
        } else if by_row && classes.rows_without_nan == 0 {
            (format!("a NaN in each of its {rows} rows"), takes_rows(operator, "nan", shapes))
        } else if by_row && classes.finite_rows == 0 {
            let what = format!("a NaN or an infinity in each of its {rows} rows");
            (what, takes_rows(operator, "inf", shapes))
        } else {
            return;
        };
        if taken {
            let found = format!("`{}` has {what}", their.value);
            let accepted = "name a tensor with a row of finite elements".to_owned();
            self.sink.push(their.span.clone(), Fault::NothingFinite { found, accepted });
        }
    }
}

/// Whether a class takes whole rows in some of these cells: nothing but another row helps.
fn takes_rows(operator: &Operator, class: &str, shapes: &Shapes) -> bool {
    operator.finite_from.get(class).is_some_and(|enough| {
        !enough.iter().any(|(dim, extent)| dim != "rows" && reaches(shapes, dim, *extent))
    })
}

fn fault(error: &TensorFileError) -> Fault {
    let mut why = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        why.push_str(&format!(": {cause}"));
    }
    match error {
        TensorFileError::Read(cause) => Fault::Unreadable { why: cause.to_string() },
        _ => Fault::TensorFile { why },
    }
}
