//! Each kind of record as rows of the tables in [`crate::layout`], in their column order.

use duckdb::params;
use proofhouse_evidence::Stored;
use proofhouse_schema::canonical::CanonicalError;
use proofhouse_schema::evidence::{
    Attempt, BaselineObservation, CalibrationRecord, CellRecord, Ending, Observation, Purpose,
    SelftestRecord, SessionRecord,
};
use proofhouse_schema::gate::Level;
use proofhouse_schema::samples::Samples;
use proofhouse_schema::verdict::{Reason, VerdictBody};

use crate::error::StoreError;
use crate::ingest::{Tables, add};
use crate::scope;
use crate::source::SourceError;

/// Fails now for a record whose rows could not be made later.
pub(crate) fn check(stored: &Stored) -> Result<(), SourceError> {
    if let proofhouse_schema::evidence::Record::Cell(cell) = &stored.record {
        scope::contract_of(cell)?;
        scope::inputs_digest(&cell.case)?;
    }
    Ok(())
}

/// A part of a record that [`check`] has shown to be writable.
fn checked<T>(stored: &Stored, made: Result<T, CanonicalError>) -> Result<T, StoreError> {
    made.map_err(|source| StoreError::BadBody { digest: stored.digest.to_string(), source })
}

fn body(stored: &Stored) -> Result<String, StoreError> {
    let text = serde_json::to_string(&stored.record);
    checked(stored, text.map_err(CanonicalError::Write))
}

pub(crate) fn cell(
    tables: &mut Tables<'_>,
    record: i32,
    stored: &Stored,
    cell: &CellRecord,
) -> Result<(), StoreError> {
    evidence(tables, record, stored, cell)?;
    for made in &cell.attempts {
        attempt(tables, record, made)?;
    }
    for (number, (provider, pass)) in scope::passes(cell).into_iter().enumerate() {
        for output in &pass.outputs {
            let purpose = purpose_word(pass.purpose);
            add(
                &mut tables.outputs,
                params![
                    record,
                    provider,
                    number as u32,
                    purpose,
                    output.tensor,
                    output.elements,
                    output.finite,
                    output.class_mismatches,
                    output.out_of_tolerance,
                    output.max_ulp.0,
                    output.max_abs.0,
                    output.max_rel.0
                ],
            )?;
        }
    }
    match &cell.observation {
        Observation::Baseline(seen) => arms(tables, record, seen),
        _ => Ok(()),
    }
}

fn evidence(
    tables: &mut Tables<'_>,
    record: i32,
    stored: &Stored,
    cell: &CellRecord,
) -> Result<(), StoreError> {
    let contract = checked(stored, scope::contract_of(cell))?;
    let inputs = checked(stored, scope::inputs_digest(&cell.case))?;
    let level = match cell.gate.level {
        Level::Required => "required",
        Level::Informative => "informative",
    };
    let (outcome, detail) = scope::outcome_words(&cell.observation);
    let started = cell.attempts.iter().map(|attempt| attempt.started.0).min();
    add(
        &mut tables.evidence,
        params![
            record,
            stored.digest.as_str(),
            stored.file,
            cell.key.as_str(),
            cell.gate.id.as_str(),
            cell.gate.kind.as_str(),
            level,
            cell.gate_digest.as_str(),
            cell.gate.operator.as_str(),
            cell.cell,
            scope::shape_words(&cell.cell, &cell.case),
            cell.case.dtype.to_string(),
            cell.case.layout,
            scope::value_words(&cell.case),
            cell.profile.id.as_str(),
            cell.candidate.id.as_str(),
            cell.candidate.version.known(),
            cell.candidate.source.as_str(),
            cell.grade.as_str(),
            outcome,
            detail,
            cell.session.as_str(),
            cell.source.revision.known(),
            cell.source.dirty.known(),
            contract.as_ref().map(|(contract, _)| scope::contract_words(contract)),
            contract.as_ref().map(|(_, digest)| digest.as_str()),
            inputs.as_str(),
            cell.gate.timing.as_ref().map(|timing| timing.margin),
            cell.traffic.map(|traffic| traffic.read.0),
            cell.traffic.map(|traffic| traffic.written.0),
            started,
            scope::max_ulp(cell),
            body(stored)?
        ],
    )
}

fn attempt(tables: &mut Tables<'_>, record: i32, made: &Attempt) -> Result<(), StoreError> {
    let (ending, code) = match &made.ending {
        None => (None, None),
        Some(Ending::Exit(code)) => (Some("exit"), Some(*code)),
        Some(Ending::Signal(signal)) => (Some("signal"), Some(*signal)),
        Some(Ending::Timeout) => (Some("timeout"), None),
        Some(Ending::MemoryLimit) => (Some("memory_limit"), None),
        Some(Ending::Protocol) => (Some("protocol"), None),
        Some(Ending::NotStarted) => (Some("not_started"), None),
        Some(Ending::Interrupted) => (Some("interrupted"), None),
    };
    add(
        &mut tables.attempts,
        params![
            record,
            made.provider.as_str(),
            made.replicate,
            made.started.0,
            made.ended.map(|ended| ended.0),
            made.hello.map(|hello| hello.0),
            ending,
            code,
            made.peak_memory.known().map(|memory| memory.0),
            made.orphans,
            serde_json::Value::from(made.argv.clone()).to_string(),
            made.stderr
        ],
    )
}

fn arms(
    tables: &mut Tables<'_>,
    record: i32,
    seen: &BaselineObservation,
) -> Result<(), StoreError> {
    for arm in &seen.arms {
        let codes: Vec<&str> = arm.invalid.iter().map(|finding| finding.code.as_str()).collect();
        let invalid = Some(codes.join(", ")).filter(|codes| !codes.is_empty());
        let times = &arm.summary;
        add(
            &mut tables.arms,
            params![
                record,
                arm.provider.as_str(),
                arm.replicate,
                arm.calls,
                arm.sets,
                times.count,
                times.min_ns.0,
                times.p10_ns.0,
                times.p50_ns.0,
                times.p90_ns.0,
                times.max_ns.0,
                times.mean_ns.0,
                times.cv.0,
                arm.supervisor_wall_ns.0,
                arm.worker_wall_ns.0,
                invalid
            ],
        )?;
    }
    Ok(())
}

pub(crate) fn samples(
    tables: &mut Tables<'_>,
    record: i32,
    samples: &Samples,
) -> Result<(), StoreError> {
    let providers: Vec<&str> = samples.providers.iter().map(|id| id.as_str()).collect();
    for sample in &samples.rows {
        add(
            &mut tables.samples,
            params![
                record,
                providers[usize::from(sample.provider)],
                sample.replicate,
                sample.block,
                sample.position,
                sample.measured,
                sample.calls,
                sample.elapsed_ns,
                sample.elapsed_ns / f64::from(sample.calls.max(1))
            ],
        )?;
    }
    Ok(())
}

pub(crate) fn session(
    tables: &mut Tables<'_>,
    stored: &Stored,
    session: &SessionRecord,
) -> Result<(), StoreError> {
    let host = &session.host;
    add(
        &mut tables.sessions,
        params![
            stored.digest.as_str(),
            stored.file,
            session.writer.as_str(),
            session.tool,
            session.started.0,
            session.profile.id.as_str(),
            host.machine.known(),
            host.cpu.known(),
            host.cores.known(),
            host.memory.known().map(|memory| memory.0),
            host.kernel.known(),
            host.distribution.known(),
            host.container.known(),
            host.governor.known(),
            session.source.revision.known(),
            session.source.dirty.known(),
            serde_json::Value::from(session.command.clone()).to_string(),
            body(stored)?
        ],
    )?;
    for control in &session.controls {
        let estimate = control.estimate.as_ref();
        add(
            &mut tables.controls,
            params![
                stored.digest.as_str(),
                control.name,
                control.planted,
                estimate.map(|e| e.ratio.0),
                estimate.map(|e| e.low.0),
                estimate.map(|e| e.high.0),
                estimate.map(|e| e.half_width.0),
                control.speed.as_str(),
                control.right
            ],
        )?;
    }
    Ok(())
}

pub(crate) fn verdict(
    tables: &mut Tables<'_>,
    stored: &Stored,
    verdict: &VerdictBody,
) -> Result<(), StoreError> {
    add(
        &mut tables.verdicts,
        params![
            stored.digest.as_str(),
            stored.file,
            verdict.evidence.as_str(),
            verdict.gate.as_str(),
            verdict.cell,
            verdict.provider.as_str(),
            verdict.judge,
            verdict.verdict.as_str(),
            verdict.grade.as_str(),
            verdict.required,
            codes(&verdict.reasons),
            body(stored)?
        ],
    )?;
    for comparison in &verdict.comparisons {
        let estimate = comparison.estimate.as_ref();
        add(
            &mut tables.comparisons,
            params![
                stored.digest.as_str(),
                verdict.evidence.as_str(),
                comparison.candidate.as_str(),
                comparison.baseline.as_str(),
                comparison.baseline_version,
                comparison.speed.as_str(),
                estimate.map(|e| e.ratio.0),
                estimate.map(|e| e.low.0),
                estimate.map(|e| e.high.0),
                estimate.map(|e| e.half_width.0),
                estimate.map(|e| e.p_value.0),
                comparison.margin,
                estimate.map(|e| e.replicates.len() as u32),
                estimate.and_then(|e| e.order_effect.as_ref()).map(|order| order.effect.0),
                codes(&comparison.reasons)
            ],
        )?;
    }
    Ok(())
}

pub(crate) fn selftest(
    tables: &mut Tables<'_>,
    stored: &Stored,
    selftest: &SelftestRecord,
) -> Result<(), StoreError> {
    let right = selftest.exploits.iter().filter(|exploit| exploit.right).count();
    add(
        &mut tables.selftests,
        params![
            stored.digest.as_str(),
            stored.file,
            selftest.tool,
            selftest.started.0,
            selftest.exploits.len() as u32,
            right as u32,
            body(stored)?
        ],
    )
}

pub(crate) fn calibration(
    tables: &mut Tables<'_>,
    stored: &Stored,
    calibration: &CalibrationRecord,
) -> Result<(), StoreError> {
    for rate in &calibration.rates {
        add(
            &mut tables.calibrations,
            params![
                stored.digest.as_str(),
                stored.file,
                calibration.tool,
                calibration.started.0,
                calibration.provider.id.as_str(),
                rate.planted,
                rate.comparisons,
                rate.wins,
                rate.losses,
                rate.parities,
                rate.undecided,
                rate.rate,
                rate.low,
                rate.high,
                rate.median_half_width.map(|width| width.0)
            ],
        )?;
    }
    Ok(())
}

fn codes(reasons: &[Reason]) -> String {
    reasons.iter().map(|reason| reason.code.as_str()).collect::<Vec<_>>().join(", ")
}

fn purpose_word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::First => "first",
        Purpose::Repeat => "repeat",
        Purpose::Renewed => "renewed",
        Purpose::SingleRow => "single_row",
        Purpose::Refusal => "refusal",
        Purpose::Timed => "timed",
        Purpose::Replay => "replay",
        Purpose::Eager => "eager",
        Purpose::Sanitized => "sanitized",
    }
}
