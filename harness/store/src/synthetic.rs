//! Records and samples made from numbers, for benchmarks and tests; none of them is evidence.
//!
//! Everything follows from the record's number, so that a benchmark measures the same work every time.

use std::collections::BTreeMap;

use proofhouse_evidence::Stored;
use proofhouse_schema::SCHEMA;
use proofhouse_schema::canonical::{self, Digest};
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::evidence::{
    Arm, Attempt, BaselineObservation, BlobRef, CellRecord, Ending, Grade, HostFacts, Observation,
    QualificationScore, Record, SessionRecord, SourceFacts, Summary,
};
use proofhouse_schema::gate::{CaseSpec, Expect, GateHeader, GateKind, Inputs, Level, Profile};
use proofhouse_schema::ids::{GateId, IdError, OperatorName, ProfileId, ProviderId, WriterId};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::provider::ProviderFacts;
use proofhouse_schema::real::Real;
use proofhouse_schema::samples::{Sample, Samples};
use proofhouse_schema::timing::{Cache, Clock, ClockPolicy, Launch, Statistic, TimingContract};
use proofhouse_schema::units::{Bytes, Nanos, Wide};
use proofhouse_schema::verdict::{Comparison, Estimate, Require, Speed, Verdict, VerdictBody};

use crate::error::{StoreError, doing};
use crate::source::{Source, SourceError};
use crate::store::Store;

/// The two providers of every synthetic cell: the candidate and its baseline.
pub const PROVIDERS: [&str; 2] = ["cpu", "numpy"];

/// The first moment of the first record, nanoseconds since 1970.
const BEGAN_NS: u64 = 1_700_000_000_000_000_000;

/// A source of `cells` timed cells, each with a verdict and with `samples` samples, in one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synthetic {
    /// Number of cells.
    pub cells: u32,
    /// Samples in each.
    pub samples: u32,
}

impl Source for Synthetic {
    fn files(&self) -> Result<Vec<String>, SourceError> {
        let cells = (0..self.cells).map(|number| format!("rms_norm.baseline/cell-{number}.json"));
        let verdicts =
            (0..self.cells).map(|number| format!("rms_norm.baseline/verdict-{number}.json"));
        Ok(["session/session-0.json".to_owned()].into_iter().chain(cells).chain(verdicts).collect())
    }

    fn load(&self, file: &str) -> Result<Stored, SourceError> {
        let name = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".json");
        let (kind, number) = name.split_once('-').ok_or("not a synthetic file")?;
        let number: u32 = number.parse()?;
        let record = match kind {
            "session" => Record::Session(Box::new(session()?)),
            "cell" => Record::Cell(Box::new(cell(number, self.samples)?)),
            _ => Record::Verdict(Box::new(verdict(number, self.samples)?)),
        };
        let digest = canonical::digest(&record)?;
        Ok(Stored { file: file.to_owned(), digest, record })
    }

    fn samples(&self, blob: &BlobRef) -> Result<Samples, SourceError> {
        Ok(samples(u32::try_from(blob.size.0)?, self.samples)?)
    }
}

/// A session on a made-up host.
///
/// # Errors
/// None in practice: every id here follows its grammar.
pub fn session() -> Result<SessionRecord, IdError> {
    let none = || Probe::Unavailable("synthetic".to_owned());
    Ok(SessionRecord {
        schema: SCHEMA.to_owned(),
        writer: WriterId::new("synthetic")?,
        tool: "0.0.0".to_owned(),
        started: Wide(BEGAN_NS),
        host: HostFacts {
            machine: Probe::Known("synthetic".to_owned()),
            kernel: none(),
            distribution: none(),
            cpu: Probe::Known("synthetic".to_owned()),
            features: Vec::new(),
            cores: Probe::Known(2),
            memory: Probe::Known(Bytes(1 << 34)),
            last_level_cache: Probe::Unavailable("synthetic".to_owned()),
            numa_nodes: Probe::Known(1),
            container: none(),
            governor: none(),
            load: none(),
        },
        devices: Vec::new(),
        profile: profile()?,
        source: source_facts(),
        controls: Vec::new(),
        ceilings: BTreeMap::new(),
        qualification: BTreeMap::new(),
        command: vec!["proofhouse".to_owned(), "bench".to_owned()],
    })
}

/// The timed cell with this number.
///
/// # Errors
/// As [`session`].
pub fn cell(number: u32, samples: u32) -> Result<CellRecord, IdError> {
    let gate = gate()?;
    let (rows, hidden) = (1_u64 << (number % 11), 1024 * (1 + u64::from(number / 11)));
    let dims = BTreeMap::from([("rows".to_owned(), rows), ("hidden".to_owned(), hidden)]);
    let [candidate, baseline] = PROVIDERS.map(|id| ProviderId::new(id).map(facts));
    Ok(CellRecord {
        schema: SCHEMA.to_owned(),
        key: Digest::of(format!("key {number}").as_bytes()),
        gate_digest: Digest::of(b"synthetic gate"),
        cell: cell_key(number),
        case: CaseSpec {
            operator: gate.operator.clone(),
            dims,
            dtype: Dtype::BF16,
            layout: "contiguous".to_owned(),
            params: BTreeMap::new(),
            inputs: Inputs::Seeded { values: "normal".to_owned(), seed: Wide(7) },
            expect: Expect::Outputs,
        },
        gate,
        profile: profile()?,
        candidate: candidate?,
        baselines: vec![baseline?],
        checker: facts(ProviderId::new("oracle")?),
        inputs: BTreeMap::from([("x".to_owned(), Digest::of(b"x"))]),
        tolerance: BTreeMap::from([("out".to_owned(), "1 ulp".to_owned())]),
        traffic: None,
        device: None,
        session: session_digest()?,
        source: source_facts(),
        attempts: attempts(number)?,
        observation: Observation::Baseline(BaselineObservation {
            arms: arms(number)?,
            samples: BlobRef {
                sha256: Digest::of(format!("blob {number}").as_bytes()),
                // The number travels in the size, so that the source can make the samples again.
                size: Bytes(u64::from(number)),
                rows: u64::from(samples),
            },
            timed: BTreeMap::new(),
            absent: BTreeMap::new(),
            qualification: QualificationScore {
                killed: 8,
                mutants: 8,
                equivalent: 0,
                false_alarms: 0,
                survivors: Vec::new(),
            },
        }),
        witness: BTreeMap::new(),
        grade: Grade::Exploratory,
        reproduce: vec!["proofhouse".to_owned(), "run".to_owned(), "rms_norm.baseline".to_owned()],
    })
}

/// The verdict on the cell with this number.
///
/// # Errors
/// As [`session`].
pub fn verdict(number: u32, samples: u32) -> Result<VerdictBody, IdError> {
    let record = Record::Cell(Box::new(cell(number, samples)?));
    let bytes = serde_json::to_vec(&record).unwrap_or_default();
    let evidence = canonical::digest(&record).unwrap_or_else(|_| Digest::of(&bytes));
    let ratio = 1.0 + f64::from(number % 7) / 10.0;
    Ok(VerdictBody {
        schema: SCHEMA.to_owned(),
        evidence,
        gate: GateId::new("rms_norm.baseline")?,
        cell: cell_key(number),
        provider: ProviderId::new(PROVIDERS[0])?,
        judge: "synthetic 0.0.0".to_owned(),
        verdict: Verdict::Pass,
        reasons: Vec::new(),
        comparisons: vec![Comparison {
            candidate: ProviderId::new(PROVIDERS[0])?,
            baseline: ProviderId::new(PROVIDERS[1])?,
            baseline_version: "0.0.0".to_owned(),
            speed: Speed::Lead,
            estimate: Some(Estimate {
                ratio: Real(ratio),
                low: Real(ratio * 0.99),
                high: Real(ratio * 1.01),
                half_width: Real(0.01),
                replicates: vec![Real(ratio)],
                p_value: Real(0.001),
                order_effect: None,
            }),
            margin: 0.03,
            reasons: Vec::new(),
        }],
        grade: Grade::Exploratory,
        required: true,
    })
}

/// The samples of the cell with this number: two providers taking turns, the first block a warm-up.
///
/// # Errors
/// As [`session`].
pub fn samples(number: u32, count: u32) -> Result<Samples, IdError> {
    let providers = PROVIDERS.into_iter().map(ProviderId::new).collect::<Result<Vec<_>, _>>()?;
    let sample = |at: u32| {
        let block = at / 20;
        let provider = at % 2;
        // A small integer hash: the same noise on every machine.
        let noise = (at.wrapping_mul(2_654_435_761).wrapping_add(number)) >> 24;
        Sample {
            provider: provider as u16,
            replicate: (block % 3) as u16,
            block: (block % u32::from(u16::MAX)) as u16,
            position: ((block + provider) % 2) as u8,
            measured: block > 0,
            calls: 10,
            elapsed_ns: 10_000.0 * f64::from(1 + provider) + f64::from(noise),
        }
    };
    Ok(Samples { providers, rows: (0..count).map(sample).collect(), ..Samples::default() })
}

/// Adds `rows` samples by SQL alone, spread over cells of 1,000 that have no record: a table to query.
///
/// # Errors
/// [`StoreError::Database`].
pub fn fill_samples(store: &mut Store, rows: u64) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO samples
         SELECT (i // 1000)::INTEGER, CASE i % 2 WHEN 0 THEN '{}' ELSE '{}' END, i // 200 % 5, i // 20 % 50, i % 2,
                i % 1000 >= 20, 10, 10000 + hash(i) % 1000, 1000 + (hash(i) % 1000) / 10
         FROM range({rows}) numbers(i)",
        PROVIDERS[0], PROVIDERS[1]
    );
    store.connection.execute_batch(&sql).map_err(doing("filling the samples"))
}

fn cell_key(number: u32) -> String {
    format!(
        "rows={} hidden={} BF16 contiguous normal",
        1 << (number % 11),
        1024 * (1 + number / 11)
    )
}

fn gate() -> Result<GateHeader, IdError> {
    let contract = TimingContract {
        cache: Cache::Hot,
        launch: Launch::Eager,
        clock: Clock::Host,
        includes: Vec::new(),
        threads: 1,
        statistic: Statistic::MedianPerCall,
        clock_policy: ClockPolicy::AsFound,
    };
    Ok(GateHeader {
        id: GateId::new("rms_norm.baseline")?,
        kind: GateKind::Baseline,
        level: Level::Required,
        about: "A synthetic gate.".to_owned(),
        device: DeviceKind::Cpu,
        operator: OperatorName::new("rms_norm")?,
        candidates: vec![ProviderId::new(PROVIDERS[0])?],
        baselines: vec![ProviderId::new(PROVIDERS[1])?],
        timing: Some(proofhouse_schema::gate::TimingRule {
            contract,
            margin: 0.03,
            require: Require::Measured,
        }),
    })
}

fn profile() -> Result<Profile, IdError> {
    let id = ProfileId::new("quick")?;
    Ok(Profile { id, replicates: 1, blocks: 12, samples: 10, min_sample_us: 100.0 })
}

fn facts(id: ProviderId) -> ProviderFacts {
    ProviderFacts {
        source: Digest::of(id.as_str().as_bytes()),
        id,
        version: Probe::Known("0.0.0".to_owned()),
        binary: Probe::Unavailable("synthetic".to_owned()),
        packages: BTreeMap::new(),
        compiler: Probe::Unavailable("synthetic".to_owned()),
        includes: Vec::new(),
    }
}

fn source_facts() -> SourceFacts {
    SourceFacts {
        revision: Probe::Known("0".repeat(40)),
        tree: Probe::Known("0".repeat(40)),
        dirty: Probe::Known(false),
        diff: None,
    }
}

fn session_digest() -> Result<Digest, IdError> {
    let record = Record::Session(Box::new(session()?));
    let bytes = canonical::to_bytes(&record).unwrap_or_default();
    Ok(Digest::of(&bytes))
}

fn attempts(number: u32) -> Result<Vec<Attempt>, IdError> {
    let attempt = |id: &str| {
        let started = BEGAN_NS + u64::from(number) * 1_000_000_000;
        Ok(Attempt {
            provider: ProviderId::new(id)?,
            replicate: 0,
            argv: vec![format!("proofhouse-worker-{id}")],
            environment: BTreeMap::from([("LANG".to_owned(), "C".to_owned())]),
            started: Wide(started),
            ended: Some(Wide(started + 900_000_000)),
            hello: Some(Nanos(4e6)),
            ending: Some(Ending::Exit(0)),
            stderr: String::new(),
            peak_memory: Probe::Known(Bytes(8 << 20)),
            orphans: 0,
        })
    };
    PROVIDERS.into_iter().map(attempt).collect()
}

fn arms(number: u32) -> Result<Vec<Arm>, IdError> {
    let arm = |(at, id): (usize, &str)| {
        let time = |extra: f64| Real(1000.0 * (1 + at) as f64 + f64::from(number % 7) + extra);
        Ok(Arm {
            provider: ProviderId::new(id)?,
            replicate: 0,
            calls: 10,
            sets: 1,
            block_median_ns: (0..12).map(|block| time(f64::from(block))).collect(),
            positions: (0..12).map(|block| (block + at as u32) % 2).collect(),
            summary: Summary {
                count: 120,
                min_ns: time(0.0),
                p10_ns: time(1.0),
                p50_ns: time(5.0),
                p90_ns: time(9.0),
                max_ns: time(20.0),
                mean_ns: time(5.5),
                cv: Real(0.004),
            },
            supervisor_wall_ns: Nanos(1.01e6),
            worker_wall_ns: Nanos(1e6),
            invalid: Vec::new(),
            reuse: None,
            retaken: 0,
            kernels: Vec::new(),
            enqueue: None,
            sm_mhz: None,
        })
    };
    PROVIDERS.into_iter().enumerate().map(arm).collect()
}
