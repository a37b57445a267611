//! The mutation battery: planted faults, through the same file and the same judge as a candidate's outputs.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use proofhouse_contract::mutants::Mutant;
use proofhouse_contract::rounding::ulp_distance;
use proofhouse_contract::{OwnedTensor, Role, TensorView};
use proofhouse_schema::evidence::QualificationScore;
use proofhouse_schema::protocol::Poison;

use crate::error::CheckerError;
use crate::image::{Image, Slot};
use crate::judge::{PosedCase, is_bad};
use crate::master::Master;

/// A wrong file.
struct Spoiled {
    name: String,
    bytes: Vec<u8>,
    /// Whether no value and no byte that must not change is wrong.
    equivalent: bool,
}

/// Runs the battery on a case; `other` is the same case with other contents.
///
/// # Errors
/// Those of posing and judging.
pub fn qualify(
    master: &Rc<Master>,
    other: &Rc<Master>,
    scratch: &Path,
) -> Result<QualificationScore, CheckerError> {
    let mut score = QualificationScore {
        killed: 0,
        mutants: 0,
        equivalent: 0,
        false_alarms: 0,
        survivors: Vec::new(),
    };
    let scratch = Scratch(scratch.to_owned());
    for poison in [Poison::A, Poison::B] {
        let image = master.image(poison)?;
        let posed = PosedCase { master: Rc::clone(master), image, refusal: false };
        let honest = with_outputs(&posed, master.expected()?);
        if scratch.is_called_wrong(&posed, &honest)? {
            score.false_alarms += 1;
        }
        for spoiled in battery(&posed, &honest, other.expected()?) {
            if scratch.is_called_wrong(&posed, &spoiled.bytes)? {
                score.mutants += 1;
                score.killed += 1;
            } else if spoiled.equivalent {
                score.equivalent += 1;
            } else {
                score.mutants += 1;
                score.survivors.push(format!("{} ({poison:?})", spoiled.name));
            }
        }
    }
    Ok(score)
}

/// A file that goes when the battery is over.
struct Scratch(PathBuf);

impl Scratch {
    /// Poses the case, puts the bytes into its file as a candidate would, and judges the file.
    fn is_called_wrong(&self, posed: &PosedCase, bytes: &[u8]) -> Result<bool, CheckerError> {
        posed.image.write(&self.0)?;
        let Image { slots, header, poison, .. } = &*posed.image;
        let (slots, header, poison) = (slots.clone(), *header, *poison);
        Image { bytes: bytes.to_vec(), slots, header, poison }.write(&self.0)?;
        let found = std::fs::read(&self.0)
            .map_err(|source| CheckerError::Read { path: self.0.clone(), source })?;
        Ok(is_bad(&posed.judge("qualification", &found, &[])?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is a leftover in a scratch folder, and no wrong answer.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The posed file with these outputs in it.
fn with_outputs(posed: &PosedCase, outputs: &[OwnedTensor]) -> Vec<u8> {
    let mut bytes = posed.image.bytes.clone();
    for (slot, output) in posed.written().zip(outputs) {
        put(slot, &output.view(), &mut bytes);
    }
    bytes
}

fn put(slot: &Slot, output: &TensorView<'_>, bytes: &mut [u8]) {
    for (row, range) in (0..).zip(slot.rows()) {
        bytes[range].copy_from_slice(output.row_bytes(row));
    }
}

fn battery(posed: &PosedCase, honest: &[u8], stale: &[OwnedTensor]) -> Vec<Spoiled> {
    let mut all = Vec::new();
    let expected = posed.master.expected().unwrap_or(&[]);
    for ((slot, right), stale) in posed.written().zip(expected).zip(stale) {
        let before = TensorView::new(slot.layout.clone(), &posed.image.bytes[slot.storage.clone()]);
        for mutant in Mutant::ALL {
            if let Some(wrong) = mutant.apply(right, stale, &before) {
                let mut bytes = honest.to_vec();
                put(slot, &wrong.view(), &mut bytes);
                let equivalent = same_values(right, &wrong);
                let name = format!("{} of {}", mutant.name(), slot.name);
                all.push(Spoiled { name, bytes, equivalent });
            }
        }
    }
    for slot in &posed.image.slots {
        all.extend(byte_faults(slot, honest));
    }
    all
}

/// Single bytes that no candidate may touch: next to the storage, far from it, between rows, in an input.
fn byte_faults(slot: &Slot, honest: &[u8]) -> Vec<Spoiled> {
    let mut places = vec![
        ("guard-before", slot.storage.start - 1),
        ("guard-behind", slot.storage.end),
        ("guard-far-before", slot.buffer.start),
        ("guard-far-behind", slot.buffer.end - 1),
    ];
    if let Some(gap) = slot.gaps().first() {
        places.push(("gap", gap.start));
    }
    if slot.role == Role::In
        && let Some(row) = slot.rows().last()
    {
        places.push(("input-changed", row.end - 1));
    }
    places
        .into_iter()
        .map(|(name, place)| {
            let mut bytes = honest.to_vec();
            bytes[place] ^= 1;
            Spoiled { name: format!("{name} of {}", slot.name), bytes, equivalent: false }
        })
        .collect()
}

/// Whether no element differs in value: ±0 are equal, and so are NaNs.
fn same_values(left: &OwnedTensor, right: &OwnedTensor) -> bool {
    let dtype = left.layout.dtype;
    let (left, right) = (left.view(), right.view());
    (0..left.layout.rows()).all(|row| {
        (0..left.layout.width())
            .all(|column| ulp_distance(dtype, left.bits(row, column), right.bits(row, column)) == 0)
    })
}
