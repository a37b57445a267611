//! Planted faults for the checker: outputs that are wrong in known ways, and what becomes of each.
//!
//! A checker that lets one of them pass proves nothing. A mutant that changes no value (zeros of an output that
//! is zero anyway) is *equivalent*: it is told apart, not counted as killed.

use crate::call::Mode;
use crate::case::Case;
use crate::compare::{Agreement, Judging, expected_outputs, judge};
use crate::dtype::Dtype;
use crate::error::ContractError;
use crate::inputs::CaseTensors;
use crate::rounding::{decode, encode, ulp_distance};
use crate::tensor::{OwnedTensor, TensorView};

/// What unwritten memory holds: a sizeable negative number in every element type, so that it is never nearly
/// right.
const POISON: u8 = 0xc1;

/// A way to get an output wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mutant {
    /// Every element is zero.
    Zeros,
    /// Every number has the other sign.
    SignFlip,
    /// Every row holds what belongs to the next one.
    OffByOneRow,
    /// Every float is 1.01 times as large (in E4M3, where that is no step, 1.125 times).
    Scaled,
    /// The first two tiles of every row, at most 16 columns wide each, have changed places.
    SwappedTile,
    /// One float, in the middle, is NaN.
    OneNan,
    /// The outputs are those of an earlier call with other inputs.
    Stale,
    /// The last element was never written: it holds the poison.
    TruncatedTail,
    /// Nothing was written: all elements hold the poison.
    Unwritten,
    /// Every infinity is zero instead.
    InfinityAsZero,
    /// The last integer is one too large.
    OffByOne,
}

impl Mutant {
    /// Every mutant.
    pub const ALL: [Self; 11] = [
        Self::Zeros,
        Self::SignFlip,
        Self::OffByOneRow,
        Self::Scaled,
        Self::SwappedTile,
        Self::OneNan,
        Self::Stale,
        Self::TruncatedTail,
        Self::Unwritten,
        Self::InfinityAsZero,
        Self::OffByOne,
    ];

    /// The mutant's name in evidence: kebab-case, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::SignFlip => "sign-flip",
            Self::OffByOneRow => "off-by-one-row",
            Self::Scaled => "scaled",
            Self::SwappedTile => "swapped-tile",
            Self::OneNan => "one-nan",
            Self::Stale => "stale",
            Self::TruncatedTail => "truncated-tail",
            Self::Unwritten => "unwritten",
            Self::InfinityAsZero => "infinity-as-zero",
            Self::OffByOne => "off-by-one",
        }
    }

    /// Spoils `right`; `stale` is the same tensor after an earlier call, `before` as it was before this one.
    ///
    /// `None` when the mutant does not exist for the tensor (a NaN among integers, a tensor without elements).
    #[must_use]
    pub fn apply(
        self,
        right: &OwnedTensor,
        stale: &OwnedTensor,
        before: &TensorView<'_>,
    ) -> Option<OwnedTensor> {
        let dtype = right.layout.dtype;
        let (rows, width) = (right.layout.rows(), right.layout.width());
        if rows == 0 || width == 0 {
            return None;
        }
        let last = |row: u64, column: u64| row + 1 == rows && column + 1 == width;
        let source = right.view();
        let bits = |row: u64, column: u64| source.bits(row, column);
        let each = |wrong: &dyn Fn(u64, u64) -> u64| Some(rewrite(right, wrong));
        match self {
            Self::Zeros => each(&|_, _| 0),
            Self::SignFlip => each(&|row, column| negate(dtype, bits(row, column))),
            Self::OffByOneRow if rows > 1 => each(&|row, column| bits((row + 1) % rows, column)),
            // A vector has one row of memory; its elements are the rows of the call.
            Self::OffByOneRow => each(&|row, column| bits(row, (column + 1) % width)),
            Self::Scaled => {
                let factor = if dtype == Dtype::F8E4M3 { 1.125 } else { 1.01 };
                dtype.is_float().then_some(())?;
                each(&|row, column| encode(dtype, decode(dtype, bits(row, column)) * factor))
            }
            Self::SwappedTile => {
                let tile = (width / 2).min(16);
                each(&|row, column| match column {
                    left if left < tile => bits(row, left + tile),
                    right if right < 2 * tile => bits(row, right - tile),
                    other => bits(row, other),
                })
            }
            Self::OneNan => {
                dtype.is_float().then_some(())?;
                let place = (rows / 2, width / 2);
                each(&|row, column| {
                    if (row, column) == place { encode(dtype, f64::NAN) } else { bits(row, column) }
                })
            }
            Self::Stale => each(&|row, column| stale.view().bits(row, column)),
            Self::TruncatedTail => each(&|row, column| {
                if last(row, column) { before.bits(row, column) } else { bits(row, column) }
            }),
            Self::Unwritten => each(&|row, column| before.bits(row, column)),
            Self::InfinityAsZero => each(&|row, column| {
                let original = bits(row, column);
                if decode(dtype, original).is_infinite() { 0 } else { original }
            }),
            Self::OffByOne => {
                (!dtype.is_float()).then_some(())?;
                each(&|row, column| bits(row, column).wrapping_add(u64::from(last(row, column))))
            }
        }
    }
}

fn negate(dtype: Dtype, bits: u64) -> u64 {
    match dtype {
        Dtype::F32 => bits ^ 1 << 31,
        Dtype::F16 | Dtype::BF16 => bits ^ 1 << 15,
        Dtype::F8E4M3 => bits ^ 1 << 7,
        Dtype::I32 | Dtype::I64 | Dtype::U8 => bits.wrapping_neg(),
    }
}

fn rewrite(right: &OwnedTensor, wrong: &dyn Fn(u64, u64) -> u64) -> OwnedTensor {
    let mut spoiled = right.clone();
    let mut view = spoiled.view_mut();
    for row in 0..right.layout.rows() {
        for column in 0..right.layout.width() {
            view.set_bits(row, column, wrong(row, column));
        }
    }
    spoiled
}

/// Whether no element differs in value: ±0 are equal, and so are NaNs.
fn same_values(left: &OwnedTensor, right: &OwnedTensor) -> bool {
    let (left, right) = (left.view(), right.view());
    (0..left.layout.rows()).all(|row| {
        (0..left.layout.width()).all(|column| {
            ulp_distance(left.layout.dtype, left.bits(row, column), right.bits(row, column)) == 0
        })
    })
}

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The checker refused it.
    Killed,
    /// The checker let it pass although a value is wrong.
    Survived,
    /// It changes no value, and the checker let it pass.
    Equivalent,
}

/// One mutant of one output tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The mutant.
    pub mutant: Mutant,
    /// The spoiled tensor.
    pub tensor: &'static str,
    /// What became of it.
    pub fate: Fate,
}

/// Spoils each output of a case in every way and asks the checker.
///
/// # Errors
/// As [`crate::run_oracle`].
pub fn run_battery(case: &Case, mode: Mode) -> Result<Vec<Outcome>, ContractError> {
    let expected_of = |case: &Case| {
        let tensors = CaseTensors::generate(case, POISON, 0)?;
        let (inputs, initial) = (tensors.views(&case.call, false), tensors.views(&case.call, true));
        expected_outputs(&case.call, mode, &inputs, &initial)
    };
    let earlier = Case { seed: case.seed.wrapping_add(1), ..case.clone() };
    let stale = expected_of(&earlier)?;
    let tensors = CaseTensors::generate(case, POISON, 0)?;
    let (inputs, initial) = (tensors.views(&case.call, false), tensors.views(&case.call, true));
    let expected = expected_outputs(&case.call, mode, &inputs, &initial)?;
    let mut outcomes = Vec::new();
    for (place, right) in expected.iter().enumerate() {
        for mutant in Mutant::ALL {
            let Some(spoiled) = mutant.apply(right, &stale[place], &initial[place]) else {
                continue;
            };
            let mut candidate: Vec<TensorView<'_>> =
                expected.iter().map(OwnedTensor::view).collect();
            candidate[place] = spoiled.view();
            let (call, candidate) = (&case.call, candidate.as_slice());
            let judging = Judging {
                call,
                inputs: &inputs,
                initial: &initial,
                expected: &expected,
                candidate,
            };
            let refused = judge(&judging)?
                .iter()
                .any(|comparison| comparison.agreement() == Agreement::Differ);
            let fate = match (refused, same_values(right, &spoiled)) {
                (true, _) => Fate::Killed,
                (false, true) => Fate::Equivalent,
                (false, false) => Fate::Survived,
            };
            outcomes.push(Outcome { mutant, tensor: right.name, fate });
        }
    }
    Ok(outcomes)
}
