//! Calibration: a provider against its twins, many times, to see how often the right thing is called.
//!
//! A twin is the same program under another id. One is as fast as the provider, one is slower by a planted part; every
//! comparison goes through the same workers, timer, orders and judge as any other baseline cell.

use std::sync::mpsc::Sender;

use proofhouse_gate::stats::{StatsError, binomial_interval, median};
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::{CalibrationLine, CalibrationRate, SessionRecord};
use proofhouse_schema::gate::{GateKind, Inputs, Level, ResolvedGate};
use proofhouse_schema::ids::{GateId, IdError, ProviderId};
use proofhouse_schema::provider::{Environment, ProviderFacts};
use proofhouse_schema::real::Real;
use proofhouse_schema::units::Wide;
use proofhouse_schema::verdict::{Comparison, Require, Speed, VerdictBody};

use crate::dispatch::run;
use crate::error::RunError;
use crate::interrupt::Stop;
use crate::memory::Memory;
use crate::options::{Reuse, RunOptions};
use crate::ports::Judge;
use crate::provider::ProviderHome;

/// The id of the twin that is as fast as the provider.
const TWIN: &str = "twin";
/// The id of the twin that is slower.
const SLOWED: &str = "slowed";
/// Times of a call between which rates are counted apart on a device, in nanoseconds.
const CLASSES: [f64; 4] = [0.0, 5e3, 20e3, f64::INFINITY];

/// What a calibration needs.
#[derive(Debug, Clone)]
pub struct CalibrationOptions {
    /// A run's options; its baseline gates give the cells.
    pub run: RunOptions,
    /// Whose twins; its program takes `--twin ID FRACTION`.
    pub provider: ProviderId,
    /// Comparisons of each kind, at least.
    pub comparisons: usize,
    /// How much slower the second twin is, as a fraction; 0: there is no second twin.
    pub planted: f64,
    /// The device that the provider runs on.
    pub device: DeviceKind,
}

impl CalibrationOptions {
    /// Different cells that are compared.
    ///
    /// # Errors
    /// When a gate's id leaves no room for the calibration's.
    pub fn cells(&self) -> Result<usize, RunError> {
        let gates =
            gates(self, &[]).map_err(|error| setup("name the calibration's gates", error))?;
        Ok(gates.iter().map(|gate| gate.cells.len()).sum())
    }

    /// Cells with more elements than this take too long to be compared hundreds of times, and are left out.
    #[must_use]
    pub fn largest(&self) -> u64 {
        largest(self.device)
    }
}

/// What a calibration found.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrationFindings {
    /// One line per comparison.
    pub lines: Vec<CalibrationLine>,
    /// One rate per planted slowdown; a comparison that could not be judged is undecided. Of a calibration that was
    /// stopped, the rates of what was compared until then; none before the first comparison.
    pub rates: Vec<CalibrationRate>,
    /// Comparisons that were asked for.
    pub asked: usize,
    /// The session that measured and who was compared with its twins; none when the calibration was stopped.
    pub whole: Option<(SessionRecord, ProviderFacts)>,
}

/// Compares a provider with its twins on the cells of every baseline gate, again and again with other seeds until there
/// are enough comparisons.
///
/// # Errors
/// When the run could not begin, was ended by a problem, or measured nothing though nobody stopped it.
pub fn calibrate(
    options: &CalibrationOptions,
    judge: &dyn Judge,
    stop: &Stop,
    events: &Sender<Event>,
) -> Result<CalibrationFindings, RunError> {
    let bad = |error: IdError| setup("name the calibration's gates", error);
    let mut twins = vec![(TWIN, 0.0)];
    if options.planted > 0.0 {
        twins.push((SLOWED, options.planted));
    }
    let mut run_options = options.run.clone();
    run_options.reuse = Reuse::Fresh;
    run_options.gates = repeated(options, &twins).map_err(bad)?;
    for (id, slowdown) in twins.iter().copied() {
        let twin = twin(options, id, slowdown).map_err(bad)?;
        run_options.providers.extend(twin);
    }
    let cells: usize = run_options.gates.iter().map(|gate| gate.cells.len()).sum();
    let mut shelf = Memory::default();
    let outcome = run(run_options, &mut shelf, judge, stop, events)?;
    if let Some(problem) = outcome.problem {
        return Err(problem);
    }
    let lines: Vec<CalibrationLine> =
        outcome.verdicts.iter().flat_map(|verdict| lines(verdict, &twins, &shelf)).collect();
    let whole = match (shelf.session, shelf.candidate) {
        _ if stop.requested() => None,
        (Some(session), Some(provider)) => Some((session, provider)),
        _ => return Err(setup("calibrate", "no baseline cell was measured")),
    };
    let compared = twins.iter().filter(|_| !lines.is_empty());
    let rates = compared
        .map(|(_, planted)| rates(&lines, *planted, options.device))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| setup("count the calibration's calls", error))?
        .concat();
    Ok(CalibrationFindings { lines, rates, asked: twins.len() * cells, whole })
}

fn setup(what: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RunError {
    RunError::Setup { what: what.to_owned(), source: std::io::Error::other(error) }
}

/// The baseline gates with the provider as the candidate and its twins as baselines.
fn gates(
    options: &CalibrationOptions,
    twins: &[(&str, f64)],
) -> Result<Vec<ResolvedGate>, IdError> {
    let fits = |gate: &&ResolvedGate| {
        let header = &gate.header;
        header.kind == GateKind::Baseline
            && header.device == options.device
            && header.candidates.contains(&options.provider)
    };
    let mut gates: Vec<ResolvedGate> = options.run.gates.iter().filter(fits).cloned().collect();
    for gate in &mut gates {
        let header = &mut gate.header;
        header.id = GateId::new(format!("{}.calibration", header.id))?;
        header.level = Level::Informative;
        header.candidates = vec![options.provider.clone()];
        header.baselines =
            twins.iter().map(|(id, _)| ProviderId::new(*id)).collect::<Result<_, _>>()?;
        if let Some(timing) = &mut header.timing {
            timing.require = Require::Measured;
        }
        gate.exclusions.clear();
        gate.cells.retain(|cell| cell.case.size() <= largest(options.device));
        let (id, kind) = (&gate.header.id, gate.header.kind);
        let selection = &options.run.selection;
        gate.cells.retain(|cell| selection.takes(id, kind, &cell.key, &options.provider));
    }
    gates.retain(|gate| !gate.cells.is_empty());
    Ok(gates)
}

/// The same, each cell as often as there are to be comparisons.
fn repeated(
    options: &CalibrationOptions,
    twins: &[(&str, f64)],
) -> Result<Vec<ResolvedGate>, IdError> {
    let mut gates = gates(options, twins)?;
    let cells: usize = gates.iter().map(|gate| gate.cells.len()).sum();
    let rounds = options.comparisons.div_ceil(cells.max(1));
    gates.iter_mut().for_each(|gate| repeat(gate, rounds));
    Ok(gates)
}

/// Cells with more elements than this take too long to be compared hundreds of times.
fn largest(device: DeviceKind) -> u64 {
    match device {
        DeviceKind::Cpu => 1 << 20,
        DeviceKind::Cuda => 1 << 25,
    }
}

/// The gate's cells as many times, each time with other seeds.
fn repeat(gate: &mut ResolvedGate, rounds: usize) {
    let once = std::mem::take(&mut gate.cells);
    for round in 0..rounds {
        for cell in &once {
            let mut cell = cell.clone();
            cell.key = format!("{} round={round}", cell.key);
            let (Inputs::Seeded { seed, .. } | Inputs::File { seed, .. }) = &mut cell.case.inputs;
            *seed = Wide(seed.0.wrapping_add(1000 * round as u64));
            gate.cells.push(cell);
        }
    }
}

/// The provider under another id, started with `--twin ID FRACTION`.
fn twin(
    options: &CalibrationOptions,
    id: &str,
    slowdown: f64,
) -> Result<Option<ProviderHome>, IdError> {
    let home = options.run.providers.iter().find(|home| home.provider.id == options.provider);
    let Some(home) = home.filter(|home| home.provider.environment == Environment::Binary) else {
        return Ok(None);
    };
    let mut home = home.clone();
    home.provider.id = ProviderId::new(id)?;
    let arguments = ["--twin".to_owned(), id.to_owned(), slowdown.to_string()];
    home.provider.command.extend(arguments);
    Ok(Some(home))
}

fn lines(verdict: &VerdictBody, twins: &[(&str, f64)], shelf: &Memory) -> Vec<CalibrationLine> {
    let cell = (verdict.gate.to_string(), verdict.cell.clone());
    let time_ns = shelf.times.get(&cell).copied().map(Real);
    let line = |(id, planted): &(&str, f64)| {
        let comparison: Option<&Comparison> =
            verdict.comparisons.iter().find(|c| c.baseline.as_str() == *id);
        let estimate = comparison.and_then(|c| c.estimate.as_ref());
        let reasons = comparison.map_or(&verdict.reasons, |c| &c.reasons);
        CalibrationLine {
            gate: verdict.gate.to_string(),
            cell: verdict.cell.clone(),
            planted: *planted,
            speed: comparison.map_or(Speed::Inconclusive, |c| c.speed),
            ratio: estimate.map(|e| e.ratio),
            low: estimate.map(|e| e.low),
            high: estimate.map(|e| e.high),
            codes: reasons.iter().map(|reason| reason.code.clone()).collect(),
            time_ns,
            replicates: estimate.map(|e| e.replicates.clone()).unwrap_or_default(),
        }
    };
    twins.iter().map(line).collect()
}

/// The rate over all comparisons of a planted slowdown, and on a device, where a call takes from one microsecond to
/// hundreds, over those of each class of times.
fn rates(
    lines: &[CalibrationLine],
    planted: f64,
    device: DeviceKind,
) -> Result<Vec<CalibrationRate>, StatsError> {
    let of: Vec<&CalibrationLine> = lines.iter().filter(|line| line.planted == planted).collect();
    let mut rates = vec![rate(&of, planted)?];
    for bounds in CLASSES.windows(2).filter(|_| !device.is_cpu()) {
        let within = |line: &&&CalibrationLine| {
            line.time_ns.is_some_and(|time| time.0 >= bounds[0] && time.0 < bounds[1])
        };
        let class: Vec<&CalibrationLine> = of.iter().filter(within).copied().collect();
        if !class.is_empty() {
            let (from_ns, below_ns) =
                (Some(bounds[0]), Some(bounds[1]).filter(|ns| ns.is_finite()));
            rates.push(CalibrationRate { from_ns, below_ns, ..rate(&class, planted)? });
        }
    }
    Ok(rates)
}

/// Codes of a session whose controls let nothing be called.
const BLIND: [&str; 2] = ["no-control", "control-wrong"];

/// Whether the twins were compared in a session that may call something.
fn could_be_called(line: &CalibrationLine) -> bool {
    line.ratio.is_some() && !line.codes.iter().any(|code| BLIND.contains(&code.as_str()))
}

/// How often the right kind of thing was called: for equal twins that is a false call, for a slower twin a win. Equal twins
/// that could not be compared show nothing about false calls, so they do not make them look rare.
fn rate(of: &[&CalibrationLine], planted: f64) -> Result<CalibrationRate, StatsError> {
    let count = |speed: Speed| of.iter().filter(|line| line.speed == speed).count() as u32;
    let (wins, losses, parities) = (count(Speed::Win), count(Speed::Loss), count(Speed::Parity));
    let comparisons = of.len() as u32;
    let hits = if planted == 0.0 { wins + losses } else { wins };
    let compared = of.iter().filter(|line| could_be_called(line)).count() as u32;
    let trials = if planted == 0.0 { compared.max(hits) } else { comparisons };
    let (rate, (low, high)) = match trials {
        0 if comparisons > 0 => (0.0, (0.0, 1.0)),
        _ => {
            let interval = binomial_interval(u64::from(hits), u64::from(trials), 0.95)?;
            (f64::from(hits) / f64::from(trials), interval)
        }
    };
    let widths: Vec<f64> = of
        .iter()
        .filter_map(|line| Some((line.high?.0 / line.low?.0).ln() / 2.0))
        .filter(|width| width.is_finite())
        .collect();
    Ok(CalibrationRate {
        planted,
        from_ns: None,
        below_ns: None,
        comparisons,
        wins,
        losses,
        parities,
        undecided: comparisons - wins - losses - parities,
        rate,
        low,
        high,
        median_half_width: median(&widths).ok().map(Real),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(planted: f64, speed: Speed) -> CalibrationLine {
        CalibrationLine {
            gate: "rms_norm.calibration".to_owned(),
            cell: "rows=1".to_owned(),
            planted,
            speed,
            ratio: Some(Real(1.0)),
            low: Some(Real(0.99)),
            high: Some(Real(1.01)),
            codes: vec![],
            time_ns: None,
            replicates: vec![],
        }
    }

    #[test]
    fn a_false_call_of_equal_twins_counts_whichever_way_it_falls() {
        let lines = [Speed::Win, Speed::Loss, Speed::Parity, Speed::Inconclusive];
        let rate = rate_of(&lines.map(|speed| line(0.0, speed)), 0.0).unwrap();
        assert_eq!((rate.rate, rate.undecided), (0.5, 1));
        assert!(rate.low > 0.0 && rate.high < 1.0);
    }

    #[test]
    fn equal_twins_that_could_not_be_compared_do_not_make_false_calls_rare() {
        let failed = CalibrationLine { ratio: None, ..line(0.0, Speed::Inconclusive) };
        let none = rate_of(&vec![failed.clone(); 400], 0.0).unwrap();
        assert_eq!((none.undecided, none.low, none.high), (400, 0.0, 1.0), "nothing was shown");
        let blind = CalibrationLine {
            codes: vec!["control-wrong".to_owned()],
            ..line(0.0, Speed::Inconclusive)
        };
        assert_eq!(rate_of(&vec![blind; 400], 0.0).unwrap().high, 1.0, "nothing may be called");
        let mut some = vec![failed; 399];
        some.push(line(0.0, Speed::Parity));
        let some = rate_of(&some, 0.0).unwrap();
        assert!(
            some.comparisons == 400 && some.high > 0.9,
            "one comparison shows little: {some:?}"
        );
        let slower = CalibrationLine { ratio: None, ..line(0.05, Speed::Inconclusive) };
        let seen = rate_of(&[slower, line(0.05, Speed::Win)], 0.05).unwrap();
        assert_eq!(seen.rate, 0.5, "a slower twin that could not be compared was not seen");
    }

    #[test]
    fn a_planted_slowdown_is_seen_only_by_a_win() {
        let lines = [Speed::Win, Speed::Loss, Speed::Parity, Speed::Inconclusive];
        let rate = rate_of(&lines.map(|speed| line(0.05, speed)), 0.05).unwrap();
        assert_eq!(rate.rate, 0.25);
    }

    #[test]
    fn no_comparison_has_no_rate() {
        assert!(matches!(rate(&[], 0.0), Err(StatsError::NoSamples)));
    }

    fn rate_of(lines: &[CalibrationLine], planted: f64) -> Result<CalibrationRate, StatsError> {
        rate(&lines.iter().collect::<Vec<_>>(), planted)
    }

    #[test]
    fn on_a_device_every_class_of_times_has_a_rate_of_its_own() {
        let timed =
            |ns: f64, speed| CalibrationLine { time_ns: Some(Real(ns)), ..line(0.02, speed) };
        let lines = [
            timed(1e3, Speed::Inconclusive),
            timed(4.9e3, Speed::Win),
            timed(20e3, Speed::Win),
            line(0.02, Speed::Inconclusive),
            line(0.0, Speed::Win),
        ];
        let all = rates(&lines, 0.02, DeviceKind::Cuda).unwrap();
        let seen: Vec<_> =
            all.iter().map(|r| (r.from_ns, r.below_ns, r.comparisons, r.wins)).collect();
        assert_eq!(
            seen,
            [(None, None, 4, 2), (Some(0.0), Some(5e3), 2, 1), (Some(20e3), None, 1, 1)]
        );
        assert_eq!(rates(&lines, 0.02, DeviceKind::Cpu).unwrap().len(), 1);
    }
}
