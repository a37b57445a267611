//! A case's files on the device, byte for byte at the same offsets: what the checker put around the tensors is there, too.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use proofhouse_schema::protocol::{Prepare, TensorRef};
use proofhouse_timer_cuda::{Arena, DeviceBuffer};
use proofhouse_worker::descriptor::{byte_range, is_null, refuse_null, refuse_overlap, row_stride};
use proofhouse_worker::reasons::chain;
use proofhouse_worker::{Decline, Region};

use crate::open::OpenedCuda;

/// The files of a case and their images.
#[derive(Debug)]
pub(crate) struct Images {
    files: Vec<Image>,
    /// Where each tensor lies, in the case's order; none for a null pointer.
    places: Vec<Option<(usize, u64)>>,
    strides: Vec<u64>,
}

#[derive(Debug)]
struct Image {
    /// Device and inode, by which a file is known whatever it is called.
    id: (u64, u64),
    file: File,
    device: DeviceBuffer,
    bytes: Vec<u8>,
}

impl Images {
    /// Opens the files and makes room on the device; nothing is copied yet.
    pub(crate) fn open(opened: &OpenedCuda, case: &Prepare) -> Result<Self, Decline> {
        let mut images = Self { files: Vec::new(), places: Vec::new(), strides: Vec::new() };
        let mut arena = Arena::new(&opened.cuda);
        for tensor in &case.tensors {
            images.strides.push(row_stride(case, tensor)?);
            let place = if is_null(tensor) {
                None
            } else {
                Some((images.file(&mut arena, tensor)?, tensor.offset))
            };
            images.places.push(place);
        }
        Ok(images)
    }

    fn file(&mut self, arena: &mut Arena, tensor: &TensorRef) -> Result<usize, Decline> {
        let path = &tensor.file;
        let failed =
            |error: std::io::Error| Decline::Failed(format!("{path} cannot be opened: {error}"));
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let facts = file.metadata().map_err(failed)?;
        let id = (facts.dev(), facts.ino());
        if let Some(known) = self.files.iter().position(|image| image.id == id) {
            return Ok(known);
        }
        let device = arena.cut(facts.len(), 0).map_err(|error| no_memory(&error))?;
        let bytes = vec![0; facts.len() as usize];
        self.files.push(Image { id, file, device, bytes });
        Ok(self.files.len() - 1)
    }

    /// Where the tensors lie on the device, in the case's order; address 0 for a null pointer.
    pub(crate) fn regions(&self, case: &Prepare) -> Vec<Region> {
        let each = case.tensors.iter().zip(&self.places).zip(&self.strides);
        each.map(|((tensor, place), row_stride)| {
            let address = place
                .map_or(0, |(file, offset)| self.files[file].device.address().wrapping_add(offset));
            Region { address, bytes: tensor.span, row_stride: *row_stride }
        })
        .collect()
    }

    /// Refuses what no provider may touch: null pointers, memory outside the file, regions that are shared and written.
    pub(crate) fn refuse(&self, case: &Prepare) -> Result<(), Decline> {
        refuse_null(case)?;
        let mut places = Vec::new();
        for (tensor, place) in case.tensors.iter().zip(&self.places) {
            let file = place.map_or(0, |(file, _)| file);
            places.push((file, byte_range(case, tensor, self.files[file].bytes.len())?));
        }
        refuse_overlap(case, &places)
    }

    /// Copies the files to the device.
    pub(crate) fn load(&mut self) -> Result<(), Decline> {
        for image in &mut self.files {
            image.file.read_exact_at(&mut image.bytes, 0).map_err(|e| unreadable(&e))?;
            image.device.upload(&image.bytes).map_err(|error| driver(&error))?;
        }
        Ok(())
    }

    /// Copies the device's bytes into the files.
    pub(crate) fn store(&mut self) -> Result<(), Decline> {
        for image in &mut self.files {
            image.device.download(&mut image.bytes).map_err(|error| driver(&error))?;
            image.file.write_all_at(&image.bytes, 0).map_err(|e| unreadable(&e))?;
        }
        Ok(())
    }

    /// The bytes that a tensor has in its file now.
    pub(crate) fn read(&self, index: usize, tensor: &TensorRef) -> Result<Vec<u8>, Decline> {
        let mut bytes = vec![0; tensor.span as usize];
        if let Some((file, offset)) = self.places[index] {
            self.files[file].file.read_exact_at(&mut bytes, offset).map_err(|e| unreadable(&e))?;
        }
        Ok(bytes)
    }

    /// Writes a part of a tensor into its file, `from` bytes after its first element.
    pub(crate) fn write(&self, index: usize, from: u64, bytes: &[u8]) -> Result<(), Decline> {
        match self.places[index] {
            Some((file, offset)) => {
                let written = self.files[file].file.write_all_at(bytes, offset + from);
                written.map_err(|error| unreadable(&error))
            }
            None => Ok(()),
        }
    }
}

pub(crate) fn driver(error: &dyn std::error::Error) -> Decline {
    Decline::Failed(chain(error))
}

fn no_memory(error: &dyn std::error::Error) -> Decline {
    Decline::Failed(format!("no device memory: {error}"))
}

fn unreadable(error: &std::io::Error) -> Decline {
    Decline::Failed(format!("the case's file: {error}"))
}
