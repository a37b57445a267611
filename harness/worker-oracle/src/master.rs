//! Contents and expected outputs of cases, in the checker's own memory, within a bound.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use proofhouse_contract::spec::Extent;
use proofhouse_contract::{
    AlignedBytes, Call, Layout, Mode, OwnedTensor, Role, TensorView, expected_outputs,
};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::protocol::Poison;

use crate::error::CheckerError;
use crate::image::Image;

/// The most bytes that are kept beside the cases that are posed.
const MOST_BYTES: u64 = 512 << 20;

/// The most bytes of a case's tensors together.
pub const MOST_CASE_BYTES: u64 = 1 << 40;
/// Copies of a case's tensors at one time: the masters, the file, the file as it was posed and as it was found, what is
/// expected, and that once more in runs of rows.
const COPIES: u64 = 6;

/// A case's contents, and its expected outputs once somebody asked for them.
#[derive(Debug)]
pub struct Master {
    /// The call.
    pub call: Call,
    /// Every tensor before the run, in calling order; outputs hold zeros.
    pub tensors: Vec<OwnedTensor>,
    expected: OnceCell<Vec<OwnedTensor>>,
    refused_when_checked: OnceCell<bool>,
    input_digests: OnceCell<BTreeMap<String, Digest>>,
    /// The file of each poison, as long as some posed case needs it.
    images: RefCell<[Weak<Image>; 2]>,
}

/// Refuses a call whose tensors fit no memory, before any of it is allocated.
///
/// # Errors
/// The contract's for a call that has no plan, [`CheckerError::TooLarge`], [`CheckerError::NoMemory`].
pub fn check_size(call: &Call, layout: Layout) -> Result<(), CheckerError> {
    let plan = call.plan(layout)?;
    let bytes = plan.tensors.iter().fold(0u64, |sum, tensor| sum.saturating_add(tensor.bytes));
    if bytes > MOST_CASE_BYTES {
        return Err(CheckerError::TooLarge { bytes, accepted: MOST_CASE_BYTES });
    }
    // The allocator refuses what the machine can never have; asking costs nothing, as nothing is written.
    let needed = bytes * COPIES;
    let mut room: Vec<u8> = Vec::new();
    let asked = room.try_reserve_exact(usize::try_from(needed).unwrap_or(usize::MAX));
    asked.map_err(|source| CheckerError::NoMemory { bytes, needed, source })
}

impl Master {
    /// A master whose outputs are not yet computed.
    #[must_use]
    pub fn new(call: Call, tensors: Vec<OwnedTensor>) -> Self {
        Self {
            call,
            tensors,
            expected: OnceCell::new(),
            refused_when_checked: OnceCell::new(),
            input_digests: OnceCell::new(),
            images: RefCell::default(),
        }
    }

    /// The tensors that are written (true) or only read (false), in calling order.
    #[must_use]
    pub fn views(&self, written: bool) -> Vec<TensorView<'_>> {
        let specs = self.call.tensors().zip(&self.tensors);
        specs
            .filter(|(spec, _)| spec.role.is_written() == written)
            .map(|(_, tensor)| tensor.view())
            .collect()
    }

    /// The case's file with that poison; who poses the same case beside others shares it.
    ///
    /// # Errors
    /// [`CheckerError::Json`].
    pub fn image(&self, poison: Poison) -> Result<Rc<Image>, CheckerError> {
        let place = usize::from(poison == Poison::B);
        if let Some(image) = self.images.borrow()[place].upgrade() {
            return Ok(image);
        }
        let image = Rc::new(Image::build(self, poison)?);
        self.images.borrow_mut()[place] = Rc::downgrade(&image);
        Ok(image)
    }

    /// What the written tensors hold after a right run, in calling order. Bad device values are skipped and marked.
    ///
    /// # Errors
    /// [`CheckerError::Contract`].
    pub fn expected(&self) -> Result<&[OwnedTensor], CheckerError> {
        if let Some(expected) = self.expected.get() {
            return Ok(expected);
        }
        let expected = match crate::rows::expected_by_rows(self) {
            Some(expected) => expected,
            None => {
                let (inputs, initial) = (self.views(false), self.views(true));
                expected_outputs(&self.call, Mode::Unchecked, &inputs, &initial)?
            }
        };
        Ok(self.expected.get_or_init(|| expected))
    }

    /// sha256 of each tensor's elements before the run, where the run reads them.
    #[must_use]
    pub fn input_digests(&self) -> &BTreeMap<String, Digest> {
        self.input_digests.get_or_init(|| {
            let read = self.call.tensors().zip(&self.tensors);
            let read = read.filter(|(spec, _)| spec.role != Role::Out);
            let digest = |tensor: &OwnedTensor| (tensor.name.to_owned(), digest_of(tensor));
            read.map(|(_, tensor)| digest(tensor)).collect()
        })
    }

    /// Whether checked mode refuses a value in the tensors: a NaN logit, a token or a probability out of range.
    ///
    /// # Errors
    /// [`CheckerError::Contract`] for a case that is refused for what it is and not for its values.
    pub fn is_refused_when_checked(&self) -> Result<bool, CheckerError> {
        if let Some(known) = self.refused_when_checked.get() {
            return Ok(*known);
        }
        let (inputs, initial) = (self.views(false), self.views(true));
        let refused = match expected_outputs(&self.call, Mode::Checked, &inputs, &initial) {
            Ok(_) => false,
            Err(error) if error.row.is_some() => true,
            Err(error) => return Err(error.into()),
        };
        Ok(*self.refused_when_checked.get_or_init(|| refused))
    }

    /// The same case with one of its rows only.
    ///
    /// # Errors
    /// [`CheckerError::NoSuchRow`], or the contract's.
    pub fn single_row(&self, row: u64, layout: Layout) -> Result<Self, CheckerError> {
        let rows = self.call.dim("rows")?;
        if row >= rows {
            return Err(CheckerError::NoSuchRow { row, rows });
        }
        let mut call = self.call.clone();
        call.dims.insert("rows".to_owned(), 1);
        let mut tensors = Vec::with_capacity(self.tensors.len());
        for (planned, tensor) in call.plan(layout)?.tensors.into_iter().zip(&self.tensors) {
            let by_row = call
                .operator
                .tensor(tensor.name)
                .is_some_and(|spec| spec.shape.first() == Some(&Extent::Dim("rows")));
            if !by_row {
                tensors.push(tensor.clone());
                continue;
            }
            let mut single = OwnedTensor {
                name: planned.name,
                storage: AlignedBytes::new(planned.bytes as usize, 0),
                layout: planned.layout,
            };
            let from = tensor.view();
            if single.layout.shape.len() == 1 {
                single.view_mut().set_bits(0, 0, from.bits(0, row));
            } else {
                single.view_mut().row_bytes_mut(0).copy_from_slice(from.row_bytes(row));
            }
            tensors.push(single);
        }
        Ok(Self::new(call, tensors))
    }

    /// Bytes that the master takes once its outputs are computed.
    fn bytes(&self) -> u64 {
        let of = |written: bool| {
            let views = self.views(written);
            views.iter().map(|view| view.bytes.len() as u64).sum::<u64>()
        };
        of(false) + 2 * of(true)
    }
}

/// sha256 of all elements in row order, with no gaps.
fn digest_of(tensor: &OwnedTensor) -> Digest {
    let layout = &tensor.layout;
    if layout.elements() == 0 {
        return Digest::of(&[]);
    }
    if layout.row_stride == layout.width() {
        let whole = layout.row_range(0).start..layout.row_range(layout.rows() - 1).end;
        return Digest::of(&tensor.view().bytes[whole]);
    }
    Digest::of(&tensor.packed_bytes())
}

/// The masters that were used last.
#[derive(Debug, Default)]
pub struct Masters {
    entries: VecDeque<(Digest, Rc<Master>)>,
    bytes: u64,
}

impl Masters {
    /// The master of that key, made where it is not kept.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get(
        &mut self,
        key: Digest,
        make: impl FnOnce() -> Result<Master, CheckerError>,
    ) -> Result<Rc<Master>, CheckerError> {
        if let Some(place) = self.entries.iter().position(|(known, _)| *known == key)
            && let Some(entry) = self.entries.remove(place)
        {
            let master = Rc::clone(&entry.1);
            self.entries.push_back(entry);
            return Ok(master);
        }
        let master = Rc::new(make()?);
        self.bytes += master.bytes();
        self.entries.push_back((key, Rc::clone(&master)));
        while self.bytes > MOST_BYTES
            && self.entries.len() > 1
            && let Some((_, oldest)) = self.entries.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
        Ok(master)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_contract::{Case, CaseTensors, Dtype, ValueClass};

    fn master(rows: u64) -> Master {
        let call =
            Call::new("rms_norm", Dtype::F32, &[("rows", rows), ("hidden", 8)], &[]).unwrap();
        let tensors = CaseTensors::generate(&Case::new(call.clone()), 0, 0).unwrap().tensors;
        Master::new(call, tensors)
    }

    #[test]
    fn a_single_row_has_that_rows_inputs_and_outputs() {
        let all = master(5);
        let single = all.single_row(3, Layout::Offset { elements: 1 }).unwrap();
        assert_eq!(single.views(false)[0].row_bytes(0), all.views(false)[0].row_bytes(3));
        let (one, five) = (single.expected().unwrap(), all.expected().unwrap());
        assert_eq!(one[0].view().row_bytes(0), five[0].view().row_bytes(3));
        assert!(matches!(
            all.single_row(5, Layout::Contiguous),
            Err(CheckerError::NoSuchRow { row: 5, rows: 5 })
        ));
    }

    #[test]
    fn a_case_that_fits_no_memory_is_refused_before_it_is_made() {
        let call = |rows: u64, hidden: u64| {
            let dims = [("rows", rows), ("hidden", hidden)];
            Call::new("rms_norm", Dtype::F32, &dims, &[]).unwrap()
        };
        let size = |rows, hidden| check_size(&call(rows, hidden), Layout::Contiguous);
        assert!(size(17, 4096).is_ok());
        assert!(matches!(
            size(1 << 20, 1 << 20),
            Err(CheckerError::TooLarge { bytes, accepted: MOST_CASE_BYTES }) if bytes > 1 << 42
        ));
        assert!(matches!(size(1 << 40, 1 << 40), Err(CheckerError::Contract(_))));
        assert!(matches!(size(u64::MAX, u64::MAX), Err(CheckerError::Contract(_))));
    }

    #[test]
    fn values_that_checked_mode_refuses_are_told_from_others() {
        let of = |values, p: f64| {
            let dims = [("rows", 2), ("vocab", 8)];
            let call = Call::new("min_p", Dtype::F32, &dims, &[]).unwrap();
            let case = Case { values, ..Case::new(call.clone()) };
            let mut tensors = CaseTensors::generate(&case, 0, 0).unwrap().tensors;
            tensors[1].view_mut().write_row(0, &[p, 0.5]);
            Master::new(call, tensors).is_refused_when_checked().unwrap()
        };
        assert!(!of(ValueClass::Normal, 0.5));
        assert!(of(ValueClass::Nan, 0.5));
        assert!(of(ValueClass::Normal, 1.5));
    }

    #[test]
    fn masters_are_made_once_and_the_oldest_leave_when_the_bound_is_reached() {
        let key = |name: &str| Digest::of(name.as_bytes());
        let mut masters = Masters::default();
        let first = masters.get(key("a"), || Ok(master(1))).unwrap();
        let again = masters.get(key("a"), || panic!("made twice")).unwrap();
        assert!(Rc::ptr_eq(&first, &again));
        masters.bytes += MOST_BYTES;
        masters.get(key("b"), || Ok(master(2))).unwrap();
        let kept: Vec<_> = masters.entries.iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(kept, [key("b")]);
    }
}
