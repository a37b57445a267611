//! Honest records, which the tests then spoil one fact at a time.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use proofhouse_gate::judge::{Evidence, judge};
use proofhouse_gate::stats::{median, summarize};
use proofhouse_schema::SCHEMA;
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::evidence::{
    Arm, BaselineObservation, BlobRef, CellRecord, Control, CorrectnessObservation, Grade,
    HostFacts, Observation, Outcome, Pass, Purpose, QualificationScore, SessionRecord, SourceFacts,
    TensorComparison, Traffic,
};
use proofhouse_schema::gate::{
    CaseSpec, Expect, GateHeader, GateKind, Inputs, Level, Profile, TimingRule,
};
use proofhouse_schema::ids::{OperatorName, ProfileId, ProviderId, WriterId};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::protocol::TypedError;
use proofhouse_schema::provider::ProviderFacts;
use proofhouse_schema::real::Real;
use proofhouse_schema::samples::{Sample, Samples};
use proofhouse_schema::timing::{Cache, Clock, ClockPolicy, Launch, Statistic, TimingContract};
use proofhouse_schema::units::{Bytes, Nanos, Wide};
use proofhouse_schema::verdict::{Estimate, Require, Speed, Verdict, VerdictBody};

/// A record with what it is judged with.
#[derive(Clone)]
pub struct Seen {
    pub record: CellRecord,
    pub samples: Option<Samples>,
    pub session: Option<SessionRecord>,
}

impl Seen {
    pub fn judge(&self) -> VerdictBody {
        let digest = Digest::of(b"the record");
        let evidence = Evidence {
            digest: &digest,
            samples: self.samples.as_ref(),
            session: self.session.as_ref(),
        };
        judge(&self.record, &evidence)
    }

    pub fn correctness(&mut self) -> &mut CorrectnessObservation {
        match &mut self.record.observation {
            Observation::Correctness(seen) => seen,
            other => panic!("{other:?}"),
        }
    }

    pub fn pass(&mut self, purpose: Purpose) -> &mut Pass {
        self.correctness().passes.iter_mut().find(|pass| pass.purpose == purpose).unwrap()
    }

    pub fn baseline(&mut self) -> &mut BaselineObservation {
        match &mut self.record.observation {
            Observation::Baseline(seen) => seen,
            other => panic!("{other:?}"),
        }
    }

    pub fn session(&mut self) -> &mut SessionRecord {
        self.session.as_mut().unwrap()
    }

    /// Every code that the verdict gives, comparisons included.
    pub fn codes(&self) -> Vec<String> {
        let body = self.judge();
        let inner = body.comparisons.iter().flat_map(|c| c.reasons.clone());
        body.reasons.iter().cloned().chain(inner).map(|reason| reason.code).collect()
    }
}

/// Spoils a copy and checks the verdict and that the code is among the reasons.
pub fn turns(honest: &Seen, verdict: Verdict, code: &str, spoil: impl FnOnce(&mut Seen)) {
    let mut spoiled = honest.clone();
    spoil(&mut spoiled);
    let body = spoiled.judge();
    let codes = spoiled.codes();
    assert_eq!(body.verdict, verdict, "{code}: {:?}", body.reasons);
    assert!(codes.iter().any(|found| found == code), "{code} is not among {codes:?}");
}

pub fn id(text: &str) -> ProviderId {
    ProviderId::new(text).unwrap()
}

pub fn facts(name: &str) -> ProviderFacts {
    ProviderFacts {
        id: id(name),
        version: Probe::Known("1.0".into()),
        source: Digest::of(name.as_bytes()),
        binary: Probe::Known(Digest::of(b"binary")),
        packages: BTreeMap::new(),
        compiler: Probe::Unavailable("not compiled".into()),
        includes: Vec::new(),
    }
}

pub fn comparison(tensor: &str) -> TensorComparison {
    TensorComparison {
        tensor: tensor.into(),
        elements: 192,
        finite: 192,
        class_mismatches: 0,
        out_of_tolerance: 0,
        max_ulp: Real(1.0),
        max_abs: Real(1e-7),
        max_rel: Real(1e-7),
        bad: Vec::new(),
    }
}

pub fn pass(purpose: Purpose) -> Pass {
    let contents = if purpose == Purpose::Renewed { "renewed" } else { "own" };
    let single = purpose == Purpose::SingleRow;
    Pass {
        purpose,
        outcome: Outcome::Ran,
        outputs: vec![comparison("y")],
        findings: Vec::new(),
        digests: BTreeMap::from([(
            "y".to_owned(),
            Digest::of(if single { b"one row".as_slice() } else { contents.as_bytes() }),
        )]),
        rows: vec![Digest::of(contents.as_bytes())],
    }
}

pub fn score() -> QualificationScore {
    QualificationScore { killed: 9, mutants: 9, equivalent: 1, false_alarms: 0, survivors: vec![] }
}

fn known<T>(value: T) -> Probe<T> {
    Probe::Known(value)
}

pub fn session(controls: Vec<Control>) -> SessionRecord {
    SessionRecord {
        schema: SCHEMA.into(),
        writer: WriterId::new("writer").unwrap(),
        tool: "0.1.0".into(),
        started: Wide(1),
        host: HostFacts {
            machine: known("m".into()),
            kernel: known("Linux 6".into()),
            distribution: known("Debian 12".into()),
            cpu: known("a CPU".into()),
            features: vec!["avx2".into()],
            cores: known(2),
            memory: known(Bytes(8 << 30)),
            last_level_cache: known(Bytes(32 << 20)),
            numa_nodes: known(1),
            container: known("none".into()),
            governor: Probe::Unavailable("no cpufreq".into()),
            load: known("0.1".into()),
        },
        devices: Vec::new(),
        profile: profile(),
        source: source(),
        controls,
        ceilings: BTreeMap::from([
            ("copy_bytes_per_s".to_owned(), known(Real(1e10))),
            ("read_bytes_per_s".to_owned(), known(Real(2e10))),
        ]),
        qualification: BTreeMap::new(),
        command: vec!["proofhouse".into(), "run".into()],
    }
}

pub fn control(planted: f64, ratio: f64, speed: Speed, right: bool) -> Control {
    let real = |factor: f64| Real(ratio * factor);
    Control {
        device: DeviceKind::Cpu,
        name: if planted == 0.0 { "a-a" } else { "a-b" }.into(),
        planted,
        estimate: Some(Estimate {
            ratio: Real(ratio),
            low: real(0.995),
            high: real(1.005),
            half_width: Real(0.005),
            replicates: vec![Real(ratio)],
            p_value: Real(0.5),
            order_effect: None,
        }),
        speed,
        right,
    }
}

pub fn honest_controls() -> Vec<Control> {
    vec![control(0.0, 1.0, Speed::Parity, true), control(0.05, 1.0 / 1.05, Speed::Loss, true)]
}

pub fn profile() -> Profile {
    Profile {
        id: ProfileId::new("claim").unwrap(),
        replicates: 5,
        blocks: 12,
        samples: 3,
        min_sample_us: 500.0,
    }
}

fn source() -> SourceFacts {
    SourceFacts {
        revision: known("abc".into()),
        tree: known("def".into()),
        dirty: known(false),
        diff: None,
    }
}

fn case(expect: Expect) -> CaseSpec {
    CaseSpec {
        operator: OperatorName::new("rms_norm").unwrap(),
        dims: BTreeMap::from([("rows".to_owned(), 3), ("hidden".to_owned(), 64)]),
        dtype: Dtype::F32,
        layout: "contiguous".into(),
        params: BTreeMap::new(),
        inputs: Inputs::Seeded { values: "normal".into(), seed: Wide(1) },
        expect,
    }
}

fn record(kind: GateKind, expect: Expect, observation: Observation) -> CellRecord {
    CellRecord {
        schema: SCHEMA.into(),
        key: Digest::of(b"key"),
        gate: GateHeader {
            id: "rms_norm.test".parse().unwrap(),
            kind,
            level: Level::Required,
            about: "a gate".into(),
            device: DeviceKind::Cpu,
            operator: OperatorName::new("rms_norm").unwrap(),
            candidates: vec![id("cpu")],
            baselines: Vec::new(),
            timing: None,
        },
        gate_digest: Digest::of(b"gate"),
        cell: "rows=3 hidden=64 F32 contiguous normal".into(),
        case: case(expect),
        profile: profile(),
        candidate: facts("cpu"),
        baselines: Vec::new(),
        checker: facts("oracle"),
        inputs: BTreeMap::from([("x".to_owned(), Digest::of(b"x"))]),
        tolerance: BTreeMap::from([("y".to_owned(), "within 2 ulp".to_owned())]),
        traffic: Some(Traffic { read: Bytes(1000), written: Bytes(1000) }),
        device: None,
        session: Digest::of(b"session"),
        source: source(),
        attempts: Vec::new(),
        observation,
        witness: BTreeMap::new(),
        grade: Grade::Exploratory,
        reproduce: vec!["proofhouse".into()],
    }
}

/// A correctness cell that must pass.
pub fn right_outputs() -> Seen {
    let purposes = [Purpose::First, Purpose::Repeat, Purpose::Renewed, Purpose::SingleRow];
    let seen = CorrectnessObservation {
        passes: purposes.into_iter().map(pass).collect(),
        qualification: score(),
    };
    Seen {
        record: record(GateKind::Correctness, Expect::Outputs, Observation::Correctness(seen)),
        samples: None,
        session: Some(session(Vec::new())),
    }
}

pub fn refusal_error() -> TypedError {
    TypedError {
        kind: "out_of_range".into(),
        operator: "rms_norm".into(),
        argument: "eps".into(),
        found: "0".into(),
        accepted: "finite and above 0".into(),
    }
}

/// A refusal cell that must pass.
pub fn right_refusal() -> Seen {
    let mut refused = pass(Purpose::Refusal);
    refused.outcome = Outcome::Refused(refusal_error());
    refused.outputs.clear();
    refused.digests.clear();
    refused.rows.clear();
    let seen = CorrectnessObservation { passes: vec![refused], qualification: score() };
    let expect = Expect::Refusal {
        name: "eps-zero".into(),
        kind: "out_of_range".into(),
        argument: "eps".into(),
    };
    Seen {
        record: record(GateKind::Correctness, expect, Observation::Correctness(seen)),
        samples: None,
        session: Some(session(Vec::new())),
    }
}

/// How a timed cell of the tests comes out: how many times as long each baseline takes as the candidate.
pub struct Speeds<'a> {
    pub ratios: &'a [(&'a str, f64)],
    pub replicates: u32,
    pub require: Require,
    /// Relative noise of a turn.
    pub noise: f64,
}

pub fn fast() -> Speeds<'static> {
    Speeds {
        ratios: &[("numpy", 2.0), ("onnxruntime", 1.3)],
        replicates: 5,
        require: Require::Win,
        noise: 0.004,
    }
}

const BLOCKS: u16 = 12;
const SAMPLES: usize = 3;
const CALLS: u32 = 100;

/// A number in [-1, 1) that follows from its arguments.
fn jitter(parts: [u64; 4]) -> f64 {
    let mut z = parts.iter().fold(7u64, |z, part| (z ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^= z >> 27;
    (z % 20_000) as f64 / 10_000.0 - 1.0
}

/// A baseline cell whose samples agree with its summaries.
pub fn timed(speeds: &Speeds<'_>) -> Seen {
    let mut names = vec![("cpu", 1.0)];
    names.extend_from_slice(speeds.ratios);
    let mut samples = Samples {
        providers: names.iter().map(|(name, _)| id(name)).collect(),
        ..Samples::default()
    };
    for replicate in 0..speeds.replicates as u16 {
        for block in 0..BLOCKS {
            for (index, (_, ratio)) in names.iter().enumerate() {
                let place = (index + usize::from(block)) % names.len();
                for sample in 0..SAMPLES {
                    let parts =
                        [u64::from(replicate), u64::from(block), index as u64, sample as u64];
                    let per_call = 10_000.0 * ratio * (1.0 + speeds.noise * jitter(parts));
                    samples.rows.push(Sample {
                        provider: index as u16,
                        replicate,
                        block,
                        position: place as u8,
                        measured: true,
                        calls: CALLS,
                        elapsed_ns: per_call * f64::from(CALLS),
                    });
                }
            }
        }
    }
    let arms = (0..speeds.replicates)
        .flat_map(|replicate| (0..names.len()).map(move |index| (replicate, index)))
        .map(|(replicate, index)| arm(&samples, index, replicate))
        .collect();
    let seen = BaselineObservation {
        arms,
        samples: BlobRef {
            sha256: Digest::of(b"blob"),
            size: Bytes(1),
            rows: samples.rows.len() as u64,
        },
        timed: names.iter().map(|(name, _)| (id(name), vec![pass(Purpose::Timed)])).collect(),
        absent: BTreeMap::new(),
        qualification: score(),
    };
    let mut record = record(GateKind::Baseline, Expect::Outputs, Observation::Baseline(seen));
    record.gate.baselines = speeds.ratios.iter().map(|(name, _)| id(name)).collect();
    record.baselines = speeds.ratios.iter().map(|(name, _)| facts(name)).collect();
    record.gate.timing = Some(rule(speeds.require));
    record.profile.replicates = speeds.replicates;
    Seen { record, samples: Some(samples), session: Some(session(honest_controls())) }
}

pub fn rule(require: Require) -> TimingRule {
    TimingRule {
        contract: TimingContract {
            cache: Cache::Hot,
            launch: Launch::Eager,
            clock: Clock::Host,
            includes: Vec::new(),
            threads: 1,
            statistic: Statistic::MedianPerCall,
            clock_policy: ClockPolicy::AsFound,
        },
        margin: 0.03,
        require,
    }
}

fn arm(samples: &Samples, index: usize, replicate: u32) -> Arm {
    let rows: Vec<&Sample> = samples
        .rows
        .iter()
        .filter(|r| usize::from(r.provider) == index && u32::from(r.replicate) == replicate)
        .collect();
    let per_call = |r: &&Sample| r.elapsed_ns / f64::from(r.calls);
    let times: Vec<f64> = rows.iter().map(per_call).collect();
    let blocks: Vec<Vec<&Sample>> =
        rows.chunk_by(|a, b| a.block == b.block).map(<[&Sample]>::to_vec).collect();
    let timed: f64 = rows.iter().map(|r| r.elapsed_ns).sum();
    Arm {
        provider: samples.providers[index].clone(),
        replicate,
        calls: CALLS,
        sets: 1,
        block_median_ns: blocks
            .iter()
            .map(|block| Real(median(&block.iter().map(per_call).collect::<Vec<_>>()).unwrap()))
            .collect(),
        positions: blocks.iter().map(|block| u32::from(block[0].position)).collect(),
        summary: summarize(&times).unwrap(),
        supervisor_wall_ns: Nanos(timed * 1.02 + 12.0 * 2e5),
        worker_wall_ns: Nanos(timed * 1.01),
        invalid: Vec::new(),
        reuse: None,
        retaken: 0,
        kernels: Vec::new(),
        enqueue: None,
        sm_mhz: None,
    }
}

/// Makes every sample of a timed cell longer or shorter by a factor that depends on it, and its summaries with it.
pub fn retime(seen: &mut Seen, factor: impl Fn(&ProviderId, &Sample) -> f64) {
    let samples = seen.samples.as_mut().unwrap();
    for row in &mut samples.rows {
        row.elapsed_ns *= factor(&samples.providers[usize::from(row.provider)], row);
    }
    let samples = samples.clone();
    for made in &mut seen.baseline().arms {
        let index = samples.providers.iter().position(|id| *id == made.provider).unwrap();
        *made = arm(&samples, index, made.replicate);
    }
}
