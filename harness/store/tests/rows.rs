//! The rows of reports, comparisons and histories.

#![allow(clippy::unwrap_used, reason = "a test's helper fails as the test does")]

use std::collections::BTreeMap;

use proofhouse_evidence::Stored;
use proofhouse_schema::canonical::{self, Digest};
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::evidence::{
    BlobRef, CellRecord, CorrectnessObservation, Observation, Outcome, Pass, Purpose,
    QualificationScore, Record, SessionRecord, TensorComparison,
};
use proofhouse_schema::gate::{GateKind, Inputs};
use proofhouse_schema::ids::{GateId, ProviderId};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::real::Real;
use proofhouse_schema::samples::Samples;
use proofhouse_schema::timing::Cache;
use proofhouse_schema::units::{Bytes, Wide};
use proofhouse_schema::verdict::{Verdict, VerdictBody};
use proofhouse_store::synthetic::{self, Synthetic};
use proofhouse_store::{Heading, Selection, Source, SourceError, Store, StoreError};

/// Records given one by one.
#[derive(Default)]
struct Given {
    records: BTreeMap<String, Stored>,
    blobs: BTreeMap<Digest, Samples>,
}

impl Given {
    fn add(&mut self, record: Record) -> Digest {
        let digest = canonical::digest(&record).unwrap();
        // Files are read in the order they were given in.
        let file = format!("{:03}-{}.json", self.records.len(), digest.short());
        self.records.insert(file.clone(), Stored { file, digest: digest.clone(), record });
        digest
    }

    /// A timed cell in a session, with samples of its own.
    fn timed(
        &mut self,
        number: u32,
        session: &SessionRecord,
        edit: impl FnOnce(&mut CellRecord),
    ) -> Digest {
        let mut cell = synthetic::cell(number, 400).unwrap();
        cell.session = canonical::digest(&Record::Session(Box::new(session.clone()))).unwrap();
        let samples = synthetic::samples(number, 400).unwrap();
        let sha256 = Digest::of(&samples.encode().unwrap());
        if let Observation::Baseline(seen) = &mut cell.observation {
            seen.samples = BlobRef { sha256: sha256.clone(), size: Bytes(0), rows: 400 };
        }
        self.blobs.insert(sha256, samples);
        edit(&mut cell);
        self.add(Record::Cell(Box::new(cell)))
    }

    fn judge(&mut self, evidence: &Digest, judge: &str, verdict: Verdict) {
        let judged = synthetic::verdict(0, 400).unwrap();
        let body =
            VerdictBody { evidence: evidence.clone(), judge: judge.to_owned(), verdict, ..judged };
        self.add(Record::Verdict(Box::new(body)));
    }

    fn store(&self) -> Store {
        let mut store = Store::in_memory().unwrap();
        let done = store.ingest(self).unwrap();
        assert!(done.refused.is_empty(), "{:?}", done.refused);
        store
    }
}

impl Source for Given {
    fn files(&self) -> Result<Vec<String>, SourceError> {
        Ok(self.records.keys().cloned().collect())
    }

    fn load(&self, file: &str) -> Result<Stored, SourceError> {
        Ok(self.records.get(file).ok_or("no such file")?.clone())
    }

    fn samples(&self, blob: &BlobRef) -> Result<Samples, SourceError> {
        Ok(self.blobs.get(&blob.sha256).ok_or("no such blob")?.clone())
    }
}

fn heading(points: u32) -> Heading {
    Heading { title: "t".into(), generated: "g".into(), tool: "0".into(), points }
}

fn session() -> SessionRecord {
    synthetic::session().unwrap()
}

fn gate() -> GateId {
    GateId::new("rms_norm.baseline").unwrap()
}

fn cpu() -> ProviderId {
    ProviderId::new("cpu").unwrap()
}

#[test]
fn a_report_holds_every_cell_with_its_verdict_times_and_session() {
    let mut store = Store::in_memory().unwrap();
    store.ingest(&Synthetic { cells: 30, samples: 420 }).unwrap();
    let model = store.report(Selection::Latest, heading(100)).unwrap();
    assert_eq!(model.cells.len(), 30);
    assert_eq!(model.sessions.len(), 1);
    for cell in &model.cells {
        assert_eq!(cell.verdict, Verdict::Pass);
        assert_eq!(cell.comparisons.len(), 1);
        assert!(model.sessions.contains_key(&cell.session));
        assert_eq!(cell.contract.as_deref(), Some("hot eager host 1 thread"));
        assert_eq!(cell.shape, cell.cell.trim_end_matches(" BF16 contiguous normal"));
        let times = &cell.times[&cpu()];
        // 420 samples, the first block of 20 is a warm-up, two providers.
        assert_eq!(times.count, 200);
        assert!(times.min_ns <= times.p10_ns && times.p10_ns <= times.p50_ns);
        assert!(times.p50_ns <= times.p90_ns && times.p90_ns <= times.max_ns);
        let (cpus, others): (Vec<_>, Vec<_>) =
            cell.samples.iter().partition(|s| s.provider == cpu());
        assert_eq!((cpus.len(), others.len()), (100, 100));
    }
    let keys: Vec<&str> = model.cells.iter().map(|cell| cell.cell.as_str()).collect();
    assert!(keys.is_sorted(), "{keys:?}");
}

#[test]
fn the_summary_is_that_of_the_measured_samples_by_hand() {
    let mut given = Given::default();
    given.add(Record::Session(Box::new(session())));
    given.timed(0, &session(), |_| ());
    let samples = given.blobs.values().next().unwrap().clone();
    let mut mine: Vec<f64> = samples
        .rows
        .iter()
        .filter(|sample| sample.measured && sample.provider == 0)
        .map(|sample| sample.elapsed_ns / f64::from(sample.calls))
        .collect();
    mine.sort_by(f64::total_cmp);
    let quantile = |p: f64| {
        let at = p * (mine.len() - 1) as f64;
        let (low, part) = (at.floor() as usize, at.fract());
        mine[low] + part * (mine[(low + 1).min(mine.len() - 1)] - mine[low])
    };
    let model = given.store().report(Selection::Latest, heading(0)).unwrap();
    let times = &model.cells[0].times[&cpu()];
    for (found, expected) in
        [(times.p10_ns, 0.1), (times.p50_ns, 0.5), (times.p90_ns, 0.9), (times.max_ns, 1.0)]
    {
        assert!((found.0 - quantile(expected)).abs() < 1e-9, "{expected}: {found}");
    }
    let mean = mine.iter().sum::<f64>() / mine.len() as f64;
    assert!((times.mean_ns.0 - mean).abs() < 1e-9);
    assert!(model.cells[0].samples.is_empty());
}

#[test]
fn few_samples_are_all_kept_and_in_the_order_they_were_taken() {
    let mut given = Given::default();
    given.timed(0, &session(), |_| ());
    let all = given.store().report(Selection::Latest, heading(1000)).unwrap();
    assert_eq!(all.cells[0].samples.len(), 380);
    let blocks: Vec<u32> = all.cells[0].samples.iter().map(|sample| sample.block).collect();
    assert!(blocks.is_sorted());
}

#[test]
fn a_cell_without_a_verdict_is_invalid_and_says_so() {
    let mut given = Given::default();
    given.timed(0, &session(), |_| ());
    let model = given.store().report(Selection::Latest, heading(0)).unwrap();
    assert_eq!(model.cells[0].verdict, Verdict::Invalid);
    assert_eq!(model.cells[0].reasons[0].code, "not-judged");
    assert!(model.cells[0].required);
}

#[test]
fn the_newest_judge_decides_and_versions_are_numbers() {
    let mut given = Given::default();
    let evidence = given.timed(0, &session(), |_| ());
    given.judge(&evidence, "judge 0.10.0", Verdict::Fail);
    given.judge(&evidence, "judge 0.9.0", Verdict::Pass);
    let store = given.store();
    assert_eq!(store.count("verdicts").unwrap(), 2);
    let model = store.report(Selection::Latest, heading(0)).unwrap();
    assert_eq!(model.cells.len(), 1);
    assert_eq!(model.cells[0].verdict, Verdict::Fail);
}

#[test]
fn latest_is_by_time_and_records_and_sessions_select_exactly() {
    let mut given = Given::default();
    let later = |cell: &mut CellRecord| {
        cell.attempts.iter_mut().for_each(|attempt| attempt.started.0 += 1_000_000);
    };
    let other = SessionRecord { started: Wide(5), ..session() };
    let newer = given.timed(0, &session(), later);
    let older = given.timed(0, &other, |_| ());
    let sessions: Vec<Digest> = [session(), other]
        .into_iter()
        .map(|session| given.add(Record::Session(Box::new(session))))
        .collect();
    let store = given.store();
    let digests = |selection| {
        let cells = store.report(selection, heading(0)).unwrap().cells;
        cells.into_iter().map(|cell| cell.evidence).collect::<Vec<_>>()
    };
    assert_eq!(digests(Selection::Latest), std::slice::from_ref(&newer));
    assert_eq!(
        digests(Selection::Records(std::slice::from_ref(&older))),
        std::slice::from_ref(&older)
    );
    assert_eq!(digests(Selection::Sessions(&sessions[1..])), std::slice::from_ref(&older));
    assert_eq!(digests(Selection::Records(&[])), []);
    assert_eq!(digests(Selection::Sessions(&sessions)).len(), 2);
    assert_eq!(store.find(newer.short()).unwrap(), Some(newer));
    assert_eq!(store.find("").unwrap(), None);
    let missing = Digest::of(b"nothing");
    assert!(matches!(
        store.report(Selection::Records(&[missing]), heading(0)),
        Err(StoreError::UnknownEvidence { .. })
    ));
}

#[test]
fn a_correctness_cell_has_its_largest_error_and_no_times() {
    let mut given = Given::default();
    let output = |max_ulp| TensorComparison {
        tensor: "out".to_owned(),
        elements: 10,
        finite: 10,
        class_mismatches: 0,
        out_of_tolerance: 0,
        max_ulp: Real(max_ulp),
        max_abs: Real(0.0),
        max_rel: Real(f64::INFINITY),
        bad: Vec::new(),
    };
    let pass = |purpose, max_ulp| Pass {
        purpose,
        outcome: Outcome::Ran,
        outputs: vec![output(max_ulp)],
        findings: Vec::new(),
        digests: BTreeMap::new(),
        rows: Vec::new(),
    };
    let digest = given.timed(0, &session(), |cell| {
        cell.gate.kind = GateKind::Correctness;
        cell.gate.timing = None;
        cell.observation = Observation::Correctness(CorrectnessObservation {
            passes: vec![pass(Purpose::First, 0.5), pass(Purpose::Repeat, 2.0)],
            qualification: QualificationScore {
                killed: 1,
                mutants: 1,
                equivalent: 0,
                false_alarms: 0,
                survivors: Vec::new(),
            },
        });
    });
    let store = given.store();
    assert_eq!(store.count("outputs").unwrap(), 2);
    let cell = store.report(Selection::Latest, heading(9)).unwrap().cells.remove(0);
    assert_eq!(cell.max_ulp, Some(2.0));
    assert!(cell.times.is_empty() && cell.samples.is_empty());
    assert_eq!((cell.kind, cell.contract), (GateKind::Correctness, None));
    assert!(matches!(store.compare(&digest, &digest), Err(StoreError::NotTimed { .. })));
}

#[test]
fn the_same_scope_at_two_moments_is_put_side_by_side() {
    let mut given = Given::default();
    let other = SessionRecord { started: Wide(5), ..session() };
    given.add(Record::Session(Box::new(session())));
    given.add(Record::Session(Box::new(other.clone())));
    let a = given.timed(0, &session(), |_| ());
    let b = given.timed(0, &other, |_| ());
    let side = given.store().compare(&a, &b).unwrap();
    assert_eq!((side.a.evidence, side.b.evidence), (a, b));
    assert_eq!(side.changes.len(), 2);
    assert!((side.changes[&cpu()].ratio - 1.0).abs() < 1e-12);
}

/// What must never be compared, one change each, with the word that the message must hold.
#[test]
fn each_difference_of_scope_is_refused_by_name() {
    type Edit = fn(&mut CellRecord);
    let cases: [(&str, Edit); 6] = [
        ("timing contract", |cell| {
            cell.gate.timing.as_mut().unwrap().contract.cache = Cache::Cold;
        }),
        ("timing contract", |cell| cell.gate.timing.as_mut().unwrap().contract.threads = 2),
        ("inputs", |cell| {
            cell.case.inputs = Inputs::Seeded { values: "zeros".to_owned(), seed: Wide(7) };
        }),
        ("dtype", |cell| cell.case.dtype = Dtype::F32),
        ("layout", |cell| cell.case.layout = "row-strided".to_owned()),
        ("shape", |cell| {
            cell.cell = cell.cell.replace("rows=1", "rows=2");
            cell.case.dims.insert("rows".to_owned(), 2);
        }),
    ];
    for (word, edit) in cases {
        let mut given = Given::default();
        given.add(Record::Session(Box::new(session())));
        let a = given.timed(0, &session(), |_| ());
        let b = given.timed(0, &session(), edit);
        match given.store().compare(&a, &b) {
            Err(StoreError::DifferentScope { differences, .. }) => {
                assert_eq!(differences.len(), 1, "{differences:?}");
                assert!(differences[0].starts_with(word), "{word}: {differences:?}");
            }
            other => panic!("{word}: {other:?}"),
        }
    }
}

#[test]
fn results_of_two_machines_or_of_an_unknown_one_are_not_compared() {
    let mut elsewhere = session();
    elsewhere.host.machine = Probe::Known("another".to_owned());
    let mut nowhere = session();
    nowhere.host.machine = Probe::Unavailable("no machine id".to_owned());
    for other in [elsewhere, nowhere] {
        let mut given = Given::default();
        given.add(Record::Session(Box::new(session())));
        given.add(Record::Session(Box::new(other.clone())));
        let a = given.timed(0, &session(), |_| ());
        let b = given.timed(0, &other, |_| ());
        let store = given.store();
        for (first, second) in [(&a, &b), (&b, &a)] {
            let error = store.compare(first, second).unwrap_err();
            assert!(error.to_string().contains("machine:"), "{error}");
        }
    }
}

#[test]
fn two_unknown_machines_are_not_the_same_machine() {
    let mut nowhere = session();
    nowhere.host.machine = Probe::Unavailable("no machine id".to_owned());
    let mut given = Given::default();
    given.add(Record::Session(Box::new(nowhere.clone())));
    let a = given.timed(0, &nowhere, |_| ());
    let b = given.timed(0, &nowhere, |cell| cell.reproduce.push("again".to_owned()));
    assert!(matches!(given.store().compare(&a, &b), Err(StoreError::DifferentScope { .. })));
}

#[test]
fn a_history_is_one_scope_and_mixed_ones_must_be_named() {
    let mut given = Given::default();
    given.add(Record::Session(Box::new(session())));
    let later = |cell: &mut CellRecord, by: u64| {
        cell.attempts.iter_mut().for_each(|attempt| attempt.started.0 += by);
    };
    let second = given.timed(0, &session(), |cell| later(cell, 2_000));
    let first = given.timed(0, &session(), |cell| later(cell, 1_000));
    let key = synthetic::cell(0, 1).unwrap().cell;
    let history = given.store().history(&gate(), &key, &cpu(), None).unwrap();
    let order: Vec<&Digest> = history.points.iter().map(|point| &point.row.evidence).collect();
    assert_eq!(order, [&first, &second]);
    assert!(history.scope.starts_with("hot eager host 1 thread #"), "{}", history.scope);

    given.timed(0, &session(), |cell| {
        cell.gate.timing.as_mut().unwrap().contract.cache = Cache::Cold;
    });
    let store = given.store();
    let StoreError::MixedScopes { scopes, .. } =
        store.history(&gate(), &key, &cpu(), None).unwrap_err()
    else {
        panic!("the contracts were mixed");
    };
    assert_eq!(scopes.len(), 2);
    for (scope, points) in scopes.iter().zip([1, 2]) {
        let history = store.history(&gate(), &key, &cpu(), Some(scope)).unwrap();
        assert_eq!(history.points.len(), points, "{scope}");
    }
    assert!(store.history(&gate(), &key, &cpu(), Some("no such scope")).is_err());
    let nothing = store.history(&gate(), "no such cell", &cpu(), None).unwrap();
    assert!(nothing.points.is_empty());
}

#[test]
fn whole_records_come_by_their_digests_and_unknown_ones_are_left_out() {
    let session = synthetic::session().unwrap();
    let mut given = Given::default();
    given.add(Record::Session(Box::new(session.clone())));
    let (one, two) = (given.timed(0, &session, |_| {}), given.timed(1, &session, |_| {}));
    let mut store = Store::in_memory().unwrap();
    store.ingest(&given).unwrap();
    let unknown = Digest::of(b"unknown");
    let found = store.cells(&[one.clone(), unknown, two.clone()]).unwrap();
    assert_eq!(found.keys().collect::<std::collections::BTreeSet<_>>(), [&one, &two].into());
    for (digest, cell) in found {
        assert_eq!(canonical::digest(&Record::Cell(Box::new(cell))).unwrap(), digest);
    }
    assert!(store.cells(&[]).unwrap().is_empty());
}
