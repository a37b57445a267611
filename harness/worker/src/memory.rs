//! Memory that calls borrow: mapped files and private pieces, each owned beside the call that borrows it.
//!
//! With `arena`, this is the one module with unsafe code. [`Bound`] is a call together with the memory that its slices point into;
//! the call is dropped first, and nobody else reaches the memory while it lives.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;

use memmap2::MmapMut;
use proofhouse_schema::protocol::{Prepare, TensorRef};

use crate::arena::{Arena, Piece};
use crate::decline::Decline;
use crate::descriptor::{byte_range, is_null, is_written, refuse_null, refuse_overlap, row_stride};
use crate::provider::{Call, Region, Worker};
use crate::tensor::{Storage, Tensor};

/// A cache line, in bytes.
const LINE: usize = 64;

/// A call and the memory that it borrows.
pub(crate) struct Bound {
    // Declared first, so dropped first: it borrows from `memory`. None only while a private case is renewed, and
    // after that failed.
    call: Option<Box<dyn Call>>,
    memory: Memory,
}

/// Owned memory whose addresses do not change when the owner moves.
enum Memory {
    Mapped(Vec<MmapMut>),
    Private(Vec<Piece>),
}

impl Bound {
    /// The call.
    ///
    /// # Panics
    /// After a renewal that failed; the session then forgets the case.
    pub(crate) fn call(&mut self) -> &mut dyn Call {
        self.call.as_deref_mut().expect("a case that could not be renewed is not used again")
    }

    /// Maps the files of a case, lets the provider examine the regions, and binds the case to them.
    pub(crate) fn mapped(worker: &mut dyn Worker, case: &Prepare) -> Result<Self, Decline> {
        let mut files = Files::default();
        let mut numbers = Vec::with_capacity(case.tensors.len());
        let mut regions = Vec::with_capacity(case.tensors.len());
        for tensor in &case.tensors {
            let row_stride = row_stride(case, tensor)?;
            let (number, address) = files.open(tensor)?;
            regions.push(Region { address, bytes: tensor.span, row_stride });
            numbers.push(number);
        }
        worker.examine(case, &regions)?;
        refuse_null(case)?;
        let mut places = Vec::with_capacity(numbers.len());
        for (number, tensor) in numbers.into_iter().zip(&case.tensors) {
            places.push((number, byte_range(case, tensor, files.maps[number].len())?));
        }
        refuse_overlap(case, &places)?;
        let bases: Vec<_> = files.maps.iter_mut().map(|map| map.as_mut_ptr()).collect();
        // SAFETY: each range lies inside its mapping (`byte_range`), no two mappings are of one file, and written
        // ranges are disjoint from all others (`refuse_overlap`); the mappings are owned by the `Bound` below and
        // outlive its call. Another process writes the file only between two requests, and a file that is cut short
        // ends this process with a signal.
        let tensors = unsafe { slices(case, &bases, &places) }?;
        let call = worker.bind(case, tensors)?;
        Ok(Self { call: Some(call), memory: Memory::Mapped(files.maps) })
    }

    /// Binds a case to private copies of its tensors, each as far from a cache line as the original; `contents` holds
    /// each tensor's bytes, in order.
    pub(crate) fn private(
        worker: &mut dyn Worker,
        case: &Prepare,
        contents: &[Vec<u8>],
        arena: &mut Arena,
    ) -> Result<Self, Decline> {
        let mut pieces = Vec::with_capacity(contents.len());
        for (tensor, bytes) in case.tensors.iter().zip(contents) {
            let skew = (tensor.offset % LINE as u64) as usize;
            let none =
                |error: std::io::Error| Decline::Failed(format!("no memory for a copy: {error}"));
            let mut piece = arena.cut(bytes.len(), skew).map_err(none)?;
            piece.fill(bytes);
            pieces.push(piece);
        }
        let mut bound = Self { call: None, memory: Memory::Private(pieces) };
        bound.bind_pieces(worker, case)?;
        Ok(bound)
    }

    /// Writes other contents into private copies, at the same addresses, and binds them again.
    pub(crate) fn renew(
        &mut self,
        worker: &mut dyn Worker,
        case: &Prepare,
        contents: &[Vec<u8>],
    ) -> Result<(), Decline> {
        // The old call borrows from the pieces.
        self.call = None;
        if let Memory::Private(pieces) = &mut self.memory {
            for (piece, bytes) in pieces.iter_mut().zip(contents) {
                piece.fill(bytes);
            }
        }
        self.bind_pieces(worker, case)
    }

    fn bind_pieces(&mut self, worker: &mut dyn Worker, case: &Prepare) -> Result<(), Decline> {
        let Memory::Private(pieces) = &mut self.memory else { return Ok(()) };
        let places: Vec<_> =
            pieces.iter().enumerate().map(|(place, piece)| (place, 0..piece.len())).collect();
        let bases: Vec<_> = pieces.iter_mut().map(Piece::base).collect();
        // SAFETY: each range is a whole piece, and pieces are disjoint; no call
        // borrows from the pieces now, they are owned by this `Bound`, never resized, and outlive its call.
        let tensors = unsafe { slices(case, &bases, &places) }?;
        self.call = Some(worker.bind(case, tensors)?);
        Ok(())
    }
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, count) = match &self.memory {
            Memory::Mapped(maps) => ("mapped", maps.len()),
            Memory::Private(pieces) => ("private", pieces.len()),
        };
        write!(f, "Bound({count} {kind})")
    }
}

/// The mapped files of a case, each once, whatever it is called.
#[derive(Default)]
struct Files {
    ids: Vec<(u64, u64)>,
    maps: Vec<MmapMut>,
}

impl Files {
    /// Maps the tensor's file where that is not done yet; gives its number and the tensor's address.
    fn open(&mut self, tensor: &TensorRef) -> Result<(usize, u64), Decline> {
        if is_null(tensor) {
            return Ok((usize::MAX, 0));
        }
        let path = &tensor.file;
        let failed =
            |error: std::io::Error| Decline::Failed(format!("{path} cannot be mapped: {error}"));
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let facts = file.metadata().map_err(failed)?;
        let id = (facts.dev(), facts.ino());
        let number = match self.ids.iter().position(|known| *known == id) {
            Some(number) => number,
            None => {
                self.maps.push(map(&file).map_err(failed)?);
                self.ids.push(id);
                self.ids.len() - 1
            }
        };
        let address = self.maps[number].as_ptr() as usize as u64;
        Ok((number, address.wrapping_add(tensor.offset)))
    }
}

fn map(file: &File) -> std::io::Result<MmapMut> {
    // SAFETY: the map is of a file on memory that supervisor and checker own and keep at its size while it is mapped;
    // they write into it only while no request is under way. The bytes have no invalid values.
    unsafe { MmapMut::map_mut(file) }
}

/// Tensors over the given regions.
///
/// # Safety
/// Each region lies inside the allocation that starts at its base, writable regions are disjoint from all others,
/// and the allocations outlive the call that the tensors are bound to.
unsafe fn slices(
    case: &Prepare,
    bases: &[*mut u8],
    regions: &[(usize, Range<usize>)],
) -> Result<Vec<Tensor<'static>>, Decline> {
    let mut tensors = Vec::with_capacity(regions.len());
    for (tensor, (file, region)) in case.tensors.iter().zip(regions) {
        let row_stride = row_stride(case, tensor)?;
        let length = region.len();
        // SAFETY: the region is inside the allocation (this function's contract).
        let start = unsafe { bases[*file].add(region.start) };
        let storage = if is_written(tensor) {
            // SAFETY: in bounds, and no other slice shares these bytes (this function's contract).
            Storage::Write(unsafe { std::slice::from_raw_parts_mut(start, length) })
        } else {
            // SAFETY: in bounds, and no writable slice shares these bytes (this function's contract).
            Storage::Read(unsafe { std::slice::from_raw_parts(start, length) })
        };
        tensors.push(Tensor {
            name: tensor.name.clone(),
            role: tensor.role,
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            row_stride,
            storage,
        });
    }
    Ok(tensors)
}
