//! The classes of input values that cases are drawn from.

use std::fmt;
use std::str::FromStr;

use crate::error::{ContractError, ErrorKind};

/// A distribution of input values; `inputs` says exactly how each is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueClass {
    /// Close to a standard normal distribution.
    Normal,
    /// Uniform over [-1, 1).
    Uniform,
    /// One value everywhere.
    AllEqual,
    /// Neighbors of opposite sign and nearly equal size.
    Cancelling,
    /// Near the largest magnitude that the operator's contract covers.
    Huge,
    /// Subnormal numbers of the element type.
    Subnormal,
    /// Mostly zeros of both signs.
    SignedZero,
    /// Normal, with infinities of both signs in some rows.
    Infinite,
    /// Normal, with a NaN in some rows.
    Nan,
    /// One element per row is 8, the others 0.
    OneHot,
    /// Only four distinct values.
    HeavyTies,
    /// Mostly minus infinity; some rows wholly.
    MaskedRows,
}

impl ValueClass {
    /// Every class.
    pub const ALL: [Self; 12] = [
        Self::Normal,
        Self::Uniform,
        Self::AllEqual,
        Self::Cancelling,
        Self::Huge,
        Self::Subnormal,
        Self::SignedZero,
        Self::Infinite,
        Self::Nan,
        Self::OneHot,
        Self::HeavyTies,
        Self::MaskedRows,
    ];

    /// The class's name in TOML and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Uniform => "uniform",
            Self::AllEqual => "all-equal",
            Self::Cancelling => "cancelling",
            Self::Huge => "huge",
            Self::Subnormal => "subnormal",
            Self::SignedZero => "signed-zero",
            Self::Infinite => "inf",
            Self::Nan => "nan",
            Self::OneHot => "one-hot",
            Self::HeavyTies => "heavy-ties",
            Self::MaskedRows => "masked-rows",
        }
    }
}

impl fmt::Display for ValueClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ValueClass {
    type Err = ContractError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|class| class.name() == text).ok_or_else(|| {
            ContractError::new("", "values", ErrorKind::Unknown)
                .found(text)
                .accepted(Self::ALL.map(Self::name).join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_parses_back_from_its_name() {
        for class in ValueClass::ALL {
            assert_eq!(class.name().parse::<ValueClass>().unwrap(), class);
        }
        let error = "gaussian".parse::<ValueClass>().unwrap_err();
        assert!(error.accepted.contains("masked-rows"));
    }
}
