//! What the timer says, as findings that travel; the codes are stable.

use proofhouse_schema::evidence::Finding;
use proofhouse_schema::protocol::Measure;
use proofhouse_timer::{Invalid, MAX_SAMPLES, MeasureError};

use crate::decline::Decline;

/// An error and its causes in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Refuses a request with numbers that no measurement has.
///
/// # Errors
/// [`Decline::Failed`].
pub fn check_request(request: &Measure) -> Result<(), Decline> {
    let in_range = (1..=MAX_SAMPLES).contains(&request.samples)
        && request.min_sample_ns.is_finite()
        && request.min_sample_ns >= 1.0
        && (0.0..=1.0).contains(&request.slowdown);
    if in_range {
        return Ok(());
    }
    Err(Decline::Failed(format!(
        "samples {}, min_sample_ns {}, slowdown {}; accepted: 1 to {MAX_SAMPLES}, at least 1, 0 to 1",
        request.samples, request.min_sample_ns, request.slowdown
    )))
}

/// A failed device call is the provider's failure; everything else is a measurement that cannot be trusted.
///
/// # Errors
/// [`Decline::Failed`] for a device call.
pub fn untrusted(error: &MeasureError) -> Result<Finding, Decline> {
    let code = match error {
        MeasureError::Device { source, .. } => return Err(Decline::Failed(source.to_string())),
        MeasureError::Plan(_) => "plan-refused",
        MeasureError::Clock { source, .. } => code_of(source),
        MeasureError::ClockStands { .. } => "clock-stands",
        MeasureError::SampleTooShort { .. } => "sample-too-short",
        MeasureError::Unsettled { .. } => "unsettled",
        MeasureError::Poisoned => "device-poisoned",
        MeasureError::NoSamples { .. } => "no-samples",
    };
    let detail = match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    Ok(Finding { code: code.to_owned(), detail })
}

/// A reason of the timer.
#[must_use]
pub fn finding(reason: &Invalid) -> Finding {
    Finding { code: code_of(reason).to_owned(), detail: reason.to_string() }
}

fn code_of(reason: &Invalid) -> &'static str {
    match reason {
        Invalid::ZeroTime { .. } => "zero-time",
        Invalid::ClockWentBack { .. } | Invalid::HostClockWentBack { .. } => "clock-backwards",
        Invalid::NotFinite { .. } => "time-not-finite",
        Invalid::BelowFloor { .. } => "below-floor",
        Invalid::TooShort { .. } => "sample-too-short",
        Invalid::LongerThanWall { .. } => "longer-than-wall",
        Invalid::WorkEscaped { .. } => "work-escaped",
        Invalid::ClockEvents { .. } => "clock-events",
        Invalid::CodeLoaded { .. } => "module-loaded",
        Invalid::NoKernels { .. } | Invalid::KernelsChanged { .. } => reason.code(),
    }
}
