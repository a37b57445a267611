//! Checker and candidate over real sockets and real files: every operator in every dtype, every refusal, every
//! layout and value class, real tensors from a file, and planted faults in the candidate's file.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::catalog::{Catalog, Operator};
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::gate::{CaseSpec, Expect, Inputs};
use proofhouse_schema::ids::OperatorName;
use proofhouse_schema::protocol::{
    Judge, Judged, Measure, Measured, Phase, Poison, Pose, Posed, Prepare, Reply, Request,
};
use proofhouse_schema::timing::{Cache, Launch};
use proofhouse_schema::units::Wide;
use proofhouse_worker::rehearsal::Rehearsal;
use proofhouse_worker_cpu::CpuWorker;
use proofhouse_worker_oracle::Checker;

const ROWS: u64 = 4;

/// A checker, a candidate and a folder for their files.
struct House {
    checker: Rehearsal,
    candidate: Rehearsal,
    folder: tempfile::TempDir,
    catalog: Catalog,
}

impl House {
    fn open() -> Self {
        let mut checker = Rehearsal::start(Checker::default).unwrap();
        let Reply::Catalog(catalog) = checker.ask(Request::Catalog).unwrap() else { panic!() };
        let shared = Path::new("/dev/shm");
        let folder =
            if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
        let candidate = Rehearsal::start(|| CpuWorker::new(None)).unwrap();
        Self { checker, candidate, folder: folder.unwrap(), catalog: *catalog }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pose(&mut self, name: &str, spec: &CaseSpec, change: impl FnOnce(&mut Pose)) -> Posed {
        let mut pose = Pose {
            case: name.to_owned(),
            spec: spec.clone(),
            gates: concat!(env!("CARGO_MANIFEST_DIR"), "/../../gates").to_owned(),
            file: self.file(name).to_str().unwrap().to_owned(),
            poison: Poison::A,
            contents: 0,
            row: None,
        };
        change(&mut pose);
        match self.checker.ask(Request::Pose(pose)).unwrap() {
            Reply::Posed(posed) => posed,
            other => panic!("{spec:?}: {other:?}"),
        }
    }

    fn prepare(&mut self, spec: &CaseSpec, posed: &Posed) -> Reply {
        let prepare = Prepare {
            case: posed.case.clone(),
            operator: spec.operator.clone(),
            dtype: posed.dtype.unwrap_or(spec.dtype),
            dims: posed.dims.clone(),
            params: posed.params.clone(),
            tensors: posed.tensors.clone(),
        };
        self.candidate.ask(Request::Prepare(prepare)).unwrap()
    }

    fn check(&mut self, name: &str, checked: bool) -> Reply {
        self.candidate.ask(Request::Check { case: name.to_owned(), checked }).unwrap()
    }

    fn judge(&mut self, name: &str, rows: &[u64]) -> Judged {
        let judge = Judge { case: name.to_owned(), rows: rows.to_vec() };
        match self.checker.ask(Request::Judge(judge)).unwrap() {
            Reply::Judged(judged) => judged,
            other => panic!("{other:?}"),
        }
    }

    /// Poses, prepares, runs and judges; the outputs must be right.
    fn run(&mut self, name: &str, spec: &CaseSpec, change: impl FnOnce(&mut Pose)) -> Judged {
        let posed = self.pose(name, spec, change);
        let prepared = self.prepare(spec, &posed);
        assert!(matches!(prepared, Reply::Prepared { .. }), "{spec:?}: {prepared:?}");
        let checked = self.check(name, !posed.device_faults);
        assert!(matches!(checked, Reply::Checked { .. }), "{spec:?}: {checked:?}");
        let row = u64::from(posed.dims["rows"] > 1);
        let judged = self.judge(name, &[row]);
        assert_right(spec, &judged);
        judged
    }

    fn release(&mut self, name: &str) {
        for worker in [&mut self.checker, &mut self.candidate] {
            let reply = worker.ask(Request::Release { case: name.to_owned() }).unwrap();
            assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
        }
    }

    fn close(mut self) {
        for mut worker in [self.checker, self.candidate] {
            assert!(matches!(worker.ask(Request::Bye).unwrap(), Reply::Bye));
            worker.end().unwrap();
        }
        self.catalog.operators.clear();
    }
}

fn assert_right(spec: &CaseSpec, judged: &Judged) {
    assert_eq!(judged.findings, [], "{spec:?}");
    assert!(!judged.outputs.is_empty());
    for output in &judged.outputs {
        assert!(output.elements > 0, "{spec:?}: {output:?}");
        assert_eq!(
            (output.class_mismatches, output.out_of_tolerance),
            (0, 0),
            "{spec:?} {output:?}"
        );
    }
}

fn spec(name: &OperatorName, operator: &Operator, dtype: Dtype, size: u64) -> CaseSpec {
    let extent = |dim: &str| if dim == "rows" { ROWS } else { size };
    CaseSpec {
        operator: name.clone(),
        dims: operator.dims.iter().map(|dim| (dim.name.clone(), extent(&dim.name))).collect(),
        dtype,
        layout: "contiguous".to_owned(),
        params: operator.params.iter().map(|p| (p.name.clone(), p.default)).collect(),
        inputs: Inputs::Seeded { values: "normal".to_owned(), seed: Wide(7) },
        expect: Expect::Outputs,
    }
}

/// Every operator in every dtype, as cases of that size.
fn all_cases(catalog: &Catalog, size: u64) -> Vec<CaseSpec> {
    let of = |(name, operator): (&OperatorName, &Operator)| {
        let dtypes = operator.dtypes.clone();
        dtypes.into_iter().map(|d| spec(name, operator, d, size)).collect::<Vec<_>>()
    };
    catalog.operators.iter().flat_map(of).collect()
}

/// Findings that speak of the clock and of how long something took: a busy machine gives them, whatever the worker does.
/// The worker's other codes (a module loaded, work that escaped, a refused plan) are its own fault and no excuse.
const OF_THE_CLOCK: [&str; 8] = [
    "unsettled",
    "sample-too-short",
    "below-floor",
    "zero-time",
    "longer-than-wall",
    "clock-backwards",
    "clock-stands",
    "clock-events",
];

/// Tries of a warm-up with its turn: what a real clock shows may be asked for again, a bounded number of times.
const TRIES: u32 = 20;

fn ask_measure(house: &mut House, request: Measure) -> Measured {
    let reply = house.candidate.ask(Request::Measure(request)).unwrap();
    let Reply::Measured(measured) = reply else { panic!("{reply:?}") };
    let excused = |code: &str| OF_THE_CLOCK.contains(&code);
    assert!(measured.invalid.iter().all(|finding| excused(&finding.code)), "{measured:?}");
    measured
}

/// A warm-up and a turn of that many samples, with the outputs of the last timed call in the file.
fn warm_and_turn(house: &mut House, name: &str, samples: u32) -> Measured {
    let mut last = None;
    for _ in 0..TRIES {
        let warm = ask_measure(house, measure(name, Phase::Warm, 2_000));
        if !warm.invalid.is_empty() {
            last = Some(warm);
            continue;
        }
        let turn = ask_measure(house, measure(name, Phase::Turn, samples));
        if turn.invalid.is_empty() {
            return turn;
        }
        last = Some(turn);
    }
    panic!("no valid turn in {TRIES} tries, the last one gave {last:?}");
}

fn measure(name: &str, phase: Phase, samples: u32) -> Measure {
    Measure {
        case: name.to_owned(),
        phase,
        block: 0,
        position: 0,
        samples,
        min_sample_ns: 10_000.0,
        cache: Cache::Hot,
        launch: Launch::Eager,
        footprint: 0,
        publish: phase == Phase::Turn,
        slowdown: 0.0,
        refresh: phase == Phase::Turn,
    }
}

#[test]
fn every_operator_and_dtype_goes_from_pose_to_bye() {
    let mut house = House::open();
    let cases = all_cases(&house.catalog, 96);
    assert_eq!(cases.len(), 24);
    for spec in cases {
        let first = house.run("first", &spec, |_| {});
        let repeat = house.run("repeat", &spec, |pose| pose.poison = Poison::B);
        assert_eq!(repeat.digests, first.digests, "{spec:?}");

        house.pose("repeat", &spec, |pose| (pose.poison, pose.contents) = (Poison::B, 1));
        assert!(matches!(house.check("repeat", false), Reply::Checked { .. }));
        let renewed = house.judge("repeat", &[]);
        assert_right(&spec, &renewed);
        assert_ne!(renewed.digests, first.digests, "{spec:?}: other contents, other outputs");

        let single = house.run("single", &spec, |pose| pose.row = Some(1));
        assert_eq!(single.rows, first.rows, "{spec:?}");

        let posed = house.pose("timed", &spec, |_| {});
        house.prepare(&spec, &posed);
        let turn = warm_and_turn(&mut house, "timed", 3);
        assert_eq!(turn.elapsed_ns.len(), 3, "{spec:?} {turn:?}");
        let timed = house.judge("timed", &[]);
        assert_right(&spec, &timed);
        assert_eq!(
            timed.digests, first.digests,
            "{spec:?}: timed calls give what untimed ones give"
        );
        for name in ["first", "repeat", "single", "timed"] {
            house.release(name);
        }
    }
    let Reply::Witnessed(witness) = house.candidate.ask(Request::Witness).unwrap() else {
        panic!()
    };
    assert!(["avx512", "avx2", "scalar"].contains(&witness.dispatch.as_str()));
    house.close();
}

#[test]
fn every_layout_and_value_class_is_right() {
    let mut house = House::open();
    for mut spec in all_cases(&house.catalog, 37) {
        let operator = house.catalog.operators[&spec.operator].clone();
        for values in &operator.values {
            spec.inputs = Inputs::Seeded { values: values.clone(), seed: Wide(11) };
            house.run("values", &spec, |_| {});
        }
        for layout in &operator.layouts {
            spec.layout.clone_from(layout);
            house.run("layout", &spec, |_| {});
        }
    }
    house.close();
}

#[test]
fn every_refusal_of_the_catalog_is_refused_with_its_kind_and_argument() {
    let mut house = House::open();
    let mut refused = 0;
    for mut spec in all_cases(&house.catalog, 64) {
        for refusal in house.catalog.operators[&spec.operator].refusals.clone() {
            spec.expect = Expect::Refusal {
                name: refusal.name.clone(),
                kind: refusal.kind.clone(),
                argument: refusal.argument.clone(),
            };
            let posed = house.pose("refusal", &spec, |_| {});
            let mut reply = house.prepare(&spec, &posed);
            if matches!(reply, Reply::Prepared { .. }) {
                assert!(refusal.device_value, "{} {}", spec.operator, refusal.name);
                reply = house.check("refusal", true);
            }
            let Reply::Refused { error, .. } = reply else {
                panic!("{} {} {}: {reply:?}", spec.operator, spec.dtype, refusal.name)
            };
            let found = (error.kind, error.argument, error.operator);
            let operator = spec.operator.to_string();
            assert_eq!(found, (refusal.kind, refusal.argument, operator), "{}", refusal.name);
            assert_eq!(house.judge("refusal", &[]).findings, [], "{}", refusal.name);
            refused += 1;
        }
    }
    assert!(refused > 300, "{refused}");
    house.close();
}

#[test]
fn every_checker_is_qualified_in_every_dtype() {
    let mut house = House::open();
    for mut spec in all_cases(&house.catalog, 33) {
        spec.layout = "row-strided:8".to_owned();
        let reply = house
            .checker
            .ask(Request::Qualify { case: spec.clone(), gates: String::new() })
            .unwrap();
        let Reply::Qualified(score) = reply else { panic!("{spec:?}: {reply:?}") };
        assert!(score.qualified(), "{} {}: {score:?}", spec.operator, spec.dtype);
        assert!(score.mutants > 30, "{score:?}");
    }
    house.close();
}

#[test]
fn zero_rows_are_run_and_judged_as_nothing() {
    let mut house = House::open();
    for mut spec in all_cases(&house.catalog, 16) {
        spec.dims.insert("rows".to_owned(), 0);
        let posed = house.pose("empty", &spec, |_| {});
        assert!(matches!(house.prepare(&spec, &posed), Reply::Prepared { .. }), "{spec:?}");
        assert!(matches!(house.check("empty", true), Reply::Checked { .. }), "{spec:?}");
        let judged = house.judge("empty", &[]);
        assert_eq!(judged.findings, [], "{spec:?}");
        assert!(judged.outputs.iter().all(|output| output.elements == 0), "{spec:?}");
    }
    house.close();
}

/// A right run, then one byte changed in the file.
fn findings_after(offset_of: impl Fn(&Posed) -> u64) -> Vec<String> {
    use std::os::unix::fs::FileExt as _;
    let mut house = House::open();
    let name = OperatorName::new("rms_norm").unwrap();
    let mut spec = spec(&name, &house.catalog.operators[&name], Dtype::F32, 32);
    spec.layout = "row-strided:8".to_owned();
    let posed = house.pose("fault", &spec, |_| {});
    house.prepare(&spec, &posed);
    house.check("fault", true);
    assert_right(&spec, &house.judge("fault", &[]));
    let file =
        std::fs::OpenOptions::new().read(true).write(true).open(house.file("fault")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset_of(&posed)).unwrap();
    file.write_all_at(&[byte[0] ^ 0x80], offset_of(&posed)).unwrap();
    let judged = house.judge("fault", &[]);
    let wrong = judged.outputs.iter().any(|output| output.out_of_tolerance > 0);
    let mut codes: Vec<_> = judged.findings.into_iter().map(|finding| finding.code).collect();
    codes.extend(wrong.then(|| "wrong".to_owned()));
    codes
}

#[test]
fn each_byte_that_a_candidate_may_not_touch_is_found_under_its_own_name() {
    assert_eq!(findings_after(|posed| posed.tensors[0].offset), ["input-changed"]);
    assert_eq!(findings_after(|posed| posed.tensors[2].offset - 1), ["guard-overwritten"]);
    assert_eq!(findings_after(|posed| posed.tensors[2].offset + 32 * 4), ["padding-overwritten"]);
    assert_eq!(findings_after(|posed| posed.tensors[2].offset + 3), ["wrong"]);
}

#[test]
fn a_run_that_writes_nothing_is_unwritten() {
    let mut house = House::open();
    let name = OperatorName::new("greedy_logprob").unwrap();
    let spec = spec(&name, &house.catalog.operators[&name], Dtype::F16, 32);
    house.pose("lazy", &spec, |_| {});
    let judged = house.judge("lazy", &[]);
    assert_eq!(judged.findings.len(), 3, "{:?}", judged.findings);
    assert!(judged.findings.iter().all(|finding| finding.code == "unwritten"));
}

#[test]
fn a_file_that_was_replaced_or_cut_short_cannot_be_judged() {
    let mut house = House::open();
    let name = OperatorName::new("rms_norm").unwrap();
    let spec = spec(&name, &house.catalog.operators[&name], Dtype::F32, 32);
    house.pose("cut", &spec, |_| {});
    let file = std::fs::OpenOptions::new().write(true).open(house.file("cut")).unwrap();
    file.set_len(1000).unwrap();
    let judge = || Judge { case: "cut".to_owned(), rows: vec![] };
    let reply = house.checker.ask(Request::Judge(judge())).unwrap();
    assert!(matches!(reply, Reply::Failed { detail } if detail.contains("no longer the file")));
    std::fs::remove_file(house.file("cut")).unwrap();
    let reply = house.checker.ask(Request::Judge(judge())).unwrap();
    assert!(matches!(reply, Reply::Failed { detail } if detail.contains("cannot be read")));
    let unknown = Judge { case: "nobody".to_owned(), rows: vec![] };
    let reply = house.checker.ask(Request::Judge(unknown)).unwrap();
    assert!(matches!(reply, Reply::Failed { detail } if detail.contains("never posed")));
}

fn real_case(path: &str, sha256: Digest, rows: u64) -> CaseSpec {
    let tensors = [("x", "hidden.15"), ("w", "norm.15")];
    CaseSpec {
        operator: OperatorName::new("rms_norm").unwrap(),
        dims: BTreeMap::from([("rows".to_owned(), rows), ("hidden".to_owned(), 576)]),
        dtype: Dtype::BF16,
        layout: "contiguous".to_owned(),
        params: BTreeMap::new(),
        inputs: Inputs::File {
            path: path.to_owned(),
            sha256,
            tensors: tensors.map(|(to, from)| (to.to_owned(), from.to_owned())).into(),
            seed: Wide(1),
        },
        expect: Expect::Outputs,
    }
}

#[test]
fn real_tensors_from_a_file_are_rounded_once_and_run_right() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gates/inputs/smollm2.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let sha256 = Digest::of(&bytes);
    let mut house = House::open();
    let spec = real_case("inputs/smollm2.safetensors", sha256.clone(), 8);
    let first = house.run("real", &spec, |_| {});
    let other = house.run("real", &spec, |pose| pose.contents = 3);
    assert_ne!(first.digests, other.digests);

    let mut whole = spec.clone();
    whole.dtype = Dtype::F32;
    whole.dims.insert("rows".to_owned(), 16);
    let posed = house.pose("whole", &whole, |_| {});
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let hidden = Digest::of(file.tensor("hidden.15").unwrap().data());
    assert_eq!(posed.inputs["x"], hidden, "the same bytes reach the candidate");
    house.close();
}

/// A safetensors file of one F32 matrix of logits.
fn file_of_logits(rows: &[[f32; 4]]) -> Vec<u8> {
    let data: Vec<u8> = rows.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
    let header = format!(
        r#"{{"logits":{{"dtype":"F32","shape":[{},4],"data_offsets":[0,{}]}}}}"#,
        rows.len(),
        data.len()
    );
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

#[test]
fn logits_of_a_file_that_hold_a_nan_are_told_and_run_right_in_unchecked_mode() {
    for (second, faults) in [(f32::NAN, true), (2.0, false)] {
        let mut house = House::open();
        let bytes = file_of_logits(&[[0.0, 1.0, -1.0, 0.5], [1.0, second, 0.0, 0.0]]);
        std::fs::write(house.file("logits.safetensors"), &bytes).unwrap();
        let name = OperatorName::new("greedy_logprob").unwrap();
        let mut spec = spec(&name, &house.catalog.operators[&name], Dtype::F32, 4);
        spec.dims.insert("rows".to_owned(), 2);
        spec.inputs = Inputs::File {
            path: "logits.safetensors".to_owned(),
            sha256: Digest::of(&bytes),
            tensors: [("logits".to_owned(), "logits".to_owned())].into(),
            seed: Wide(1),
        };
        let gates = house.folder.path().to_str().unwrap().to_owned();
        let posed = house.pose("posed", &spec, |pose| pose.gates.clone_from(&gates));
        assert_eq!(posed.device_faults, faults);
        house.run("logits", &spec, |pose| pose.gates.clone_from(&gates));
        let refused = house.check("logits", true);
        assert_eq!(matches!(refused, Reply::Refused { .. }), faults, "{refused:?}");
        house.close();
    }
}

#[test]
fn a_case_that_fits_no_memory_is_a_typed_failure() {
    let mut house = House::open();
    let name = OperatorName::new("rms_norm").unwrap();
    let mut spec = spec(&name, &house.catalog.operators[&name], Dtype::F32, 1 << 20);
    let mut said = |rows: u64| {
        spec.dims.insert("rows".to_owned(), rows);
        let pose = Pose {
            case: "vast".to_owned(),
            spec: spec.clone(),
            gates: String::new(),
            file: "/nowhere/at/all".to_owned(),
            poison: Poison::A,
            contents: 0,
            row: None,
        };
        match house.checker.ask(Request::Pose(pose)).unwrap() {
            Reply::Failed { detail } => detail,
            Reply::Refused { error, .. } => error.kind,
            other => panic!("{other:?}"),
        }
    };
    assert!(said(1 << 20).contains("accepted: at most 1099511627776"));
    assert_eq!(said(1 << 50), "overflow");
    assert_eq!(said(u64::MAX), "overflow");
    house.close();
}

#[test]
fn input_files_that_do_not_fit_are_typed_failures() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gates/inputs/smollm2.safetensors");
    let sha256 = Digest::of(&std::fs::read(path).unwrap());
    let mut house = House::open();
    let mut said = |spec: CaseSpec| {
        let pose = Pose {
            case: "misfit".to_owned(),
            spec,
            gates: concat!(env!("CARGO_MANIFEST_DIR"), "/../../gates").to_owned(),
            file: "/nowhere/at/all".to_owned(),
            poison: Poison::A,
            contents: 0,
            row: None,
        };
        match house.checker.ask(Request::Pose(pose)).unwrap() {
            Reply::Failed { detail } => detail,
            Reply::Refused { error, .. } => error.kind,
            other => panic!("{other:?}"),
        }
    };
    let good = |rows| real_case("inputs/smollm2.safetensors", sha256.clone(), rows);
    assert!(said(good(17)).contains("or more rows"));
    assert!(said(real_case("../Cargo.toml", sha256.clone(), 1)).contains("not below"));
    assert!(said(real_case("inputs/gone", sha256.clone(), 1)).contains("cannot be read"));
    let other = Digest::of(b"another");
    assert!(said(real_case("inputs/smollm2.safetensors", other, 1)).contains("the gate names"));
    let mut named = good(1);
    named.layout = "spiral".to_owned();
    assert_eq!(said(named), "unknown");
    let mut output = good(1);
    if let Inputs::File { tensors, .. } = &mut output.inputs {
        tensors.insert("y".to_owned(), "hidden.15".to_owned());
    }
    assert!(said(output).contains("reads no tensor `y`"));
    assert!(said(good(1)).contains("cannot be written"));
}

#[test]
fn the_provider_files_declare_what_the_workers_say() {
    for (worker, text) in [
        (
            House::open().candidate.hello.operators,
            include_str!("../../../baselines/cpu/provider.toml"),
        ),
        (
            House::open().checker.hello.operators,
            include_str!("../../../baselines/oracle/provider.toml"),
        ),
    ] {
        let declared: Vec<_> =
            text.lines().skip_while(|line| *line != "[operators]").skip(1).collect();
        let said = worker.iter().map(|(name, dtypes)| {
            let dtypes: Vec<_> =
                dtypes.iter().map(|dtype| format!("{:?}", dtype.as_str())).collect();
            format!("{name} = [{}]", dtypes.join(", "))
        });
        let mut said: Vec<_> = said.collect();
        let mut declared: Vec<_> = declared.into_iter().map(str::to_owned).collect();
        said.sort();
        declared.sort();
        assert_eq!(declared, said);
    }
}
