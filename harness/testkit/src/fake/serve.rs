//! The protocol loop, with defects in its replies and in the operator's outputs.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{
    Capabilities, Hello, MAX_LINE, Measure, NONCE_VARIABLE, PROTOCOL, Phase, Prepare, Reply,
    ReplyLine, Request, RequestLine, SOCKET_VARIABLE, TensorRef, Witnessed,
};

use crate::device;
use crate::misbehave::at_check;
use crate::norm::rms_norm;
use crate::refuse::invalid;
use crate::tensors::{read, write, write_bytes};
use crate::time::{Memory, Timed};

/// The provider id that it says.
const ID_VARIABLE: &str = "PROOFHOUSE_FAKE_ID";
/// The version that it says; without it, 0.
const VERSION_VARIABLE: &str = "PROOFHOUSE_FAKE_VERSION";
/// A folder in which it counts its processes.
const STATE_VARIABLE: &str = "PROOFHOUSE_FAKE_STATE";

struct Fake {
    defect: String,
    provider: ProviderId,
    nonce: String,
    stream: UnixStream,
    cases: HashMap<String, Case>,
    /// Results by case name, by shape, and the last one, for the defects that remember.
    remembered: HashMap<String, Vec<f32>>,
    last: Vec<f32>,
    checks: u32,
    memory: Memory,
    fast_process: bool,
}

struct Case {
    request: Prepare,
    timed: Option<Timed>,
    /// The inputs that were there when it was captured.
    captured: Vec<f32>,
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

/// Connects and answers until bye.
pub(crate) fn serve(defect: &str) -> io::Result<ExitCode> {
    let variable = |name: &str| std::env::var(name).map_err(other);
    let id = std::env::var(ID_VARIABLE).unwrap_or_else(|_| "fake".to_owned());
    let stream = UnixStream::connect(variable(SOCKET_VARIABLE)?)?;
    let reader = BufReader::new(stream.try_clone()?);
    let mut fake = Fake {
        defect: defect.to_owned(),
        provider: ProviderId::new(id).map_err(other)?,
        nonce: variable(NONCE_VARIABLE)?,
        stream,
        cases: HashMap::new(),
        remembered: HashMap::new(),
        last: Vec::new(),
        checks: 0,
        memory: Memory::default(),
        fast_process: count_processes().is_multiple_of(2),
    };
    fake.hello()?;
    for line in reader.lines() {
        let request: RequestLine = serde_json::from_str(&line?).map_err(other)?;
        let done = matches!(request.request, Request::Bye);
        fake.answer(request)?;
        if done {
            let code = if defect == "exit-code-after-bye" { 3 } else { 0 };
            return Ok(ExitCode::from(code));
        }
    }
    Ok(ExitCode::from(8))
}

/// How many processes of this provider there were before; without a state folder, none.
fn count_processes() -> usize {
    let Some(folder) = std::env::var_os(STATE_VARIABLE) else { return 1 };
    let path = std::path::Path::new(&folder).join("processes");
    let before = std::fs::read(&path).map_or(0, |bytes| bytes.len());
    let _ = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(b"x"));
    before
}

impl Fake {
    fn is(&self, defect: &str) -> bool {
        self.defect == defect
    }

    fn hello(&mut self) -> io::Result<()> {
        let operator = "rms_norm".parse().map_err(other)?;
        let device = device::opened(&self.defect);
        let hello = Hello {
            protocol: PROTOCOL,
            version: std::env::var(VERSION_VARIABLE).unwrap_or_else(|_| "0".to_owned()),
            pid: std::process::id(),
            language: "rust".to_owned(),
            packages: BTreeMap::new(),
            operators: BTreeMap::from([(operator, vec![Dtype::F32])]),
            capabilities: Capabilities {
                measure: true,
                refusals: true,
                refresh: true,
                graph: device.is_some(),
                ..Capabilities::default()
            },
            device,
        };
        self.send(0, Reply::Hello(hello))
    }

    fn send(&mut self, seq: u64, reply: Reply) -> io::Result<()> {
        let line =
            ReplyLine { nonce: self.nonce.clone(), seq, provider: self.provider.clone(), reply };
        let mut bytes = serde_json::to_vec(&line).map_err(other)?;
        bytes.push(b'\n');
        self.stream.write_all(&bytes)
    }

    fn answer(&mut self, line: RequestLine) -> io::Result<()> {
        let seq = line.seq;
        let check = matches!(line.request, Request::Check { .. });
        let reply = match line.request {
            Request::Prepare(request) => self.prepare(request),
            Request::Check { case, .. } => self.check(&case),
            Request::Measure(request) => self.measure(&request),
            Request::Capture { case } => self.capture(case),
            Request::Replay { case } => self.replay(case),
            Request::Ceilings => Reply::Ceilings { measured: device::ceilings() },
            Request::Witness => Reply::Witnessed(Witnessed::default()),
            Request::Release { case } => {
                self.cases.remove(&case);
                Reply::Released { case }
            }
            Request::Bye => Reply::Bye,
            _ => Reply::Failed { detail: "this worker is no checker".to_owned() },
        };
        if check { self.send_checked(seq, reply) } else { self.send(seq, reply) }
    }

    /// The reply to a check, spoiled by the defects of the protocol.
    fn send_checked(&mut self, seq: u64, reply: Reply) -> io::Result<()> {
        match self.defect.as_str() {
            "garbage-line" => self.stream.write_all(b"}{ this is no JSON\n"),
            "overlong-line" => {
                let chunk = vec![b' '; 1 << 20];
                // The supervisor hangs up in the middle of it.
                (0..=MAX_LINE >> 20).try_for_each(|_| self.stream.write_all(&chunk))
            }
            "late-reply" => self.send(seq - 1, reply),
            "double-reply" => {
                self.send(seq, reply.clone())?;
                self.send(seq, reply)
            }
            "wrong-nonce" => {
                self.nonce = "0".repeat(32);
                self.send(seq, reply)
            }
            "wrong-provider" => {
                self.provider = "torch".parse().map_err(other)?;
                self.send(seq, reply)
            }
            "wrong-case" => self.send(seq, Reply::Checked { case: "another".to_owned() }),
            "unexpected-verb" => self.send(seq, Reply::Bye),
            "exit-before-bye" => std::process::exit(0),
            // A worker whose device is lost says nothing more.
            "illegal-access" | "device-assert" => std::process::exit(70),
            _ => self.send(seq, reply),
        }
    }

    fn prepare(&mut self, request: Prepare) -> Reply {
        let case = request.case.clone();
        let mut error = invalid(&request);
        match self.defect.as_str() {
            "accepts-invalid" => error = None,
            "wrong-refusal-kind" => {
                if let Some(error) = &mut error {
                    error.kind = "unsupported_shape".to_owned();
                }
            }
            "refuses-everything" if error.is_none() => {
                let mut zero = request.clone();
                zero.dims.insert("hidden".to_owned(), 0);
                error = invalid(&zero);
            }
            _ => {}
        }
        if let Some(error) = error {
            return Reply::Refused { case, error };
        }
        self.cases.insert(case.clone(), Case { request, timed: None, captured: Vec::new() });
        Reply::Prepared { case }
    }

    fn check(&mut self, name: &str) -> Reply {
        at_check(&self.defect);
        self.checks += 1;
        if self.is("untyped-failure") {
            return Reply::Failed { detail: "something went wrong".to_owned() };
        }
        let Some(case) = self.cases.get(name) else {
            return Reply::Failed { detail: format!("case {name} was not prepared") };
        };
        let request = case.request.clone();
        match self.run(name, &request) {
            Ok(()) => Reply::Checked { case: name.to_owned() },
            // A fake that accepts everything stays in bounds by the file's own end.
            Err(_) if self.is("accepts-invalid") => Reply::Checked { case: name.to_owned() },
            Err(error) => Reply::Failed { detail: error.to_string() },
        }
    }

    fn capture(&mut self, case: String) -> Reply {
        if self.is("reads-back") {
            let reason = "one call cannot be captured: it reads a value back".to_owned();
            return Reply::Unsupported { case, reason };
        }
        let Some(known) = self.cases.get_mut(&case) else {
            return Reply::Failed { detail: format!("case {case} was not prepared") };
        };
        match tensor(&known.request, "x").and_then(read) {
            Ok(x) => known.captured = x,
            Err(error) => return Reply::Failed { detail: error.to_string() },
        }
        let kernels = device::kernels(&self.defect);
        Reply::Captured { case, nodes: kernels.len() as u64, kernels }
    }

    fn replay(&mut self, case: String) -> Reply {
        let Some(known) = self.cases.get(&case) else {
            return Reply::Failed { detail: format!("case {case} was not prepared") };
        };
        let (request, captured) = (known.request.clone(), known.captured.clone());
        match self.replayed(&request, captured) {
            Ok(()) => Reply::Replayed { case },
            Err(error) => Reply::Failed { detail: error.to_string() },
        }
    }

    fn replayed(&self, case: &Prepare, captured: Vec<f32>) -> io::Result<()> {
        if device::idles(&self.defect) {
            return Ok(());
        }
        let stale = self.is("stale-graph-inputs");
        let x = if stale { captured } else { read(tensor(case, "x")?)? };
        write(tensor(case, "y")?, &rms_norm(&x, &read(tensor(case, "w")?)?, eps(case), false))
    }

    fn run(&mut self, name: &str, case: &Prepare) -> io::Result<()> {
        let (x_ref, y_ref) = (tensor(case, "x")?, tensor(case, "y")?);
        let x = read(x_ref)?;
        let weight = read(tensor(case, "w")?)?;
        if self.is("memo-by-content") && !self.memory.knows(&x) {
            crate::time::dawdle();
        }
        let mut y = rms_norm(&x, &weight, eps(case), self.is("other-order"));
        let right = y.clone();
        if self.is("writes-nothing") {
            return Ok(());
        }
        self.spoil(name, weight.len(), &mut y);
        self.last = right;
        write(y_ref, &y)?;
        match self.defect.as_str() {
            "out-of-bounds-write" => write_bytes(y_ref, y_ref.span, &[0x77]),
            "mutates-input" => write(x_ref, &[x.first().copied().unwrap_or(0.0) + 1.0]),
            _ => Ok(()),
        }
    }

    /// Makes the output wrong in the defect's way.
    fn spoil(&mut self, name: &str, width: usize, y: &mut Vec<f32>) {
        let shape = format!("{} x {width}", y.len());
        let rows = y.len() / width.max(1);
        match self.defect.as_str() {
            "writes-zeros" => y.fill(0.0),
            "unwritten-tail" => {
                y.pop();
            }
            "memo-by-pointer" => {
                *y = self.remembered.entry(name.to_owned()).or_insert(y.clone()).clone()
            }
            "memo-by-shape" => *y = self.remembered.entry(shape).or_insert(y.clone()).clone(),
            "memo-last" if self.last.len() == y.len() => y.clone_from(&self.last),
            "stale-output" => {
                let size = y.len();
                y.clone_from(&self.last);
                y.resize(size, 0.0);
            }
            "sign-flip" => y.iter_mut().for_each(|v| *v = -*v),
            "scale-1.01" => y.iter_mut().for_each(|v| *v *= 1.01),
            "off-by-one-row" => y.rotate_left(width),
            "one-nan" => y[0] = f32::NAN,
            "nan-for-inf" => y.iter_mut().for_each(swap_classes),
            "nondeterministic" => nudge(&mut y[0], self.checks),
            "batch-variant" => {
                let steps = u32::try_from(rows).unwrap_or(0);
                y.chunks_mut(width).for_each(|row| nudge(&mut row[0], steps));
            }
            _ => {}
        }
    }

    fn measure(&mut self, asked: &Measure) -> Reply {
        let defect = self.defect.clone();
        if defect == "early-exit" && asked.phase == Phase::Turn {
            std::process::exit(0);
        }
        let Some(case) = self.cases.get_mut(&asked.case) else {
            return Reply::Failed { detail: format!("case {} was not prepared", asked.case) };
        };
        match timed_turn(case, asked, &defect, &mut self.memory, self.fast_process) {
            Ok(measured) => Reply::Measured(measured),
            Err(error) => Reply::Failed { detail: error.to_string() },
        }
    }
}

fn timed_turn(
    case: &mut Case,
    asked: &Measure,
    defect: &str,
    memory: &mut Memory,
    fast: bool,
) -> io::Result<proofhouse_schema::protocol::Measured> {
    let request = case.request.clone();
    if case.timed.is_none() || asked.refresh {
        let mut timed = case.timed.take().unwrap_or_default();
        timed.x = read(tensor(&request, "x")?)?;
        timed.weight = read(tensor(&request, "w")?)?;
        timed.eps = eps(&request);
        timed.out.resize(timed.x.len(), 0.0);
        case.timed = Some(timed);
    }
    let timed = case.timed.as_mut().ok_or_else(|| other("not prepared"))?;
    if timed.cold && asked.phase == Phase::Turn {
        return Err(other("the timer is not warm"));
    }
    let measured = timed.measure(asked, defect, memory, fast);
    if asked.publish {
        write(tensor(&request, "y")?, &timed.out)?;
    }
    Ok(measured)
}

fn tensor<'a>(case: &'a Prepare, name: &str) -> io::Result<&'a TensorRef> {
    case.tensors.iter().find(|t| t.name == name).ok_or_else(|| other(format!("no tensor {name}")))
}

fn eps(case: &Prepare) -> f64 {
    case.params.get("eps").and_then(|eps| eps.as_f64()).unwrap_or(0.0)
}

fn swap_classes(value: &mut f32) {
    if value.is_nan() {
        *value = f32::INFINITY;
    } else if value.is_infinite() {
        *value = f32::NAN;
    }
}

/// Moves a value by a few of its smallest steps.
fn nudge(value: &mut f32, steps: u32) {
    if value.is_finite() {
        *value = f32::from_bits(value.to_bits().wrapping_add(steps % 8));
    }
}
