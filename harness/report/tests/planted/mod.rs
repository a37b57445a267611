//! A gate's providers in a planted order, for the tests of this crate and to look at.

use std::collections::BTreeMap;

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::evidence::{Grade, Summary};
use proofhouse_schema::gate::TimingRule;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::ordering::{
    Absence, AgainstBest, CellOrdering, Crossover, CrossoverPoint, CrossoverTurn, Flip,
    GateOrdering, OverallOrdering, Pair, Ranking, Standing, UnrankedCell,
};
use proofhouse_schema::real::Real;
use proofhouse_schema::timing::{Cache, Clock, ClockPolicy, Launch, Statistic, TimingContract};
use proofhouse_schema::verdict::{Comparison, Estimate, Reason, Require, Speed, Verdict};

/// What a provider costs at most: launching a call, and moving a row, in nanoseconds.
const COSTS: [(&str, f64, f64); 7] = [
    ("cuda", 1900.0, 3.1),
    ("flashinfer", 2200.0, 3.15),
    ("inductor", 2900.0, 3.0),
    ("liger", 4300.0, 3.9),
    ("quack", 2500.0, 2.9),
    ("torch", 7100.0, 9.0),
    ("vllm", 2250.0, 4.4),
];

/// A gate of so many providers whose cells vary in rows, at two widths.
pub fn gate(providers: usize, rows: &[u64]) -> GateOrdering {
    let costs = &COSTS[..providers];
    let cells: Vec<CellOrdering> = [4096, 8192]
        .iter()
        .flat_map(|hidden| rows.iter().map(move |rows| cell(costs, *rows, *hidden)))
        .collect();
    let mean: Vec<(&str, f64)> = costs.iter().map(|(id, fixed, _)| (*id, *fixed)).collect();
    GateOrdering {
        gate: "rms_norm.cuda.baseline".parse().unwrap(),
        operator: "rms_norm".parse().unwrap(),
        candidate: "cuda".parse().unwrap(),
        device: DeviceKind::Cuda,
        place: "NVIDIA H200".to_owned(),
        timing: Some(rule()),
        overall: Some(OverallOrdering {
            ranking: ranking(&mean, false),
            cells: cells.iter().map(|cell| cell.cell.clone()).collect(),
            replicates: 3,
        }),
        against_best: Some(AgainstBest {
            estimate: estimate(1.0375),
            cells: cells.len() as u32,
            worst: cells[rows.len() - 1].cell.clone(),
        }),
        cells,
        unranked: vec![UnrankedCell {
            cell: "rows=3 hidden=64 BF16 contiguous normal".to_owned(),
            evidence: Digest::of(b"unranked"),
            verdict: Verdict::Invalid,
            reasons: vec![Reason::new("no-samples", "the sample blob 0123 is absent | or empty")],
        }],
        absences: vec![Absence {
            provider: "triton".parse().unwrap(),
            cells: BTreeMap::from([("rows=1".to_owned(), "it is not installed".to_owned())]),
        }],
        flips: vec![Flip {
            cell: "rows=8192 hidden=4096 BF16 contiguous normal".to_owned(),
            faster: "quack".parse().unwrap(),
            slower: "cuda".parse().unwrap(),
            ratio: Real(1.069),
            overall: Real(0.964),
        }],
        crossovers: vec![crossover()],
    }
}

fn crossover() -> Crossover {
    let point = |extent, ratio, faster: Option<&str>| CrossoverPoint {
        extent,
        ratio: Real(ratio),
        faster: faster.map(|id| id.parse().unwrap()),
    };
    Crossover {
        dimension: "rows".to_owned(),
        held: "hidden=4096 BF16 contiguous normal".to_owned(),
        left: "cuda".parse().unwrap(),
        right: "quack".parse().unwrap(),
        points: vec![point(1, 1.3, Some("cuda")), point(8192, 0.93, Some("quack"))],
        exploratory: false,
        turns: vec![CrossoverTurn {
            before: "cuda".parse().unwrap(),
            until: 1,
            after: "quack".parse().unwrap(),
            from: 8192,
            undecided: vec![1024],
        }],
    }
}

fn rule() -> TimingRule {
    TimingRule {
        contract: TimingContract {
            cache: Cache::Cold,
            launch: Launch::Graph,
            clock: Clock::Device,
            includes: vec!["allocation".to_owned()],
            threads: 1,
            statistic: Statistic::MedianPerCall,
            clock_policy: ClockPolicy::AsFound,
        },
        margin: 0.01,
        require: Require::NoLoss,
    }
}

fn cell(costs: &[(&'static str, f64, f64)], rows: u64, hidden: u64) -> CellOrdering {
    let size = rows as f64 * hidden as f64 / 4096.0;
    let times: Vec<(&str, f64)> =
        costs.iter().map(|(id, fixed, row)| (*id, fixed + row * size)).collect();
    let key = format!("rows={rows} hidden={hidden} BF16 contiguous normal");
    CellOrdering {
        dims: vec![("rows".to_owned(), rows), ("hidden".to_owned(), hidden)],
        dtype: Dtype::BF16,
        rest: "BF16 contiguous normal".to_owned(),
        evidence: Digest::of(key.as_bytes()),
        session: Digest::of(b"session"),
        verdict: Verdict::Pass,
        grade: Grade::Qualified,
        replicates: 3,
        noise_floor: Real(0.004),
        ranking: ranking(&times, true),
        absent: BTreeMap::new(),
        memory_floor_ns: Some(Real(2.6 * size)),
        cell: key,
    }
}

/// Providers by their times; less than 2 % apart is a tie with the first.
fn ranking(times: &[(&str, f64)], timed: bool) -> Ranking {
    let mut sorted = times.to_vec();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let id = |text: &str| -> ProviderId { text.parse().unwrap() };
    let pair = |ours: (&str, f64), theirs: (&str, f64)| {
        let ratio = theirs.1 / ours.1;
        let speed = match ratio {
            r if r > 1.02 => Speed::Win,
            r if r < 1.0 / 1.02 => Speed::Loss,
            _ => Speed::Parity,
        };
        Pair {
            comparison: Comparison {
                candidate: id(ours.0),
                baseline: id(theirs.0),
                baseline_version: "1.0".to_owned(),
                speed,
                estimate: Some(estimate(ratio)),
                margin: 0.01,
                reasons: Vec::new(),
            },
            candidate_first: Some(Real(ratio)),
            candidate_second: Some(Real(ratio)),
            holds: speed != Speed::Parity,
        }
    };
    let mut rank = 0;
    let mut before = 0.0;
    let standings = sorted.iter().enumerate().map(|(at, (name, time))| {
        if at == 0 || *time > before * 1.02 {
            rank += 1;
            before = *time;
        }
        Standing {
            rank,
            provider: id(name),
            version: "1.0".to_owned(),
            time: timed.then(|| summary(*time)),
            to_first: (at > 0).then(|| pair(sorted[0], (name, *time))),
            not_separated: Vec::new(),
        }
    });
    let standings: Vec<Standing> = standings.collect();
    let pairs = (0..times.len()).flat_map(|a| (a + 1..times.len()).map(move |b| (a, b)));
    Ranking { standings, pairs: pairs.map(|(a, b)| pair(times[a], times[b])).collect() }
}

fn estimate(ratio: f64) -> Estimate {
    Estimate {
        ratio: Real(ratio),
        low: Real(ratio * 0.995),
        high: Real(ratio * 1.005),
        half_width: Real(0.005),
        replicates: vec![Real(ratio); 3],
        p_value: Real(0.001),
        order_effect: None,
    }
}

fn summary(ns: f64) -> Summary {
    Summary {
        count: 48,
        min_ns: Real(ns * 0.9),
        p10_ns: Real(ns * 0.95),
        p50_ns: Real(ns),
        p90_ns: Real(ns * 1.08),
        max_ns: Real(ns * 1.5),
        mean_ns: Real(ns * 1.02),
        cv: Real(0.03),
    }
}
