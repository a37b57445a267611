//! Spoiled lines and descriptors against the loop: no panic, no reference outside a file, one answer per request.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../../schema/tests/mutation/mod.rs"]
mod mutation;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use mutation::{cases, mutants, timely};
use proofhouse_schema::canonical;
use proofhouse_schema::catalog::Role;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::ids::{OperatorName, ProviderId};
use proofhouse_schema::protocol::{
    Capabilities, Prepare, Reply, ReplyLine, Request, RequestLine, TensorRef,
};
use proofhouse_worker::rehearsal::Rehearsal;
use proofhouse_worker::session::{SessionError, serve_stream};
use proofhouse_worker::{Call, Decline, Description, Mode, Storage, Tensor, Worker};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{TestError, TestRunner};

/// Bytes of the file that tensors lie in.
const FILE: u64 = 4096;

/// Takes every case once and does nothing; it is never timed, for it declines to be bound again.
#[derive(Default)]
struct Idle {
    bound: bool,
}

struct IdleCall<'a>(Vec<Tensor<'a>>);

impl Worker for Idle {
    fn describe(&self) -> Description {
        Description {
            provider: ProviderId::new("idle").unwrap(),
            version: "1".to_owned(),
            packages: BTreeMap::new(),
            operators: BTreeMap::new(),
            capabilities: Capabilities { measure: true, ..Default::default() },
            device: None,
        }
    }

    fn examine(&mut self, _: &Prepare, _: &[proofhouse_worker::Region]) -> Result<(), Decline> {
        self.bound = false;
        Ok(())
    }

    fn bind<'a>(
        &mut self,
        case: &Prepare,
        tensors: Vec<Tensor<'a>>,
    ) -> Result<Box<dyn Call + 'a>, Decline> {
        if std::mem::replace(&mut self.bound, true) {
            return Err(Decline::Unsupported("it is not timed".to_owned()));
        }
        assert_eq!(case.tensors.len(), tensors.len());
        for (asked, given) in case.tensors.iter().zip(&tensors) {
            assert_eq!(asked.span, given.storage.bytes().len() as u64);
            assert_eq!(asked.role == Role::In, matches!(given.storage, Storage::Read(_)));
        }
        Ok(Box::new(IdleCall(tensors)))
    }
}

impl Call for IdleCall<'_> {
    fn run(&mut self, _: Mode) -> Result<(), Decline> {
        // Every byte can be read.
        let sum: u64 = self.0.iter().flat_map(|t| t.storage.bytes()).map(|&b| u64::from(b)).sum();
        if sum == u64::MAX { Err(Decline::Failed("impossible".to_owned())) } else { Ok(()) }
    }

    fn bytes(&self, index: usize) -> &[u8] {
        self.0[index].storage.bytes()
    }

    fn bytes_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        match &mut self.0[index].storage {
            Storage::Read(_) => None,
            Storage::Write(bytes) => Some(bytes),
        }
    }
}

fn shown(error: &dyn Error) {
    let mut next = Some(error);
    while let Some(error) = next {
        assert!(!error.to_string().is_empty());
        next = error.source();
    }
}

/// Sends a script as it is, and gives every answer and how the session ended.
fn play(script: &[u8]) -> (Vec<ReplyLine>, Result<(), SessionError>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let session = scope.spawn(|| serve_stream(&mut Idle::default(), theirs, "n".to_owned()));
        let mut sender = ours.try_clone().unwrap();
        scope.spawn(move || {
            // The session may be over before the script is; then nobody listens.
            let _ = sender.write_all(script);
            let _ = sender.shutdown(Shutdown::Write);
        });
        let lines = BufReader::new(&ours).lines();
        // A session that ends with requests unread closes with a reset, after its last answer.
        let replies = lines.map_while(Result::ok);
        let replies = replies.map(|line| serde_json::from_str(&line).unwrap()).collect();
        (replies, session.join().expect("a session turns panics into answers"))
    })
}

/// How many answers a script must get, the hello first, and whether it ends well: told without the loop.
fn told(script: &[u8]) -> (usize, bool) {
    let mut answers = 1;
    for (at, line) in script.split_inclusive(|&b| b == b'\n').enumerate() {
        let Some(line) = line.strip_suffix(b"\n") else { return (answers, false) };
        answers += 1;
        match canonical::parse::<RequestLine>(line) {
            Ok(line) if line.seq == at as u64 + 1 => {
                if line.request == Request::Bye {
                    return (answers, true);
                }
            }
            _ => return (answers, false),
        }
    }
    (answers, false)
}

fn script(file: &str) -> Vec<u8> {
    let prepare = Prepare {
        case: "c".to_owned(),
        operator: OperatorName::new("idle").unwrap(),
        dtype: Dtype::U8,
        dims: BTreeMap::new(),
        params: BTreeMap::new(),
        tensors: vec![tensor(file, Role::In, 64, 256), tensor(file, Role::Out, 1024, 256)],
    };
    let requests = [
        Request::Prepare(prepare),
        Request::Check { case: "c".to_owned(), checked: true },
        Request::Catalog,
        Request::Release { case: "c".to_owned() },
        Request::Bye,
    ];
    let lines = (1..).zip(requests).map(|(seq, request)| RequestLine { seq, request });
    lines.flat_map(|line| [serde_json::to_vec(&line).unwrap(), b"\n".to_vec()].concat()).collect()
}

fn tensor(file: &str, role: Role, offset: u64, span: u64) -> TensorRef {
    TensorRef {
        name: format!("t{offset}"),
        role,
        dtype: Dtype::U8,
        shape: vec![span],
        strides: vec![1],
        file: file.to_owned(),
        offset,
        span,
        guard: 0,
    }
}

fn posed() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(FILE).unwrap();
    file
}

#[test]
fn every_line_gets_one_answer_and_the_first_bad_one_ends_the_session() {
    let file = posed();
    let sound = script(file.path().to_str().unwrap());
    let (replies, end) = play(&sound);
    assert!(
        end.is_ok() && matches!(replies[2].reply, Reply::Checked { .. }),
        "{replies:?} {end:?}"
    );
    let strange = include_bytes!("../../schema/tests/seeds/requests.jsonl").to_vec();
    let seeds = vec![sound.clone(), sound, strange];
    let run = TestRunner::new(cases(1500)).run(&mutants(seeds), |script| {
        // To witness is to read every library that is mapped: not a thing to do a thousand times.
        prop_assume!(!script.windows(7).any(|part| part == b"witness"));
        let (replies, end) = timely(|| play(&script));
        let (answers, well) = told(&script);
        prop_assert_eq!(end.is_ok(), well, "{:?}", end);
        // The last answer to a broken line is lost where the script went on behind it.
        prop_assert!(replies.len() == answers || (!well && replies.len() + 1 == answers));
        for (seq, line) in (0..).zip(&replies) {
            prop_assert!(line.seq == seq && line.nonce == "n");
            let text = format!("{:?}", line.reply);
            prop_assert!(!text.contains("panic:"), "{text}");
        }
        if let Err(error) = end {
            shown(&error);
        }
        Ok(())
    });
    if let Err(error) = run {
        if let TestError::Fail(reason, script) = &error {
            panic!("{reason}\nfor {:?}", String::from_utf8_lossy(script));
        }
        panic!("{error}");
    }
}

fn any_tensor() -> impl Strategy<Value = TensorRef> {
    let edges = || {
        select(vec![
            0,
            1,
            2,
            63,
            64,
            256,
            4095,
            4096,
            4097,
            1 << 31,
            1 << 62,
            u64::MAX - 1,
            u64::MAX,
        ])
    };
    let place = || prop_oneof![3 => 0..=FILE, 1 => edges()];
    let axes = || proptest::collection::vec(prop_oneof![0..9_u64, edges()], 0..5);
    let role = select(vec![Role::In, Role::Out, Role::InOut]);
    let dtype = select(Dtype::ALL.to_vec());
    let null = proptest::bool::weighted(0.05);
    (role, dtype, axes(), axes(), place(), place(), edges(), null, any::<bool>()).prop_map(
        |(role, dtype, shape, mut strides, offset, span, guard, null, rows)| {
            if rows {
                // Strides as rows have them, so that many cases get past that check.
                strides = shape.clone();
                if let Some(last) = strides.last_mut() {
                    *last = 1;
                }
                for axis in (0..shape.len().saturating_sub(1)).rev() {
                    strides[axis] = strides[axis + 1].saturating_mul(shape[axis + 1]);
                }
            }
            let file = if null { String::new() } else { "posed".to_owned() };
            let name = "t".to_owned();
            TensorRef { name, role, dtype, shape, strides, file, offset, span, guard }
        },
    )
}

/// Whether a case may be given to a provider at all, told in wider numbers than the loop uses.
fn may_be_bound(case: &Prepare) -> bool {
    let ends = |t: &TensorRef| (u128::from(t.offset), u128::from(t.offset) + u128::from(t.span));
    let inside = case.tensors.iter().all(|t| !t.file.is_empty() && ends(t).1 <= u128::from(FILE));
    let ranked = case.tensors.iter().all(|t| t.shape.len() == t.strides.len());
    let shared = |a: &TensorRef, b: &TensorRef| ends(a).0.max(ends(b).0) < ends(a).1.min(ends(b).1);
    let alone = case.tensors.iter().enumerate().all(|(at, t)| {
        t.role == Role::In
            || case.tensors.iter().enumerate().all(|(other, u)| other == at || !shared(t, u))
    });
    inside && ranked && alone
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn no_descriptor_gives_a_provider_memory_that_is_not_its_own(
        tensors in proptest::collection::vec(any_tensor(), 0..4),
    ) {
        let file = posed();
        let mut case = Prepare {
            case: "c".to_owned(),
            operator: OperatorName::new("idle").unwrap(),
            dtype: Dtype::U8,
            dims: BTreeMap::new(),
            params: BTreeMap::new(),
            tensors,
        };
        for tensor in case.tensors.iter_mut().filter(|tensor| !tensor.file.is_empty()) {
            tensor.file = file.path().to_str().unwrap().to_owned();
        }
        let mut worker = Rehearsal::start(Idle::default).unwrap();
        match worker.ask(Request::Prepare(case.clone())).unwrap() {
            Reply::Prepared { .. } => {
                prop_assert!(may_be_bound(&case), "{case:?}");
                let check = Request::Check { case: "c".to_owned(), checked: true };
                let reply = worker.ask(check).unwrap();
                let checked = matches!(reply, Reply::Checked { .. });
                prop_assert!(checked, "{reply:?}");
            }
            Reply::Refused { error, .. } => {
                // Strides are the only other thing that the loop itself refuses.
                prop_assert!(!may_be_bound(&case) || error.kind == "bad_stride", "{error:?} {case:?}");
            }
            other => prop_assert!(false, "{other:?} {case:?}"),
        }
        prop_assert!(matches!(worker.ask(Request::Bye).unwrap(), Reply::Bye));
        worker.end().unwrap();
    }
}
