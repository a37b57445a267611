//! A case's file: a safetensors header, then each tensor's storage between two guards.
//!
//! ```text
//! length of the header (8 bytes) | header, padded with spaces to a multiple of 256 bytes
//! guard (256) | storage, padded to a multiple of 256 | guard (256)      for each tensor
//! ```
//!
//! In the header a tensor is U8 and holds its whole buffer, guards included: geometry travels in the protocol.
//! Bytes of a storage that are no elements hold the poison, and so do all elements of outputs.

use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use proofhouse_contract::{CallPlan, OwnedTensor, Role, TensorLayout, TensorPlan};
use proofhouse_schema::protocol::{Poison, TensorRef};

use crate::convert::{from_dtype, from_role, strides};
use crate::error::CheckerError;
use crate::master::Master;
use crate::spread;

/// Bytes on each side of a tensor's storage.
pub const GUARD: usize = 256;
/// What guards hold, over and over; no byte of it is a poison.
const GUARD_PATTERN: [u8; 4] = [0xc3, 0x3c, 0x96, 0x69];
/// Alignment of every storage in the file, in bytes: that of allocators of device memory, so that no name of a tensor
/// decides how vectors lie across lines of a cache.
const ALIGNMENT: usize = 256;
/// Where a file's first byte is said to lie while its call is planned.
const BASE: u64 = 1 << 40;

/// The byte that stands for a poison.
#[must_use]
pub fn poison_byte(poison: Poison) -> u8 {
    match poison {
        Poison::A => 0xa5,
        Poison::B => 0x5a,
    }
}

/// One tensor's place in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// The tensor.
    pub name: &'static str,
    /// Read, written or both.
    pub role: Role,
    /// Where the elements lie in the storage.
    pub layout: TensorLayout,
    /// Guards and storage, in bytes of the file.
    pub buffer: Range<usize>,
    /// The storage, in bytes of the file.
    pub storage: Range<usize>,
    /// Bytes of the storage that the tensor needs.
    pub needed: u64,
}

impl Slot {
    /// The byte range of each row's elements in the file.
    pub fn rows(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let count = if self.layout.elements() == 0 { 0 } else { self.layout.rows() };
        (0..count).map(|row| {
            let range = self.layout.row_range(row);
            self.storage.start + range.start..self.storage.start + range.end
        })
    }

    /// Fills the storage: what a tensor holds, and poison where it has no elements; without one, poison.
    fn fill(&self, storage: &mut [u8], held: Option<&OwnedTensor>, poison: u8) {
        let rows: Vec<Range<usize>> = self.rows().collect();
        let in_order = rows.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let runs = match spread::runs(rows.len(), storage.len()) {
            runs if in_order && !runs.is_empty() => runs,
            _ => std::iter::once(0..rows.len()).collect(),
        };
        // Each thread has the bytes from its first row to the next thread's.
        let (mut parts, mut rest, mut from) = (Vec::new(), storage, self.storage.start);
        for (index, run) in runs.iter().enumerate() {
            let until = runs.get(index + 1).map_or(self.storage.end, |next| rows[next.start].start);
            let (part, after) = std::mem::take(&mut rest).split_at_mut(until - from);
            parts.push((run.clone(), from, part));
            (rest, from) = (after, until);
        }
        let view = held.map(OwnedTensor::view);
        spread::side_by_side(parts, |(run, from, part)| {
            part.fill(poison);
            if let Some(view) = &view {
                for row in run {
                    let place = rows[row].start - from..rows[row].end - from;
                    part[place].copy_from_slice(view.row_bytes(row as u64));
                }
            }
        });
    }

    /// The byte ranges of the storage that are no elements.
    #[must_use]
    pub fn gaps(&self) -> Vec<Range<usize>> {
        let mut gaps = Vec::new();
        let mut next = self.storage.start;
        for row in self.rows() {
            gaps.push(next..row.start);
            next = row.end;
        }
        gaps.push(next..self.storage.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }
}

/// A case's file as bytes, and where everything lies in it.
#[derive(Debug, Clone)]
pub struct Image {
    /// The file's bytes as they are posed.
    pub bytes: Vec<u8>,
    /// Its tensors, in calling order.
    pub slots: Vec<Slot>,
    /// Length of the header, its size field included.
    pub header: usize,
    /// The byte in outputs.
    pub poison: u8,
}

impl Image {
    /// Lays a case out and fills it.
    ///
    /// # Errors
    /// [`CheckerError::Json`].
    pub fn build(master: &Master, poison: Poison) -> Result<Self, CheckerError> {
        let lengths: Vec<usize> = master.tensors.iter().map(buffer_length).collect();
        let front = header(&master.tensors, &lengths)?;
        let (header, poison) = (front.len(), poison_byte(poison));
        // Zeros that nobody touched take no time, and are then filled by several threads.
        let mut bytes = vec![0; header + lengths.iter().sum::<usize>()];
        bytes[..header].copy_from_slice(&front);
        let (mut slots, mut start) = (Vec::with_capacity(master.tensors.len()), header);
        for ((tensor, length), spec) in
            master.tensors.iter().zip(lengths).zip(master.call.tensors())
        {
            let slot = Slot {
                name: tensor.name,
                role: spec.role,
                layout: tensor.layout.clone(),
                buffer: start..start + length,
                storage: start + GUARD..start + length - GUARD,
                needed: tensor.layout.required_bytes().unwrap_or(0),
            };
            let guard = GUARD_PATTERN.repeat(GUARD / GUARD_PATTERN.len());
            bytes[slot.buffer.start..slot.storage.start].copy_from_slice(&guard);
            bytes[slot.storage.end..slot.buffer.end].copy_from_slice(&guard);
            let held = (spec.role != Role::Out).then_some(tensor);
            slot.fill(&mut bytes[slot.storage.clone()], held, poison);
            slots.push(slot);
            start += length;
        }
        Ok(Self { bytes, slots, header, poison })
    }

    /// The call over this file, as if the file lay at a made-up address.
    #[must_use]
    pub fn plan(&self, master: &Master) -> CallPlan {
        let tensors = self.slots.iter().map(|slot| TensorPlan {
            name: slot.name,
            role: slot.role,
            layout: slot.layout.clone(),
            address: BASE + slot.storage.start as u64,
            bytes: slot.needed,
        });
        CallPlan { call: master.call.clone(), tensors: tensors.collect() }
    }

    /// Writes the file: in place where it is there with the same header and size, else as a new file, so that nobody
    /// who still maps the old one is cut short.
    ///
    /// # Errors
    /// [`CheckerError::Write`].
    pub fn write(&self, path: &Path) -> Result<(), CheckerError> {
        let failed = |source| CheckerError::Write { path: path.to_owned(), source };
        if self.has_same_layout(path) {
            let file = std::fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
            return spread::write(&file, &self.bytes).map_err(failed);
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        let file = std::fs::File::create(&new).map_err(failed)?;
        spread::write(&file, &self.bytes).map_err(failed)?;
        std::fs::rename(&new, path).map_err(failed)
    }

    fn has_same_layout(&self, path: &Path) -> bool {
        let Ok(mut file) = std::fs::File::open(path) else { return false };
        let same_size = file.metadata().is_ok_and(|facts| facts.len() == self.bytes.len() as u64);
        let mut header = vec![0; self.header];
        same_size && file.read_exact(&mut header).is_ok() && header == self.bytes[..self.header]
    }
}

/// The descriptors of a planned call, as the candidate gets them.
#[must_use]
pub fn tensor_refs(plan: &CallPlan, path: &Path) -> Vec<TensorRef> {
    let file = path.to_string_lossy();
    plan.tensors
        .iter()
        .map(|tensor| {
            let lead = tensor.layout.offset.wrapping_mul(tensor.layout.dtype.size() as u64);
            let null = tensor.address == 0;
            TensorRef {
                name: tensor.name.to_owned(),
                role: from_role(tensor.role),
                dtype: from_dtype(tensor.layout.dtype),
                shape: tensor.layout.shape.clone(),
                strides: strides(&tensor.layout),
                file: if null { String::new() } else { file.clone().into_owned() },
                offset: if null { 0 } else { tensor.first_element().wrapping_sub(BASE) },
                span: tensor.bytes.saturating_sub(lead),
                guard: GUARD as u64,
            }
        })
        .collect()
}

fn buffer_length(tensor: &OwnedTensor) -> usize {
    let needed = tensor.layout.required_bytes().unwrap_or(0) as usize;
    needed.next_multiple_of(ALIGNMENT) + 2 * GUARD
}

fn header(tensors: &[OwnedTensor], lengths: &[usize]) -> Result<Vec<u8>, CheckerError> {
    let mut entries = serde_json::Map::new();
    let mut offset = 0;
    for (tensor, length) in tensors.iter().zip(lengths) {
        entries.insert(
            tensor.name.to_owned(),
            serde_json::json!({
                "dtype": "U8", "shape": [length], "data_offsets": [offset, offset + length],
            }),
        );
        offset += length;
    }
    let mut text = serde_json::to_vec(&entries)?;
    text.resize((8 + text.len()).next_multiple_of(ALIGNMENT) - 8, b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_contract::{Call, Case, CaseTensors, Dtype, Layout};

    fn master(layout: Layout) -> Master {
        let call = Call::new("rms_norm", Dtype::F16, &[("rows", 3), ("hidden", 5)], &[]).unwrap();
        let case = Case { layout, ..Case::new(call.clone()) };
        Master::new(call, CaseTensors::generate(&case, 0, 0).unwrap().tensors)
    }

    #[test]
    fn the_file_is_safetensors_with_aligned_guarded_storage() {
        let image = Image::build(&master(Layout::Packed { side: 5 }), Poison::A).unwrap();
        let file = safetensors::SafeTensors::deserialize(&image.bytes).unwrap();
        assert_eq!(file.len(), 3);
        for slot in &image.slots {
            assert_eq!(slot.storage.start % ALIGNMENT, 0);
            assert_eq!(file.tensor(slot.name).unwrap().data(), &image.bytes[slot.buffer.clone()]);
            assert_eq!(slot.storage.start - slot.buffer.start, GUARD);
            assert_eq!(slot.buffer.end - slot.storage.end, GUARD);
            assert!(image.bytes[slot.buffer.start..slot.storage.start].starts_with(&GUARD_PATTERN));
        }
    }

    #[test]
    fn gaps_and_rows_together_are_the_storage_and_outputs_are_all_poison() {
        let image = Image::build(&master(Layout::RowStrided { pad: 8 }), Poison::B).unwrap();
        for slot in &image.slots {
            let lengths = slot.gaps().into_iter().chain(slot.rows()).map(|range| range.len());
            assert_eq!(lengths.sum::<usize>(), slot.storage.len());
            let poisoned = slot.gaps().into_iter().flatten().all(|at| image.bytes[at] == 0x5a);
            assert!(poisoned, "{}", slot.name);
        }
        let y = &image.slots[2];
        assert!(image.bytes[y.storage.clone()].iter().all(|byte| *byte == 0x5a));
    }

    #[test]
    fn the_planned_call_of_a_posed_case_is_valid_and_its_descriptors_lie_in_the_file() {
        for layout in Layout::CASES {
            let master = master(layout);
            let image = Image::build(&master, Poison::A).unwrap();
            let plan = image.plan(&master);
            plan.validate().unwrap();
            for tensor in tensor_refs(&plan, Path::new("/f")) {
                assert!(tensor.offset + tensor.span <= image.bytes.len() as u64);
            }
        }
    }

    #[test]
    fn a_large_file_that_several_threads_filled_is_that_of_one() {
        let call =
            Call::new("rms_norm", Dtype::F32, &[("rows", 5000), ("hidden", 501)], &[]).unwrap();
        for layout in
            [Layout::Contiguous, Layout::RowStrided { pad: 7 }, Layout::Packed { side: 3 }]
        {
            let case = Case { layout, ..Case::new(call.clone()) };
            let master =
                Master::new(call.clone(), CaseTensors::generate(&case, 0, 0).unwrap().tensors);
            let image = Image::build(&master, Poison::A).unwrap();
            for (slot, tensor) in image.slots.iter().zip(&master.tensors) {
                let gaps = slot.gaps().into_iter().flatten();
                assert!(gaps.into_iter().all(|at| image.bytes[at] == 0xa5), "{layout:?}");
                for (row, range) in (0..).zip(slot.rows()) {
                    let found = &image.bytes[range];
                    let right = match slot.role {
                        Role::Out => found.iter().all(|byte| *byte == 0xa5),
                        _ => found == tensor.view().row_bytes(row),
                    };
                    assert!(right, "{layout:?} {} row {row}", slot.name);
                }
            }
        }
    }

    #[test]
    fn a_file_is_rewritten_in_place_only_with_the_same_layout() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("case");
        let inode = || std::fs::metadata(&path).unwrap().ino();
        let first = Image::build(&master(Layout::Contiguous), Poison::A).unwrap();
        first.write(&path).unwrap();
        let (before, held) = (inode(), std::fs::File::open(&path).unwrap());
        let second = Image::build(&master(Layout::Contiguous), Poison::B).unwrap();
        second.write(&path).unwrap();
        assert_eq!(inode(), before);
        assert_eq!(std::fs::read(&path).unwrap(), second.bytes);
        let other = Image::build(&master(Layout::RowStrided { pad: 64 }), Poison::A).unwrap();
        other.write(&path).unwrap();
        assert_ne!(inode(), before);
        assert_eq!(held.metadata().unwrap().len(), second.bytes.len() as u64);
    }
}
