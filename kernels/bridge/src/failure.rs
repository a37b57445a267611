//! What went wrong in a call, and the last of it on each thread.

use std::cell::RefCell;
use std::error::Error;
use std::fmt::Display;

use proofhouse_contract::ContractError;
use proofhouse_cuda::CudaError;

use crate::status::Status;

/// A call that did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// The operator; empty where none is involved, or known yet.
    pub(crate) operator: String,
    /// What is at fault; empty where no argument is.
    pub(crate) argument: String,
    /// Row of a bad value on the device.
    pub(crate) row: Option<u64>,
    /// The whole text.
    pub(crate) text: String,
}

impl Failure {
    /// A refusal of the interface's own: the argument, what was found and what is accepted.
    pub(crate) fn new(
        status: Status,
        argument: impl Into<String>,
        found: impl Display,
        accepted: impl Display,
    ) -> Self {
        let argument = argument.into();
        let text = format!("`{argument}` is {found}; accepted: {accepted}");
        Self { status, operator: String::new(), argument, row: None, text }
    }

    /// The same failure of an operator, where it names none yet.
    #[must_use]
    pub(crate) fn of(mut self, operator: &str) -> Self {
        if self.operator.is_empty() && !operator.is_empty() {
            operator.clone_into(&mut self.operator);
            self.text = format!("{operator}: {}", self.text);
        }
        self
    }

    /// The same failure, whatever panicked in the body of a call.
    pub(crate) fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        let said = payload.downcast_ref::<&str>().copied();
        let said = said.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = format!("the library panicked: {}", said.unwrap_or("it did not say why"));
        Self {
            status: Status::Panic,
            operator: String::new(),
            argument: String::new(),
            row: None,
            text,
        }
    }
}

impl From<ContractError> for Failure {
    fn from(error: ContractError) -> Self {
        Self {
            status: error.kind.into(),
            text: error.to_string(),
            operator: error.operator.into_owned(),
            argument: error.argument.into_owned(),
            row: error.row,
        }
    }
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            text.push_str(": ");
            text.push_str(&inner.to_string());
            cause = inner.source();
        }
        let (status, operator, argument) = match &error {
            CudaError::Contract(inner) => return inner.clone().into(),
            CudaError::LibraryMissing { .. } => (Status::LibraryMissing, "", ""),
            CudaError::Driver { .. } => (Status::Driver, "", ""),
            CudaError::NoDevice { .. } => (Status::NoDevice, "", "ordinal"),
            CudaError::UnknownDevice { .. } => (Status::NoDevice, "", "uuid"),
            CudaError::UnsupportedDevice { .. } => (Status::UnsupportedDevice, "", ""),
            CudaError::Nvrtc { .. } => (Status::Compiler, "", ""),
            CudaError::Compile { kernel, .. } => (Status::Compile, *kernel, ""),
            CudaError::Cache { .. } => (Status::CacheFolder, "", "kernel_folder"),
            CudaError::TooLarge { operator, what, .. } => (Status::TooLarge, *operator, *what),
            CudaError::NoKernel { operator, .. } => (Status::NoKernel, *operator, "operator"),
            _ => (Status::DeviceFailure, "", ""),
        };
        Self {
            status,
            operator: operator.to_owned(),
            argument: argument.to_owned(),
            row: None,
            text,
        }
    }
}

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Keeps how the last call on this thread ended; none where it worked.
pub(crate) fn keep_last(failure: Option<Failure>) {
    // A thread that is ending has nobody left who asks.
    let _ = LAST.try_with(|last| last.replace(failure));
}

/// How the last call on this thread ended.
pub(crate) fn last() -> Option<Failure> {
    LAST.try_with(|last| last.borrow().clone()).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_contract::ErrorKind;

    #[test]
    fn an_operator_is_named_once() {
        let failure = Failure::new(Status::BadRank, "x", "of rank 0", "1 to 4").of("rms_norm");
        assert_eq!(failure.text, "rms_norm: `x` is of rank 0; accepted: 1 to 4");
        assert_eq!(failure.clone().of("other"), failure);
        let contract = ContractError::new("min_p", "p", ErrorKind::OutOfRange).at_row(3);
        let failure = Failure::from(CudaError::from(contract)).of("min_p");
        assert_eq!((failure.status, failure.row), (Status::OutOfRange, Some(3)));
        assert_eq!(failure.text.matches("min_p").count(), 1);
    }

    #[test]
    fn a_cause_is_part_of_the_text() {
        let source = std::io::Error::other("no room left");
        let failure = Failure::from(CudaError::Cache { path: "folder".into(), source });
        assert_eq!(failure.status, Status::CacheFolder);
        assert!(failure.text.contains("folder") && failure.text.ends_with(": no room left"));
    }

    #[test]
    fn every_kind_of_device_error_has_its_status() {
        let text = String::new;
        let of = |error| Failure::from(error).status;
        assert_eq!(
            of(CudaError::LibraryMissing { library: "libcuda", accepted: text() }),
            Status::LibraryMissing
        );
        assert_eq!(
            of(CudaError::Driver { call: "cuInit", code: text(), meaning: text() }),
            Status::Driver
        );
        assert_eq!(of(CudaError::NoDevice { ordinal: 1, devices: 1 }), Status::NoDevice);
        assert_eq!(
            of(CudaError::UnknownDevice { uuid: text(), accepted: text() }),
            Status::NoDevice
        );
        assert_eq!(
            of(CudaError::UnsupportedDevice { major: 7, minor: 5 }),
            Status::UnsupportedDevice
        );
        assert_eq!(of(CudaError::Nvrtc { call: "nvrtc", meaning: text() }), Status::Compiler);
        assert_eq!(
            of(CudaError::Compile { kernel: "rms_norm", options: text(), log: text() }),
            Status::Compile
        );
        let large =
            CudaError::TooLarge { operator: "rms_norm", what: "grid", found: 2, accepted: 1 };
        assert_eq!(of(large), Status::TooLarge);
        assert_eq!(
            of(CudaError::NoKernel { operator: "min_p", accepted: text() }),
            Status::NoKernel
        );
        let tuning =
            CudaError::Tuning { operator: "rms_norm", what: "it", found: text(), accepted: text() };
        assert_eq!(of(tuning), Status::DeviceFailure);
    }
}
