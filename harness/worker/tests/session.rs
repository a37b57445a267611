//! A worker with toy operators, driven over a real socket: the good path and every way to break it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use proofhouse_schema::catalog::Role;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::ids::{OperatorName, ProviderId};
use proofhouse_schema::protocol::{
    Capabilities, MAX_LINE, Measure, Measured, Phase, Prepare, Reply, Request, TensorRef,
};
use proofhouse_schema::timing::{Cache, Launch};
use proofhouse_worker::rehearsal::Rehearsal;
use proofhouse_worker::session::SessionError;
use proofhouse_worker::{Call, Decline, Description, Mode, Region, Storage, Tensor, Worker};

/// `copy` (x to y), `increment` (x in place), `panic`, `decline`.
struct Toy;

struct ToyCall<'a> {
    operator: String,
    tensors: Vec<Tensor<'a>>,
}

impl Worker for Toy {
    fn describe(&self) -> Description {
        Description {
            provider: ProviderId::new("toy").unwrap(),
            version: "1".to_owned(),
            packages: BTreeMap::new(),
            operators: BTreeMap::from([(OperatorName::new("copy").unwrap(), vec![Dtype::U8])]),
            capabilities: Capabilities { measure: true, refresh: true, ..Default::default() },
            device: None,
        }
    }

    fn examine(&mut self, case: &Prepare, regions: &[Region]) -> Result<(), Decline> {
        assert_eq!(case.tensors.len(), regions.len());
        match case.operator.as_str() {
            "unknown" => Err(Decline::Unsupported("no such operator".to_owned())),
            _ => Ok(()),
        }
    }

    fn bind<'a>(
        &mut self,
        case: &Prepare,
        tensors: Vec<Tensor<'a>>,
    ) -> Result<Box<dyn Call + 'a>, Decline> {
        Ok(Box::new(ToyCall { operator: case.operator.to_string(), tensors }))
    }

    fn dispatch(&self) -> String {
        "toy-path".to_owned()
    }
}

impl Call for ToyCall<'_> {
    fn run(&mut self, mode: Mode) -> Result<(), Decline> {
        match self.operator.as_str() {
            "copy" => {
                let [x, y] = self.tensors.as_mut_slice() else { panic!("two tensors") };
                let Storage::Write(y) = &mut y.storage else { panic!("an output") };
                y.copy_from_slice(x.storage.bytes());
                Ok(())
            }
            "increment" => {
                let Storage::Write(x) = &mut self.tensors[0].storage else { panic!("in place") };
                x.iter_mut().for_each(|byte| *byte += 1);
                Ok(())
            }
            "decline" => Err(Decline::Failed(format!("declined in {mode:?}"))),
            other => panic!("planted in {other}"),
        }
    }

    fn bytes(&self, index: usize) -> &[u8] {
        self.tensors[index].storage.bytes()
    }

    fn bytes_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        match &mut self.tensors[index].storage {
            Storage::Read(_) => None,
            Storage::Write(bytes) => Some(bytes),
        }
    }
}

/// A file of 4096 bytes, x at 64 and y at 1024, 256 bytes each.
struct Posed {
    path: PathBuf,
}

impl Posed {
    fn new(name: &str, contents: u8) -> Self {
        let folder = if std::path::Path::new("/dev/shm").is_dir() {
            PathBuf::from("/dev/shm")
        } else {
            std::env::temp_dir()
        };
        let path = folder.join(format!("proofhouse-worker-{}-{name}", std::process::id()));
        std::fs::write(&path, vec![0u8; 4096]).unwrap();
        let posed = Self { path };
        posed.fill(64, contents);
        posed
    }

    fn fill(&self, offset: u64, contents: u8) {
        use std::os::unix::fs::FileExt as _;
        let file = std::fs::OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(&[contents; 256], offset).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    fn tensor(&self, name: &str, role: Role, offset: u64) -> TensorRef {
        TensorRef {
            name: name.to_owned(),
            role,
            dtype: Dtype::U8,
            shape: vec![256],
            strides: vec![1],
            file: self.path.to_str().unwrap().to_owned(),
            offset,
            span: 256,
            guard: 0,
        }
    }

    fn prepare(&self, operator: &str) -> Prepare {
        let tensors = match operator {
            "increment" => vec![self.tensor("x", Role::InOut, 64)],
            _ => vec![self.tensor("x", Role::In, 64), self.tensor("y", Role::Out, 1024)],
        };
        Prepare {
            case: "c".to_owned(),
            operator: OperatorName::new(operator).unwrap(),
            dtype: Dtype::U8,
            dims: BTreeMap::new(),
            params: BTreeMap::new(),
            tensors,
        }
    }
}

impl Drop for Posed {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).unwrap();
    }
}

fn toy() -> Rehearsal {
    Rehearsal::start(|| Toy).unwrap()
}

fn measure(phase: Phase, samples: u32) -> Measure {
    Measure {
        case: "c".to_owned(),
        phase,
        block: 2,
        position: 1,
        samples,
        min_sample_ns: 20_000.0,
        cache: Cache::Hot,
        launch: Launch::Eager,
        footprint: 0,
        publish: false,
        slowdown: 0.0,
        refresh: false,
    }
}

fn measured(reply: Reply) -> Measured {
    match reply {
        Reply::Measured(measured) => measured,
        other => panic!("{other:?}"),
    }
}

/// Warms up; on a busy machine the samples may need more than one try to settle.
fn warm(worker: &mut Rehearsal) -> Measured {
    for _ in 0..20 {
        let warm = measured(worker.ask(Request::Measure(measure(Phase::Warm, 2_000))).unwrap());
        if warm.invalid.is_empty() {
            return warm;
        }
        assert!(is_timing(&warm), "{:?}", warm.invalid);
    }
    panic!("twenty warm-ups did not settle");
}

/// Takes a turn; a busy machine may break one, and then another is asked for.
fn turn(worker: &mut Rehearsal, request: Measure) -> Measured {
    for _ in 0..20 {
        let turn = measured(worker.ask(Request::Measure(request.clone())).unwrap());
        if turn.invalid.is_empty() {
            return turn;
        }
        assert!(is_timing(&turn), "{:?}", turn.invalid);
    }
    panic!("twenty turns were broken");
}

/// Whether only the clock of a busy machine is to blame.
fn is_timing(measured: &Measured) -> bool {
    let codes = ["unsettled", "sample-too-short", "below-floor", "clock-events"];
    measured.invalid.iter().all(|finding| codes.contains(&finding.code.as_str()))
}

#[test]
fn a_case_is_prepared_checked_witnessed_released_and_the_session_ends_with_bye() {
    let posed = Posed::new("good", 7);
    let mut worker = toy();
    assert_eq!(worker.hello.pid, std::process::id());
    let prepared = worker.ask(Request::Prepare(posed.prepare("copy"))).unwrap();
    assert!(matches!(prepared, Reply::Prepared { case } if case == "c"));
    assert_eq!(posed.bytes()[1024], 0);
    let check = Request::Check { case: "c".to_owned(), checked: true };
    assert!(matches!(worker.ask(check.clone()).unwrap(), Reply::Checked { .. }));
    assert_eq!(posed.bytes()[1024..1280], [7; 256]);
    posed.fill(64, 9);
    assert!(matches!(worker.ask(check.clone()).unwrap(), Reply::Checked { .. }));
    assert_eq!(posed.bytes()[1024..1280], [9; 256], "new contents at the same address");
    let Reply::Witnessed(witness) = worker.ask(Request::Witness).unwrap() else { panic!() };
    assert_eq!(witness.dispatch, "toy-path");
    assert!(witness.libraries.iter().any(|library| library.sha256.is_some()));
    let release = Request::Release { case: "c".to_owned() };
    assert!(matches!(worker.ask(release).unwrap(), Reply::Released { .. }));
    assert!(matches!(worker.ask(check).unwrap(), Reply::Failed { .. }));
    assert!(matches!(worker.ask(Request::Bye).unwrap(), Reply::Bye));
    worker.end().unwrap();
}

#[test]
fn a_turn_gives_its_samples_and_publishes_the_outputs_of_a_timed_call() {
    let posed = Posed::new("turn", 3);
    let mut worker = toy();
    worker.ask(Request::Prepare(posed.prepare("copy"))).unwrap();
    let warm = warm(&mut worker);
    assert!(!warm.elapsed_ns.is_empty() && warm.calls > 1);
    assert_eq!(posed.bytes()[1024], 0, "timed calls work on private copies");
    let turn = turn(&mut worker, Measure { publish: true, ..measure(Phase::Turn, 6) });
    assert_eq!((turn.elapsed_ns.len(), turn.calls, turn.sets), (6, warm.calls, 1));
    assert_eq!((turn.block, turn.position), (2, 1));
    assert_eq!(turn.invalid, []);
    assert!(turn.timed.0 > 0.0 && turn.timed.0 + turn.untimed.0 <= turn.wall.0);
    assert_eq!(turn.modules[0], turn.modules[1]);
    assert_eq!(posed.bytes()[1024..1280], [3; 256]);
}

#[test]
fn a_refresh_takes_the_files_new_contents_and_nothing_else_does() {
    let posed = Posed::new("refresh", 3);
    let mut worker = toy();
    worker.ask(Request::Prepare(posed.prepare("copy"))).unwrap();
    warm(&mut worker);
    posed.fill(64, 5);
    let publish = Measure { publish: true, ..measure(Phase::Turn, 2) };
    turn(&mut worker, publish.clone());
    assert_eq!(posed.bytes()[1024..1280], [3; 256]);
    turn(&mut worker, Measure { refresh: true, ..publish });
    assert_eq!(posed.bytes()[1024..1280], [5; 256]);
}

#[test]
fn an_in_place_operator_sees_its_original_contents_in_every_timed_call() {
    let posed = Posed::new("in-place", 40);
    let mut worker = toy();
    worker.ask(Request::Prepare(posed.prepare("increment"))).unwrap();
    let warm = warm(&mut worker);
    assert!(warm.sets >= warm.calls, "{} sets, {} calls", warm.sets, warm.calls);
    turn(&mut worker, Measure { publish: true, ..measure(Phase::Turn, 4) });
    assert_eq!(posed.bytes()[64..320], [41; 256]);
}

#[test]
fn a_turn_before_the_warm_up_fails() {
    let posed = Posed::new("cold-turn", 1);
    let mut worker = toy();
    worker.ask(Request::Prepare(posed.prepare("copy"))).unwrap();
    let reply = worker.ask(Request::Measure(measure(Phase::Turn, 2))).unwrap();
    assert!(matches!(reply, Reply::Failed { detail } if detail.contains("warm-up")));
}

#[test]
fn panics_and_failures_of_a_provider_are_answers_and_the_session_goes_on() {
    let posed = Posed::new("panic", 255);
    let mut worker = toy();
    let check = || Request::Check { case: "c".to_owned(), checked: false };
    worker.ask(Request::Prepare(posed.prepare("panic"))).unwrap();
    let reply = worker.ask(check()).unwrap();
    assert!(matches!(reply, Reply::Failed { detail } if detail.contains("planted")));
    assert!(
        matches!(worker.ask(check()).unwrap(), Reply::Failed { detail } if detail.contains("not known"))
    );
    worker.ask(Request::Prepare(posed.prepare("decline"))).unwrap();
    let reply = worker.ask(check()).unwrap();
    assert!(matches!(reply, Reply::Failed { detail } if detail.contains("declined in Unchecked")));
    let reply = worker.ask(Request::Prepare(posed.prepare("unknown"))).unwrap();
    assert!(matches!(reply, Reply::Unsupported { .. }));
    let reply = worker.ask(Request::Measure(measure(Phase::Warm, 8))).unwrap();
    assert!(matches!(reply, Reply::Failed { .. }));
    assert!(matches!(worker.ask(Request::Catalog).unwrap(), Reply::Failed { .. }));
    assert!(matches!(worker.ask(Request::Bye).unwrap(), Reply::Bye));
    worker.end().unwrap();
}

#[test]
fn memory_that_no_slice_may_have_is_refused_with_a_typed_error() {
    let posed = Posed::new("unsafe", 1);
    let mut worker = toy();
    let mut refused = |change: fn(&mut TensorRef)| {
        let mut prepare = posed.prepare("copy");
        change(&mut prepare.tensors[1]);
        match worker.ask(Request::Prepare(prepare)).unwrap() {
            Reply::Refused { error, .. } => (error.kind, error.argument),
            other => panic!("{other:?}"),
        }
    };
    let y = "y".to_owned();
    assert_eq!(refused(|y| y.offset = 3841), ("storage_too_short".to_owned(), y.clone()));
    assert_eq!(refused(|y| y.offset = u64::MAX - 3), ("storage_too_short".to_owned(), y.clone()));
    assert_eq!(refused(|y| y.span = u64::MAX), ("storage_too_short".to_owned(), y.clone()));
    assert_eq!(refused(|y| y.offset = 100), ("overlap".to_owned(), y.clone()));
    assert_eq!(refused(|y| y.file.clear()), ("null_pointer".to_owned(), y.clone()));
    assert_eq!(refused(|y| y.strides = vec![2]), ("bad_stride".to_owned(), y));
}

#[test]
fn two_names_of_one_file_do_not_hide_an_overlap() {
    let posed = Posed::new("names", 1);
    let mut prepare = posed.prepare("copy");
    prepare.tensors[1].file = prepare.tensors[1].file.replace("/proofhouse", "/./proofhouse");
    prepare.tensors[1].offset = 64;
    let reply = toy().ask(Request::Prepare(prepare)).unwrap();
    assert!(matches!(reply, Reply::Refused { error, .. } if error.kind == "overlap"));
}

#[test]
fn a_file_that_was_cut_short_or_is_gone_is_an_answer() {
    let posed = Posed::new("short", 1);
    let mut worker = toy();
    let file = std::fs::OpenOptions::new().write(true).open(&posed.path).unwrap();
    file.set_len(1100).unwrap();
    let reply = worker.ask(Request::Prepare(posed.prepare("copy"))).unwrap();
    assert!(matches!(reply, Reply::Refused { error, .. } if error.argument == "y"));
    let mut prepare = posed.prepare("copy");
    prepare.tensors[0].file.push_str(".gone");
    let reply = worker.ask(Request::Prepare(prepare)).unwrap();
    assert!(matches!(reply, Reply::Failed { detail } if detail.contains("cannot be mapped")));
}

#[test]
fn a_garbage_line_is_answered_and_ends_the_session() {
    for garbage in ["garbage", "{\"seq\":1}", "{\"seq\":1,\"seq\":1,\"verb\":\"bye\"}", ""] {
        let mut worker = toy();
        worker.send(garbage.as_bytes()).unwrap();
        assert!(matches!(worker.reply().unwrap(), Reply::Failed { .. }), "{garbage}");
        assert!(matches!(worker.end(), Err(SessionError::Garbage { seq: 1, .. })), "{garbage}");
    }
}

#[test]
fn a_request_out_of_turn_ends_the_session() {
    let mut worker = toy();
    worker.send(br#"{"seq":2,"verb":"witness"}"#).unwrap();
    let end = worker.end();
    assert!(matches!(end, Err(SessionError::OutOfTurn { expected: 1, found: 2 })), "{end:?}");
}

#[test]
fn an_overlong_line_ends_the_session() {
    let mut worker = toy();
    worker.send(&vec![b' '; MAX_LINE + 2]).ok();
    let end = worker.end();
    assert!(matches!(end, Err(SessionError::Line(_))), "{end:?}");
}

#[test]
fn a_supervisor_that_goes_away_without_a_bye_is_a_failure() {
    let end = toy().end();
    assert!(matches!(end, Err(SessionError::Closed { seq: 0 })), "{end:?}");
}
