//! The one error of the contract: a typed refusal that says what was found and what is accepted.

use std::borrow::Cow;
use std::fmt;

/// What is wrong with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// A dimension that must be at least one is zero.
    ZeroDimension,
    /// A size, in elements or bytes, does not fit the address space.
    Overflow,
    /// A tensor's shape does not follow from the call's dimensions.
    LengthMismatch,
    /// A tensor or parameter has another type than the contract says.
    DtypeMismatch,
    /// Rows overlap: the row stride is smaller than the row.
    BadStride,
    /// The storage ends before the last element.
    StorageTooShort,
    /// The address is not a multiple of the element size.
    Misaligned,
    /// The address is null.
    NullPointer,
    /// A mutable region shares bytes with another region.
    Overlap,
    /// A value lies outside the accepted range.
    OutOfRange,
    /// A value that must be a number is NaN or infinite.
    NotFinite,
    /// A dimension, parameter or tensor that the contract asks for is absent.
    Missing,
    /// A name is not part of the contract.
    Unknown,
    /// The backend or the contract does not cover this combination.
    Unsupported,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::ZeroDimension,
        Self::Overflow,
        Self::LengthMismatch,
        Self::DtypeMismatch,
        Self::BadStride,
        Self::StorageTooShort,
        Self::Misaligned,
        Self::NullPointer,
        Self::Overlap,
        Self::OutOfRange,
        Self::NotFinite,
        Self::Missing,
        Self::Unknown,
        Self::Unsupported,
    ];

    /// The kind's name in JSON: snake_case, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ZeroDimension => "zero_dimension",
            Self::Overflow => "overflow",
            Self::LengthMismatch => "length_mismatch",
            Self::DtypeMismatch => "dtype_mismatch",
            Self::BadStride => "bad_stride",
            Self::StorageTooShort => "storage_too_short",
            Self::Misaligned => "misaligned",
            Self::NullPointer => "null_pointer",
            Self::Overlap => "overlap",
            Self::OutOfRange => "out_of_range",
            Self::NotFinite => "not_finite",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Unsupported => "unsupported",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::ZeroDimension => "is zero",
            Self::Overflow => "overflows the address space",
            Self::LengthMismatch => "has the wrong shape",
            Self::DtypeMismatch => "has the wrong type",
            Self::BadStride => "has rows that overlap",
            Self::StorageTooShort => "has too little storage",
            Self::Misaligned => "is misaligned",
            Self::NullPointer => "is null",
            Self::Overlap => "shares memory with a region that is written",
            Self::OutOfRange => "is out of range",
            Self::NotFinite => "is not a finite number",
            Self::Missing => "is missing",
            Self::Unknown => "is not known",
            Self::Unsupported => "is not supported",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for ErrorKind {
    type Err = ContractError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            ContractError::new("", "error kind", Self::Unknown)
                .found(text)
                .accepted("a kind's name in snake_case, such as out_of_range")
        })
    }
}

/// A refusal: which operator and argument, what is wrong, what was found and what is accepted.
///
/// `row` is set when the value lives on the device (an id, a probability, a logit) and so was found while
/// running in checked mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractError {
    /// The operator's name; empty when no operator is involved.
    pub operator: Cow<'static, str>,
    /// The tensor, parameter or dimension at fault.
    pub argument: Cow<'static, str>,
    /// What is wrong with it.
    pub kind: ErrorKind,
    /// The row of a bad device value.
    pub row: Option<u64>,
    /// What was found.
    pub found: String,
    /// What the contract accepts.
    pub accepted: String,
}

impl ContractError {
    /// Starts an error with nothing found and nothing accepted yet.
    pub fn new(
        operator: impl Into<Cow<'static, str>>,
        argument: impl Into<Cow<'static, str>>,
        kind: ErrorKind,
    ) -> Self {
        Self {
            operator: operator.into(),
            argument: argument.into(),
            kind,
            row: None,
            found: String::new(),
            accepted: String::new(),
        }
    }

    /// Says what was found.
    #[must_use]
    pub fn found(mut self, found: impl fmt::Display) -> Self {
        self.found = found.to_string();
        self
    }

    /// Says what is accepted.
    #[must_use]
    pub fn accepted(mut self, accepted: impl fmt::Display) -> Self {
        self.accepted = accepted.to_string();
        self
    }

    /// Names the row of a bad device value.
    #[must_use]
    pub fn at_row(mut self, row: u64) -> Self {
        self.row = Some(row);
        self
    }
}

impl fmt::Display for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.operator.is_empty() {
            write!(f, "{}: ", self.operator)?;
        }
        write!(f, "`{}`", self.argument)?;
        if let Some(row) = self.row {
            write!(f, " in row {row}")?;
        }
        write!(f, " {}", self.kind.sentence())?;
        if !self.found.is_empty() {
            write!(f, ": found {}", self.found)?;
        }
        if !self.accepted.is_empty() {
            write!(f, "; accepted: {}", self.accepted)?;
        }
        Ok(())
    }
}

impl std::error::Error for ContractError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_operator_argument_found_and_accepted() {
        let error = ContractError::new("min_p", "p", ErrorKind::OutOfRange)
            .found("1.5")
            .accepted("0 to 1")
            .at_row(3);
        assert_eq!(
            error.to_string(),
            "min_p: `p` in row 3 is out of range: found 1.5; accepted: 0 to 1"
        );
    }

    #[test]
    fn every_kind_parses_back_from_its_name() {
        for kind in ErrorKind::ALL {
            assert_eq!(kind.name().parse::<ErrorKind>().unwrap(), kind);
        }
        assert!("OutOfRange".parse::<ErrorKind>().is_err());
    }
}
