//! Expected outputs and comparisons of a large case, runs of rows side by side: rows do not depend on each other.

use std::ops::Range;

use proofhouse_contract::spec::Extent;
use proofhouse_contract::{
    AlignedBytes, Call, Comparison, Element, Judging, Mode, OwnedTensor, TensorLayout, TensorSpec,
    TensorView, expected_outputs, judge,
};

use crate::master::Master;
use crate::spread::{side_by_side, threads};

/// Elements from which on it is worth several threads.
const SIDE_BY_SIDE: u64 = 1 << 20;

/// What the written tensors hold after a right run; none for a small case, for one whose written tensors have no rows,
/// and for one that the oracle refuses, whose error is to name the row in the whole case.
pub(crate) fn expected_by_rows(master: &Master) -> Option<Vec<OwnedTensor>> {
    expected_in_parts(master, SIDE_BY_SIDE, threads() as u64)
}

fn expected_in_parts(master: &Master, least: u64, threads: u64) -> Option<Vec<OwnedTensor>> {
    let parts = parts_of(&master.call, &master.tensors, least, threads)?;
    let (call, tensors) = (&master.call, &master.tensors);
    let computed = side_by_side(parts.clone(), |rows| expected_of(call, tensors, rows));
    let computed = computed.into_iter().collect::<Option<Vec<_>>>()?;
    Some(joined(master, &parts, &computed))
}

/// Compares every written tensor, as [`judge`] does; none for a small case, for one whose written tensors have no rows,
/// and where a comparison failed, whose error is to be that of the whole case.
pub(crate) fn judge_by_rows(judging: &Judging<'_>) -> Option<Vec<Comparison>> {
    judge_in_parts(judging, SIDE_BY_SIDE, threads() as u64)
}

fn judge_in_parts(judging: &Judging<'_>, least: u64, threads: u64) -> Option<Vec<Comparison>> {
    let parts = parts_of(judging.call, judging.expected, least, threads)?;
    let compared = side_by_side(parts.clone(), |rows| judge_part(judging, &rows));
    let compared = compared.into_iter().collect::<Option<Vec<_>>>()?;
    let mut whole: Option<Vec<Comparison>> = None;
    for (rows, part) in parts.iter().zip(compared) {
        let moved = judging.call.outputs().zip(part);
        let moved = moved.map(|(spec, one)| shifted(one, spec, rows.start)).collect::<Vec<_>>();
        match &mut whole {
            None => whole = Some(moved),
            Some(whole) => whole.iter_mut().zip(moved).for_each(|(all, one)| merge(all, one)),
        }
    }
    whole
}

/// Runs of rows for several threads; none where one is enough, or where a written tensor has no rows.
fn parts_of(
    call: &Call,
    tensors: &[OwnedTensor],
    least: u64,
    threads: u64,
) -> Option<Vec<Range<u64>>> {
    let rows = call.dim("rows").ok()?;
    let elements = tensors.iter().map(|tensor| tensor.layout.elements()).max()?;
    let all_by_row = call.outputs().all(by_row);
    if rows < 2 || threads < 2 || elements < least || !all_by_row {
        return None;
    }
    let each = rows.div_ceil(threads);
    Some((0..rows).step_by(each as usize).map(|from| from..(from + each).min(rows)).collect())
}

fn judge_part(judging: &Judging<'_>, rows: &Range<u64>) -> Option<Vec<Comparison>> {
    let mut call = judging.call.clone();
    call.dims.insert("rows".to_owned(), rows.end - rows.start);
    let (inputs, outputs) = (|| judging.call.inputs(), || judging.call.outputs());
    let expected: Vec<OwnedTensor> = judging
        .call
        .outputs()
        .zip(judging.expected)
        .map(|(spec, tensor)| {
            let view = part_of(spec, &tensor.view(), rows);
            let mut storage = AlignedBytes::new(view.bytes.len(), 0);
            storage.as_mut_slice().copy_from_slice(view.bytes);
            OwnedTensor { name: tensor.name, layout: view.layout, storage }
        })
        .collect();
    judge(&Judging {
        call: &call,
        inputs: &parts_of_all(inputs(), judging.inputs, rows),
        initial: &parts_of_all(outputs(), judging.initial, rows),
        expected: &expected,
        candidate: &parts_of_all(outputs(), judging.candidate, rows),
    })
    .ok()
}

fn parts_of_all<'a, 's>(
    specs: impl Iterator<Item = &'s TensorSpec>,
    views: &[TensorView<'a>],
    rows: &Range<u64>,
) -> Vec<TensorView<'a>> {
    specs.zip(views).map(|(spec, view)| part_of(spec, view, rows)).collect()
}

/// A comparison of a run of rows, its elements named by their place in the whole tensor.
fn shifted(mut part: Comparison, spec: &TensorSpec, first: u64) -> Comparison {
    let shift = |element: &mut Element| {
        if spec.shape.len() == 1 { element.column += first } else { element.row += first }
    };
    part.worst.iter_mut().for_each(shift);
    part.first_bad.iter_mut().for_each(shift);
    part
}

/// Adds the comparison of the rows that follow.
fn merge(all: &mut Comparison, next: Comparison) {
    if next.max_ulps > all.max_ulps {
        all.worst = next.worst;
    }
    all.elements += next.elements;
    all.finite += next.finite;
    all.class_mismatches += next.class_mismatches;
    all.out_of_tolerance += next.out_of_tolerance;
    all.max_ulps = all.max_ulps.max(next.max_ulps);
    all.max_abs = all.max_abs.max(next.max_abs);
    all.max_rel = all.max_rel.max(next.max_rel);
    all.first_bad.extend(next.first_bad);
    all.first_bad.truncate(Comparison::LISTED);
}

/// Whether a tensor has one row, or one element, for each of the case's.
fn by_row(spec: &TensorSpec) -> bool {
    spec.shape.first() == Some(&Extent::Dim("rows"))
}

/// The same call on a run of its rows.
fn expected_of(call: &Call, tensors: &[OwnedTensor], rows: Range<u64>) -> Option<Vec<OwnedTensor>> {
    let mut part = call.clone();
    part.dims.insert("rows".to_owned(), rows.end - rows.start);
    let views: Vec<(bool, TensorView<'_>)> = call
        .tensors()
        .zip(tensors)
        .map(|(spec, tensor)| (spec.role.is_written(), part_of(spec, &tensor.view(), &rows)))
        .collect();
    let of = |written: bool| -> Vec<TensorView<'_>> {
        views.iter().filter(|(is, _)| *is == written).map(|(_, view)| view.clone()).collect()
    };
    expected_outputs(&part, Mode::Unchecked, &of(false), &of(true)).ok()
}

/// A tensor's run of rows; the whole tensor where it has none.
fn part_of<'a>(spec: &TensorSpec, whole: &TensorView<'a>, rows: &Range<u64>) -> TensorView<'a> {
    if !by_row(spec) {
        return whole.clone();
    }
    let (layout, bytes) = slice(&whole.layout, rows.clone());
    TensorView::new(layout, &whole.bytes[bytes])
}

/// The layout of a run of rows by itself, and where its bytes lie in the storage.
fn slice(layout: &TensorLayout, rows: Range<u64>) -> (TensorLayout, Range<usize>) {
    let size = layout.dtype.size();
    let count = rows.end - rows.start;
    let mut own = TensorLayout { offset: 0, ..layout.clone() };
    if let [_] = layout.shape.as_slice() {
        own.shape = vec![count];
        own.row_stride = count;
        let start = (layout.offset + rows.start) as usize * size;
        return (own, start..start + count as usize * size);
    }
    let inner: u64 = layout.shape[1..layout.shape.len() - 1].iter().product();
    own.shape[0] = count;
    let first = layout.row_range(rows.start * inner).start;
    (own, first..layout.row_range(rows.end * inner - 1).end)
}

/// The runs of rows put together: what lies between elements is as it was before the call.
fn joined(
    master: &Master,
    parts: &[Range<u64>],
    computed: &[Vec<OwnedTensor>],
) -> Vec<OwnedTensor> {
    let written = master.call.tensors().zip(&master.tensors);
    let written = written.filter(|(spec, _)| spec.role.is_written());
    written
        .enumerate()
        .map(|(index, (_, tensor))| {
            let mut whole = tensor.clone();
            for (rows, outputs) in parts.iter().zip(computed) {
                let part = &outputs[index];
                let (_, bytes) = slice(&tensor.layout, rows.clone());
                if let [_] = tensor.layout.shape.as_slice() {
                    whole.storage.as_mut_slice()[bytes].copy_from_slice(part.view().row_bytes(0));
                    continue;
                }
                let first = rows.start * (tensor.layout.rows() / tensor.layout.shape[0].max(1));
                for row in 0..part.layout.rows() {
                    let from = part.view();
                    whole
                        .view_mut()
                        .row_bytes_mut(first + row)
                        .copy_from_slice(from.row_bytes(row));
                }
            }
            whole
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_contract::{Case, CaseTensors, Dtype, Layout, OperatorSpec, ValueClass};

    fn master(operator: &str, dims: &[(&str, u64)], layout: Layout, values: ValueClass) -> Master {
        let spec = proofhouse_contract::find_operator(operator).unwrap();
        let dtype = spec.dtypes[0];
        let call = Call::new(operator, dtype, dims, &[]).unwrap();
        let case = Case { layout, values, ..Case::new(call.clone()) };
        Master::new(call, CaseTensors::generate(&case, 0x11, 0).unwrap().tensors)
    }

    fn seven_rows(spec: &OperatorSpec) -> Vec<(&'static str, u64)> {
        let extent = |name| if name == "rows" { 7 } else { 32 };
        spec.dims.iter().map(|dim| (dim.name, extent(dim.name))).collect()
    }

    #[test]
    fn rows_side_by_side_give_the_bytes_of_all_rows_together() {
        let mut compared = 0;
        for spec in proofhouse_contract::catalog() {
            let dims = seven_rows(spec);
            for layout in Layout::CASES {
                for values in [ValueClass::Normal, ValueClass::HeavyTies] {
                    if !spec.values.contains(&values) {
                        continue;
                    }
                    let master = master(spec.name, &dims, layout, values);
                    let (inputs, initial) = (master.views(false), master.views(true));
                    let whole =
                        expected_outputs(&master.call, Mode::Unchecked, &inputs, &initial).unwrap();
                    for threads in [2, 3, 16] {
                        let parts = expected_in_parts(&master, 1, threads).unwrap();
                        for (part, whole) in parts.iter().zip(&whole) {
                            assert_eq!(
                                part.storage.as_slice(),
                                whole.storage.as_slice(),
                                "{}",
                                spec.name
                            );
                            compared += 1;
                        }
                    }
                }
            }
        }
        assert!(compared > 100, "{compared}");
    }

    /// Changes a bit of row `place`, or of element `place` of a tensor that has one for each row.
    fn spoil(tensor: &mut OwnedTensor, place: u64) {
        let vector = tensor.layout.shape.len() == 1;
        let (row, column) = if vector { (0, place) } else { (place, tensor.layout.width() - 1) };
        let bits = tensor.view().bits(row, column);
        tensor.view_mut().set_bits(row, column, bits ^ 0b1_0000);
    }

    #[test]
    fn rows_side_by_side_are_compared_as_all_rows_together() {
        let mut bad = 0;
        for spec in proofhouse_contract::catalog() {
            let dims = seven_rows(spec);
            for layout in Layout::CASES {
                let master = master(spec.name, &dims, layout, ValueClass::Normal);
                let (inputs, initial) = (master.views(false), master.views(true));
                let expected = master.expected().unwrap();
                for planted in [None, Some(0), Some(3), Some(6)] {
                    let mut found: Vec<OwnedTensor> = expected.to_vec();
                    if let Some(place) = planted {
                        found.iter_mut().for_each(|tensor| spoil(tensor, place));
                    }
                    let candidate: Vec<_> = found.iter().map(OwnedTensor::view).collect();
                    let judging = Judging {
                        call: &master.call,
                        inputs: &inputs,
                        initial: &initial,
                        expected,
                        candidate: &candidate,
                    };
                    let whole = judge(&judging).unwrap();
                    bad += whole.iter().filter(|one| !one.first_bad.is_empty()).count();
                    for threads in [2, 3, 16] {
                        let parts = judge_in_parts(&judging, 1, threads).unwrap();
                        // As text, in which a NaN equals itself.
                        assert_eq!(format!("{parts:?}"), format!("{whole:?}"), "{}", spec.name);
                    }
                }
            }
        }
        assert!(bad > 20, "{bad}");
    }

    #[test]
    fn small_cases_and_single_rows_are_computed_whole() {
        let dims = [("rows", 7), ("hidden", 32)];
        let small = master("rms_norm", &dims, Layout::Contiguous, ValueClass::Normal);
        assert!(expected_by_rows(&small).is_none());
        let dims = [("rows", 1), ("hidden", 32)];
        let single = master("rms_norm", &dims, Layout::Contiguous, ValueClass::Normal);
        assert!(expected_in_parts(&single, 1, 4).is_none());
        assert_eq!(small.call.dtype, Dtype::F32);
    }
}
