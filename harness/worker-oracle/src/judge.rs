//! A case's file after a run, held against the file as it was posed and against the oracle.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use proofhouse_contract::{Comparison, Element, Judging, Role, TensorLayout, TensorView, judge};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{BadElement, Finding, TensorComparison};
use proofhouse_schema::protocol::Judged;
use proofhouse_schema::real::Real;

use crate::error::CheckerError;
use crate::image::{Image, Slot};
use crate::master::Master;
use crate::rows::judge_by_rows;
use crate::spread;

/// A posed case: what was in its file, and what should be there after a run.
#[derive(Debug)]
pub struct PosedCase {
    /// Contents and expected outputs.
    pub master: Rc<Master>,
    /// The file as it was posed.
    pub image: Rc<Image>,
    /// Whether the case is to be refused; then only what must never change is judged.
    pub refusal: bool,
}

impl PosedCase {
    /// Judges the file's bytes after a run. `rows` are digested one by one.
    ///
    /// # Errors
    /// [`CheckerError::Contract`] when the oracle refuses the case, [`CheckerError::NoSuchRow`].
    pub fn judge(&self, case: &str, bytes: &[u8], rows: &[u64]) -> Result<Judged, CheckerError> {
        let mut findings: Vec<Finding> =
            self.image.slots.iter().flat_map(|slot| self.changes(slot, bytes)).collect();
        let mut judged = Judged {
            case: case.to_owned(),
            outputs: Vec::new(),
            findings: Vec::new(),
            digests: BTreeMap::new(),
            rows: Vec::new(),
        };
        if !self.refusal {
            findings.extend(self.unwritten(bytes)?);
            judged.outputs = self.compare(bytes)?;
            let written = self.written().collect();
            let digest = |slot: &Slot| (slot.name.to_owned(), digest(slot, bytes));
            judged.digests = spread::side_by_side(written, digest).into_iter().collect();
            judged.rows =
                rows.iter().map(|row| self.row_digest(*row, bytes)).collect::<Result<_, _>>()?;
        }
        judged.findings = findings;
        Ok(judged)
    }

    /// The tensors that a run writes, in calling order.
    pub fn written(&self) -> impl Iterator<Item = &Slot> {
        self.image.slots.iter().filter(|slot| slot.role.is_written())
    }

    /// sha256 of each tensor's elements before the run, where the run reads them.
    #[must_use]
    pub fn input_digests(&self) -> BTreeMap<String, Digest> {
        self.master.input_digests().clone()
    }

    /// Guards, gaps and inputs that are not as they were posed.
    fn changes(&self, slot: &Slot, bytes: &[u8]) -> Vec<Finding> {
        let posed = &self.image.bytes;
        if spread::same(&bytes[slot.buffer.clone()], &posed[slot.buffer.clone()]) {
            return Vec::new();
        }
        let mut findings = Vec::new();
        let mut find = |code: &str, what: &str, ranges: &[Range<usize>]| {
            let changed = || ranges.iter().cloned().flatten().filter(|at| bytes[*at] != posed[*at]);
            if let Some(first) = changed().next() {
                let name = slot.name;
                let place = first as i64 - slot.storage.start as i64;
                let detail = format!(
                    "{what} of `{name}`: {} bytes changed, the first at byte {place} of its storage",
                    changed().count()
                );
                findings.push(Finding { code: code.to_owned(), detail });
            }
        };
        let guards = [slot.buffer.start..slot.storage.start, slot.storage.end..slot.buffer.end];
        find("guard-overwritten", "guards", &guards);
        find("padding-overwritten", "gaps between the elements", &slot.gaps());
        if slot.role == Role::In {
            find("input-changed", "elements", &slot.rows().collect::<Vec<_>>());
        }
        findings
    }

    /// Elements of outputs that still hold the poison where the oracle has something else.
    fn unwritten(&self, bytes: &[u8]) -> Result<Vec<Finding>, CheckerError> {
        let mut findings = Vec::new();
        for (slot, expected) in self.written().zip(self.master.expected()?) {
            if slot.role != Role::Out {
                continue;
            }
            let rows: Vec<Range<usize>> = slot.rows().collect();
            let view = expected.view();
            let poison = [self.image.poison; 8];
            let poison = &poison[..slot.layout.dtype.size()];
            let unwritten = |run: Range<usize>| {
                let size = poison.len();
                let (mut count, mut first) = (0u64, None);
                for row in run {
                    let found = bytes[rows[row].clone()].chunks_exact(size);
                    let wanted = view.row_bytes(row as u64).chunks_exact(size);
                    for (column, (found, wanted)) in found.zip(wanted).enumerate() {
                        if found == poison && wanted != poison {
                            count += 1;
                            first.get_or_insert((row as u64, column as u64));
                        }
                    }
                }
                (count, first)
            };
            let parts =
                spread::side_by_side(spread::runs(rows.len(), slot.storage.len()), unwritten);
            let count: u64 = parts.iter().map(|(count, _)| count).sum();
            let first = parts.into_iter().find_map(|(_, first)| first);
            if let Some((row, column)) = first {
                let index = index(&slot.layout, row, column);
                findings.push(Finding {
                    code: "unwritten".to_owned(),
                    detail: format!(
                        "`{}`: {count} elements still hold the poison, the first at {index:?}",
                        slot.name
                    ),
                });
            }
        }
        Ok(findings)
    }

    fn compare(&self, bytes: &[u8]) -> Result<Vec<TensorComparison>, CheckerError> {
        let (inputs, initial) = (self.master.views(false), self.master.views(true));
        let candidate: Vec<_> = self.written().map(|slot| view(slot, bytes)).collect();
        let judging = Judging {
            call: &self.master.call,
            inputs: &inputs,
            initial: &initial,
            expected: self.master.expected()?,
            candidate: &candidate,
        };
        let comparisons = match judge_by_rows(&judging) {
            Some(comparisons) => comparisons,
            None => judge(&judging)?,
        };
        let layout = |name: &str| {
            self.written().find(|slot| slot.name == name).map(|slot| slot.layout.clone())
        };
        Ok(comparisons.iter().map(|c| comparison(c, layout(c.tensor))).collect())
    }

    /// sha256 over one row of all outputs.
    fn row_digest(&self, row: u64, bytes: &[u8]) -> Result<Digest, CheckerError> {
        let rows = self.master.call.dim("rows")?;
        if row >= rows {
            return Err(CheckerError::NoSuchRow { row, rows });
        }
        let mut joined = Vec::new();
        for slot in self.written() {
            let view = view(slot, bytes);
            if slot.layout.shape.len() == 1 {
                let size = slot.layout.dtype.size();
                let start = row as usize * size;
                joined.extend_from_slice(&view.row_bytes(0)[start..start + size]);
            } else {
                joined.extend_from_slice(view.row_bytes(row));
            }
        }
        Ok(Digest::of(&joined))
    }
}

/// Whether a judgement says that something is wrong.
#[must_use]
pub fn is_bad(judged: &Judged) -> bool {
    !judged.findings.is_empty()
        || judged.outputs.iter().any(|output| output.class_mismatches + output.out_of_tolerance > 0)
}

fn view<'a>(slot: &Slot, bytes: &'a [u8]) -> TensorView<'a> {
    TensorView::new(slot.layout.clone(), &bytes[slot.storage.clone()])
}

/// sha256 of all elements in row order, with no gaps.
fn digest(slot: &Slot, bytes: &[u8]) -> Digest {
    let rows: Vec<Range<usize>> = slot.rows().collect();
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Digest::of(&[]) };
    if rows.windows(2).all(|pair| pair[0].end == pair[1].start) {
        return Digest::of(&bytes[first.start..last.end]);
    }
    let mut all = Vec::with_capacity(slot.storage.len());
    rows.iter().for_each(|row| all.extend_from_slice(&bytes[row.clone()]));
    Digest::of(&all)
}

/// The index of an element in the tensor's shape.
fn index(layout: &TensorLayout, row: u64, column: u64) -> Vec<u64> {
    let Some((_, outer)) = layout.shape.split_last() else { return Vec::new() };
    let mut index = vec![column];
    let mut rest = row;
    for extent in outer.iter().rev() {
        index.insert(0, rest % (*extent).max(1));
        rest /= (*extent).max(1);
    }
    index
}

fn comparison(found: &Comparison, layout: Option<TensorLayout>) -> TensorComparison {
    let ulps = if found.max_ulps == u64::MAX { f64::INFINITY } else { found.max_ulps as f64 };
    let place = |element: &Element| match &layout {
        Some(layout) => index(layout, element.row, element.column),
        None => vec![element.row, element.column],
    };
    TensorComparison {
        tensor: found.tensor.to_owned(),
        elements: found.elements,
        finite: found.finite,
        class_mismatches: found.class_mismatches,
        out_of_tolerance: found.out_of_tolerance,
        max_ulp: Real(ulps),
        max_abs: Real(found.max_abs),
        max_rel: Real(found.max_rel),
        bad: found
            .first_bad
            .iter()
            .map(|element| BadElement {
                index: place(element),
                expected: Real(element.expected),
                found: Real(element.got),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_contract::Dtype;

    #[test]
    fn an_index_has_one_number_per_axis() {
        let layout = TensorLayout::contiguous(Dtype::F32, &[2, 3, 4]);
        assert_eq!(index(&layout, 5, 1), [1, 2, 1]);
        assert_eq!(index(&TensorLayout::contiguous(Dtype::I64, &[7]), 0, 6), [6]);
    }
}
