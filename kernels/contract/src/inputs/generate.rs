//! Fills tensors of a case.

use crate::call::Call;
use crate::case::Case;
use crate::dtype::Dtype;
use crate::error::{ContractError, ErrorKind};
use crate::inputs::stream::Stream;
use crate::rounding;
use crate::spec::{HugeLimit, Source, TensorSpec};
use crate::tensor::{AlignedBytes, OwnedTensor, TensorMut, TensorView};
use crate::values::ValueClass;

/// All tensors of a case, allocated and filled.
#[derive(Clone, Debug)]
pub struct CaseTensors {
    /// The tensors, in calling order; outputs hold the poison.
    pub tensors: Vec<OwnedTensor>,
}

impl CaseTensors {
    /// Allocates every tensor of a case, fills all storage with `poison`, then the elements of tensors that are
    /// read with their values. `red_zone` bytes of poison follow every tensor.
    ///
    /// # Errors
    /// As [`Case::validate`].
    pub fn generate(case: &Case, poison: u8, red_zone: usize) -> Result<Self, ContractError> {
        let plan = case.validate()?;
        let mut tensors = Vec::with_capacity(plan.tensors.len());
        for planned in plan.tensors {
            let mut tensor = OwnedTensor {
                name: planned.name,
                storage: AlignedBytes::new(planned.bytes as usize + red_zone, poison),
                layout: planned.layout,
            };
            fill(case, planned.name, &mut tensor.view_mut())?;
            tensors.push(tensor);
        }
        Ok(Self { tensors })
    }

    /// Splits the tensors of a call into those only read and those written, each in calling order.
    pub fn split(&mut self, call: &Call) -> (Vec<TensorView<'_>>, Vec<TensorMut<'_>>) {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for tensor in &mut self.tensors {
            let written =
                call.operator.tensor(tensor.name).is_some_and(|spec| spec.role.is_written());
            if written {
                outputs.push(tensor.view_mut());
            } else {
                inputs.push(tensor.view());
            }
        }
        (inputs, outputs)
    }

    /// Readable views of the tensors that the call only reads (`written` false) or writes (true).
    #[must_use]
    pub fn views(&self, call: &Call, written: bool) -> Vec<TensorView<'_>> {
        self.tensors
            .iter()
            .filter(|tensor| {
                call.operator
                    .tensor(tensor.name)
                    .is_some_and(|spec| spec.role.is_written() == written)
            })
            .map(OwnedTensor::view)
            .collect()
    }

    /// The tensor of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OwnedTensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }
}

/// Fills one tensor of a case; a tensor that is only written is left alone.
///
/// # Errors
/// `Unknown` when the operator has no tensor of that name; `Missing` for an id bound that the call lacks.
pub fn fill(
    case: &Case,
    name: &'static str,
    target: &mut TensorMut<'_>,
) -> Result<(), ContractError> {
    let spec = case
        .call
        .operator
        .tensor(name)
        .ok_or_else(|| ContractError::new(case.call.operator.name, name, ErrorKind::Unknown))?;
    let stream = Stream::new(case.seed, name);
    let (rows, width) = (target.layout.rows(), target.layout.width());
    if let Source::Ids(dim) = spec.source {
        let bound = case.call.dim(dim)?;
        for row in 0..rows {
            let ids: Vec<i64> = (row * width..(row + 1) * width)
                .map(|index| stream.below(index, bound) as i64)
                .collect();
            target.write_integers(row, &ids);
        }
        return Ok(());
    }
    let Some(generator) = Generator::new(case, spec, stream, width) else {
        return Ok(());
    };
    let threads = if rows * width < SIDE_BY_SIDE { 1 } else { parallelism().min(rows) };
    let parts = target.split_rows(threads);
    let fill_part = |(first, mut part): (u64, TensorMut<'_>)| {
        let mut values = Vec::with_capacity(width as usize);
        for row in 0..part.layout.rows() {
            values.clear();
            generator.row(first + row, &mut values);
            part.write_row(row, &values);
        }
    };
    std::thread::scope(|scope| {
        let mut parts = parts.into_iter();
        let own = parts.next();
        parts.for_each(|part| {
            scope.spawn(|| fill_part(part));
        });
        own.into_iter().for_each(fill_part);
    });
    Ok(())
}

/// Elements from which on a tensor's rows are filled by several threads; every element is the same whoever makes it.
const SIDE_BY_SIDE: u64 = 1 << 20;

fn parallelism() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// Makes the values of one floating-point tensor.
struct Generator {
    stream: Stream,
    /// The partner's stream, for counterparts of cancelling tensors.
    partner: Option<Stream>,
    class: Option<ValueClass>,
    source: Source,
    dtype: Dtype,
    width: u64,
    spread: f64,
    huge: HugeLimit,
}

impl Generator {
    /// `None` when the tensor has no contents before the call.
    fn new(case: &Case, spec: &TensorSpec, stream: Stream, width: u64) -> Option<Self> {
        let mut generator = Self {
            stream,
            partner: None,
            class: Some(case.values),
            source: spec.source,
            dtype: case.call.dtype_of(spec),
            width,
            spread: 1.0,
            huge: HugeLimit::Finite,
        };
        match spec.source {
            Source::Nothing | Source::Ids(_) => return None,
            Source::Values(huge) => generator.huge = huge,
            Source::Logits => generator.spread = 4.0,
            Source::Counterpart(of, huge) => {
                generator.huge = huge;
                generator.partner = Some(Stream::new(case.seed, of));
            }
            Source::Gains | Source::Probabilities => generator.class = None,
        }
        Some(generator)
    }

    fn row(&self, row: u64, into: &mut Vec<f64>) {
        let indices = row * self.width..(row + 1) * self.width;
        let Some(class) = self.class else {
            match self.source {
                Source::Probabilities => into.extend(indices.map(|index| self.probability(index))),
                _ => into.extend(indices.map(|index| 1.0 + self.stream.normal(index) / 8.0)),
            }
            return;
        };
        match class {
            ValueClass::Normal => into.extend(indices.map(|index| self.normal(index))),
            ValueClass::Uniform => {
                into.extend(indices.map(|index| self.spread * self.stream.uniform(index)));
            }
            ValueClass::AllEqual => into.extend(indices.map(|_| 0.710_937_5)),
            ValueClass::Cancelling => into.extend(indices.map(|index| self.cancelling(index))),
            ValueClass::Huge => {
                let limit = self.huge_limit();
                into.extend(indices.map(|index| self.huge(index, limit)));
            }
            ValueClass::Subnormal => into.extend(indices.map(|index| self.subnormal(index))),
            ValueClass::SignedZero => into.extend(indices.map(|index| self.signed_zero(index))),
            ValueClass::HeavyTies => into
                .extend(indices.map(|index| (self.stream.word(index, 0) >> 62) as f64 / 2.0 - 1.0)),
            ValueClass::MaskedRows => into.extend(indices.map(|index| self.masked(row, index))),
            ValueClass::OneHot => {
                into.extend(indices.map(|_| 0.0));
                self.set_marked(row, 8.0, into);
            }
            ValueClass::Infinite | ValueClass::Nan => {
                into.extend(indices.map(|index| self.normal(index)));
                self.spoil(row, class, into);
            }
        }
    }

    fn normal(&self, index: u64) -> f64 {
        self.spread * self.stream.normal(index)
    }

    fn cancelling(&self, index: u64) -> f64 {
        let residue = self.stream.uniform(index) / 64.0;
        if let Some(partner) = self.partner {
            let base = 64.0 * partner.normal(index & !1);
            let twin =
                if index.is_multiple_of(2) { base } else { partner.uniform(index) / 64.0 - base };
            return residue - twin;
        }
        let base = 64.0 * self.stream.normal(index & !1);
        if index.is_multiple_of(2) { base } else { residue - base }
    }

    fn huge_limit(&self) -> f64 {
        let finite = self.dtype.max_finite();
        let width_bits = 64 - self.width.max(1).leading_zeros();
        let square_sum = finite.min(2f64.powi((122 - width_bits as i32) / 2));
        match self.huge {
            HugeLimit::Finite => finite,
            HugeLimit::SquareSum => square_sum,
            HugeLimit::HalvedSquareSum => square_sum / 2.0,
        }
    }

    fn huge(&self, index: u64, limit: f64) -> f64 {
        let word = self.stream.word(index, 0);
        let fraction = (129 + (word >> 57)) as f64 / 256.0;
        if word & 1 == 1 { -limit * fraction } else { limit * fraction }
    }

    fn subnormal(&self, index: u64) -> f64 {
        let word = self.stream.word(index, 0);
        let mantissa = self.dtype.mantissa_bits().unwrap_or(1);
        let value = (word >> (64 - mantissa)) as f64 * self.dtype.min_positive();
        if word & 1 == 1 { -value } else { value }
    }

    fn signed_zero(&self, index: u64) -> f64 {
        let word = self.stream.word(index, 3);
        match (word >> 1 & 7, word & 1) {
            (0, _) => self.normal(index),
            (_, 1) => -0.0,
            _ => 0.0,
        }
    }

    fn masked(&self, row: u64, index: u64) -> f64 {
        if row % 4 != 3 && self.stream.word(index, 3) >> 60 == 0 {
            self.normal(index)
        } else {
            f64::NEG_INFINITY
        }
    }

    fn probability(&self, index: u64) -> f64 {
        match index % 4 {
            0 => 0.0625,
            2 => 0.0,
            3 => 1.0,
            // Also a single row has work to do: it is never the one with 0.
            _ => {
                let numerator = (self.stream.word(index, 0) >> 40) as f64 + 0.5;
                rounding::round_to(Dtype::F32, numerator / f64::from(1 << 24))
            }
        }
    }

    fn row_word(&self, row: u64) -> u64 {
        self.stream.word(row * self.width, 3)
    }

    fn set_marked(&self, row: u64, value: f64, into: &mut [f64]) {
        if self.width > 0 {
            into[((self.row_word(row) >> 16) % self.width) as usize] = value;
        }
    }

    fn spoil(&self, row: u64, class: ValueClass, into: &mut [f64]) {
        let word = self.row_word(row);
        let spoiled = match row {
            0 => true,
            1 => false,
            _ => word >> 8 & 1 == 0,
        };
        if !spoiled {
            return;
        }
        let value = match (class, word >> 9 & 1) {
            (ValueClass::Nan, _) => f64::NAN,
            (_, 1) => f64::NEG_INFINITY,
            _ => f64::INFINITY,
        };
        self.set_marked(row, value, into);
    }
}
