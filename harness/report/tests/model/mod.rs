//! A model with every verdict, for the tests of this crate.

use std::collections::BTreeMap;

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::evidence::{
    Control, Grade, HostFacts, QualificationScore, SessionRecord, SourceFacts, Summary,
};
use proofhouse_schema::gate::{GateKind, Profile};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::real::Real;
use proofhouse_schema::report::{CellRow, ReportModel, SamplePoint};
use proofhouse_schema::units::{Bytes, Wide};
use proofhouse_schema::verdict::{Comparison, Estimate, OrderEffect, Reason, Speed, Verdict};

const OPERATORS: [&str; 3] = ["rms_norm", "silu_and_mul", "greedy_logprob"];
const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];
const SPEEDS: [Speed; 7] = [
    Speed::Win,
    Speed::Parity,
    Speed::Loss,
    Speed::Lead,
    Speed::Even,
    Speed::Trail,
    Speed::Inconclusive,
];

/// A model with `correctness` and `timed` cells per operator and dtype.
pub fn model(correctness: usize, timed: usize) -> ReportModel {
    let session = Digest::of(b"session");
    let mut cells = Vec::new();
    for operator in OPERATORS {
        for kind in [GateKind::Baseline, GateKind::Correctness] {
            let count = if kind == GateKind::Baseline { timed } else { correctness };
            for (index, dtype) in (0..count).flat_map(|i| DTYPES.map(|d| (i, d))) {
                cells.push(cell(operator, kind, index, dtype, &session));
            }
        }
    }
    ReportModel {
        title: "Proofhouse <quick> & \"true\"".to_owned(),
        generated: "2026-12-01T00:00:00Z".to_owned(),
        tool: "proofhouse 0.1.0".to_owned(),
        sessions: BTreeMap::from([(session, session_record())]),
        cells,
    }
}

fn cell(operator: &str, kind: GateKind, index: usize, dtype: Dtype, session: &Digest) -> CellRow {
    let timed = kind == GateKind::Baseline;
    let verdict = Verdict::ALL[index % Verdict::ALL.len()];
    let rows = 1 << (index % 12);
    let shape = match operator {
        "greedy_logprob" => format!("rows={rows} vocab=151936 k=20"),
        _ => format!("rows={rows} hidden=4096"),
    };
    let key = format!("{shape} {dtype} contiguous normal #{index}");
    let evidence = Digest::of(format!("{operator} {kind} {key}").as_bytes());
    let gate = format!("{operator}.{kind}");
    let reason =
        Reason::new("out-of-tolerance", format!("y[3, 7]: expected 1.0 < found |2.0| in {key}"));
    CellRow {
        gate: gate.parse().unwrap(),
        kind,
        operator: operator.parse().unwrap(),
        shape,
        dtype,
        layout: "contiguous".to_owned(),
        values: if !timed && index % 8 == 7 { "refusal: eps-zero" } else { "normal" }.to_owned(),
        provider: "cpu".parse().unwrap(),
        verdict,
        reasons: if verdict == Verdict::Pass { vec![] } else { vec![reason] },
        grade: Grade::Exploratory,
        required: index % 3 != 2,
        max_ulp: (!timed).then_some(0.5),
        comparisons: if timed { comparisons(index) } else { vec![] },
        times: if timed { times() } else { BTreeMap::new() },
        samples: if timed { samples() } else { vec![] },
        traffic: timed.then_some((Bytes(1 << 20), Bytes(1 << 20))),
        contract: timed.then(|| "hot eager host 1 thread".to_owned()),
        file: format!("{gate}/2026-12-01-{}.json", evidence.short()),
        evidence,
        session: session.clone(),
        reproduce: ["proofhouse", "run", "--filter", &key].map(str::to_owned).to_vec(),
        cell: key,
    }
}

fn comparisons(index: usize) -> Vec<Comparison> {
    let speed = SPEEDS[index % SPEEDS.len()];
    let ratio = 0.7 + 0.25 * index as f64;
    let estimate = Estimate {
        ratio: Real(ratio),
        low: Real(ratio * 0.97),
        high: Real(ratio * 1.03),
        half_width: Real(0.03),
        replicates: vec![Real(ratio)],
        p_value: Real(0.01),
        order_effect: Some(OrderEffect { effect: Real(1.0), low: Real(0.99), high: Real(1.01) }),
    };
    ["numpy", "onnxruntime"]
        .map(|baseline| Comparison {
            candidate: "cpu".parse().unwrap(),
            baseline: baseline.parse().unwrap(),
            baseline_version: "2.3.4".to_owned(),
            speed,
            estimate: (speed != Speed::Inconclusive).then(|| estimate.clone()),
            margin: 0.03,
            reasons: vec![],
        })
        .to_vec()
}

fn times() -> BTreeMap<proofhouse_schema::ids::ProviderId, Summary> {
    let summary = |ns: f64| Summary {
        count: 48,
        min_ns: Real(ns * 0.9),
        p10_ns: Real(ns * 0.95),
        p50_ns: Real(ns),
        p90_ns: Real(ns * 1.1),
        max_ns: Real(ns * 1.5),
        mean_ns: Real(ns * 1.02),
        cv: Real(0.05),
    };
    [("cpu", 900.0), ("numpy", 5200.0), ("onnxruntime", 2400.0)]
        .map(|(id, ns)| (id.parse().unwrap(), summary(ns)))
        .into()
}

fn samples() -> Vec<SamplePoint> {
    let point = |(index, id): (u32, &str)| SamplePoint {
        provider: id.parse().unwrap(),
        replicate: 0,
        block: index / 3,
        position: index % 3,
        per_call_ns: if index == 61 { 16_000.0 } else { 1000.0 + f64::from(index * 37 % 101) },
    };
    (0..96).zip(["cpu", "numpy", "onnxruntime"].into_iter().cycle()).map(point).collect()
}

fn session_record() -> SessionRecord {
    let known = |text: &str| Probe::Known(text.to_owned());
    let control = |name: &str, planted: f64, speed, right| Control {
        device: DeviceKind::Cpu,
        name: name.to_owned(),
        planted,
        estimate: None,
        speed,
        right,
    };
    SessionRecord {
        schema: proofhouse_schema::SCHEMA.to_owned(),
        writer: "w-1".parse().unwrap(),
        tool: "proofhouse 0.1.0".to_owned(),
        started: Wide(1_764_550_800_000_000_000),
        host: HostFacts {
            machine: known("0123456789abcdef"),
            kernel: known("Linux 6.1"),
            distribution: known("Debian GNU/Linux 12"),
            cpu: known("A processor"),
            features: vec!["avx2".to_owned(), "avx512f".to_owned()],
            cores: Probe::Known(2),
            memory: Probe::Known(Bytes(24 << 30)),
            last_level_cache: Probe::Known(Bytes(32 << 20)),
            numa_nodes: Probe::Known(1),
            container: known("none"),
            governor: Probe::Unavailable("no such file".to_owned()),
            load: known("0.10"),
        },
        devices: vec![],
        profile: Profile {
            id: "quick".parse().unwrap(),
            replicates: 1,
            blocks: 8,
            samples: 4,
            min_sample_us: 100.0,
        },
        source: SourceFacts {
            revision: known("abc"),
            tree: known("def"),
            dirty: Probe::Known(false),
            diff: None,
        },
        controls: vec![
            control("a-a", 0.0, Speed::Even, true),
            control("a-b", 0.05, Speed::Inconclusive, false),
        ],
        ceilings: BTreeMap::from([("copy_bytes_per_s".to_owned(), Probe::Known(Real(9e9)))]),
        qualification: BTreeMap::from([(
            "rms_norm F32".to_owned(),
            QualificationScore {
                killed: 9,
                mutants: 9,
                equivalent: 0,
                false_alarms: 0,
                survivors: vec![],
            },
        )]),
        command: vec!["proofhouse".to_owned(), "run".to_owned()],
    }
}
