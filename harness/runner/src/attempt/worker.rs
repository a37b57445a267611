//! A live worker: it is asked, watched, and ended; its end is recorded whatever it is.

use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proofhouse_schema::evidence::{Attempt, Ending};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::protocol::{
    Hello, NONCE_VARIABLE, PROTOCOL, Reply, Request, SOCKET_VARIABLE, TypedError,
};
use proofhouse_schema::units::{Bytes, Nanos, Wide};
use rustix::process::Signal;
use tokio::process::{Child, Command};

use super::confine::confine;
use super::family::{self, CoreTime, Family};
use super::launch::{Launch, Placement};
use super::loss::{Loss, sentence};
use super::reaper::Reaper;
use super::tail::Tail;
use crate::interrupt::Stop;
use crate::options::Limits;
use crate::socket::{Channel, Door, ProtocolFault, reply_verb, verb};
use crate::trace::{Span, Trace};

/// How long processes of a group may take to follow their leader before they count as left behind.
const FOLLOW: Duration = Duration::from_millis(300);

/// Who watches over attempts: who may stop the run, and who ends what is left when the run is gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    pub(crate) stop: Stop,
    pub(crate) reaper: Rc<Reaper>,
    pub(crate) trace: Option<Rc<Trace>>,
}

/// A live worker.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Process,
    channel: Channel,
    hello: Hello,
}

/// What a worker did with a case.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// What was asked.
    Done,
    /// A typed refusal.
    Refused(TypedError),
    /// It does not do this.
    Unsupported(String),
    /// It failed for a reason that is no refusal.
    Failed(String),
}

impl Worker {
    /// Starts a process and waits for its hello.
    pub(crate) async fn start(
        launch: &Launch,
        placement: &Placement,
        limits: &Limits,
        watch: &Watch,
    ) -> Result<Worker, (Loss, Box<Attempt>)> {
        let begun = Instant::now();
        let blank = |loss: Loss| (loss, Box::new(Process::never(launch, placement)));
        let not_started = |e: std::io::Error| Loss::NotStarted { detail: e.to_string() };
        let door = Door::open().map_err(|e| blank(not_started(e)))?;
        let mut process = Process::spawn(launch, placement, limits, watch, &door)
            .map_err(|e| blank(not_started(e)))?;
        let greeted = process.greet(door, launch, begun).await;
        process.trace("start", "", begun);
        match greeted {
            Ok((channel, hello)) => Ok(Worker { process, channel, hello }),
            Err(loss) => Err((loss.clone(), Box::new(process.lose(&loss).await))),
        }
    }

    /// What the worker said first.
    pub(crate) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// What the kernel has counted so far: core time of the worker's first thread, and waits for a core of that thread
    /// and of this one.
    pub(crate) fn core_time(&self) -> CoreTime {
        let worker = self.process.child.id().map(|pid| format!("/proc/{pid}/schedstat"));
        let worker = worker.map(|path| CoreTime::read(&path)).unwrap_or_default();
        let own = CoreTime::read("/proc/thread-self/schedstat");
        CoreTime { used_ns: worker.used_ns, waited_ns: worker.waited_ns + own.waited_ns }
    }

    /// The attempt so far; it goes on.
    pub(crate) fn so_far(&mut self) -> Attempt {
        self.process.record.stderr = self.process.logs();
        self.process.family.resident();
        self.process.record.peak_memory = Probe::Known(Bytes(self.process.family.peak));
        self.process.record.clone()
    }

    /// Asks and waits for the reply.
    pub(crate) async fn ask(&mut self, request: Request) -> Result<Reply, Loss> {
        let limit = match &request {
            Request::Measure(_) => self.process.limits.measure,
            _ => self.process.limits.request,
        };
        let asked = verb(&request);
        let about = self.process.trace.as_ref().map(|_| subject(&request)).unwrap_or_default();
        let begun = Instant::now();
        let channel = &mut self.channel;
        let exchange = async {
            channel.send(request).await?;
            channel.receive(asked).await
        };
        let reply = self.process.guard(asked, limit, exchange).await;
        self.process.trace(asked, &about, begun);
        reply
    }

    /// Asks about a case where the answer is done, refused, unsupported or failed.
    pub(crate) async fn ask_case(&mut self, request: Request, case: &str) -> Result<Answer, Loss> {
        let asked = verb(&request);
        let (answer, named) = match self.ask(request).await? {
            Reply::Prepared { case } if asked == "prepare" => (Answer::Done, case),
            Reply::Checked { case } if asked == "check" => (Answer::Done, case),
            Reply::Released { case } if asked == "release" => (Answer::Done, case),
            Reply::Refused { case, error } => (Answer::Refused(error), case),
            Reply::Unsupported { case, reason } => (Answer::Unsupported(reason), case),
            Reply::Failed { detail } => return Ok(Answer::Failed(detail)),
            other => {
                return Err(unexpected(
                    asked,
                    &other,
                    "the request's own, refused, unsupported, failed",
                ));
            }
        };
        if named == case {
            Ok(answer)
        } else {
            let expected = case.to_owned();
            Err(ProtocolFault::WrongSubject { asked, found: named, expected }.into())
        }
    }

    /// As [`Worker::ask_case`], with the time it took less what the kernel let both sides wait for a core.
    pub(crate) async fn ask_timed(
        &mut self,
        request: Request,
        case: &str,
    ) -> Result<(Answer, Duration), Loss> {
        let (before, begun) = (self.core_time(), Instant::now());
        let answer = self.ask_case(request, case).await?;
        let wall = begun.elapsed().as_nanos() as f64;
        let spent = self.core_time().since(before);
        let least = spent.used_ns.min(wall);
        Ok((answer, Duration::from_nanos((wall - spent.waited_ns).max(least) as u64)))
    }

    /// Says bye, waits for the end, and ends whatever is left. A wrong end is a loss as well.
    pub(crate) async fn end(mut self) -> (Attempt, Option<Loss>) {
        // The last look at who is below the worker: after its end its children are strangers.
        self.process.family.resident();
        self.process.family.high_water();
        match self.farewell().await {
            Ok(()) => self.process.finish().await,
            Err(loss) => (self.process.lose(&loss).await, Some(loss)),
        }
    }

    /// Ends the worker because of a loss that was seen while it was asked.
    pub(crate) async fn lose(self, loss: &Loss) -> Attempt {
        self.process.lose(loss).await
    }

    async fn farewell(&mut self) -> Result<(), Loss> {
        match self.ask(Request::Bye).await? {
            Reply::Bye => {}
            other => return Err(unexpected("bye", &other, "bye")),
        }
        let grace = self.process.limits.grace;
        let channel = &mut self.channel;
        self.process.guard("bye", grace, channel.closed()).await
    }
}

/// A reply of a wrong kind.
pub(crate) fn unexpected(asked: &'static str, found: &Reply, accepted: &'static str) -> Loss {
    ProtocolFault::UnexpectedVerb { asked, found: reply_verb(found), accepted }.into()
}

/// What a request is about, for a trace.
fn subject(request: &Request) -> String {
    match request {
        Request::Prepare(prepare) => prepare.case.clone(),
        Request::Measure(m) => format!("{} {:?} {}.{}", m.case, m.phase, m.block, m.position),
        Request::Check { case, .. } | Request::Release { case } => case.clone(),
        Request::Pose(pose) => format!("{} {}", pose.case, pose.contents),
        Request::Judge(judge) => judge.case.clone(),
        _ => String::new(),
    }
}

/// The process behind a worker.
#[derive(Debug)]
struct Process {
    child: Child,
    family: Family,
    limits: Limits,
    stop: Stop,
    trace: Option<Rc<Trace>>,
    stderr: Option<Tail>,
    stdout: Option<Tail>,
    record: Attempt,
    over: bool,
}

impl Process {
    fn never(launch: &Launch, placement: &Placement) -> Attempt {
        let now = now();
        Attempt {
            provider: launch.provider.clone(),
            replicate: placement.replicate,
            argv: launch.recorded.clone(),
            environment: launch.recorded_environment(),
            started: now,
            ended: Some(now),
            hello: None,
            ending: Some(Ending::NotStarted),
            stderr: String::new(),
            peak_memory: Probe::Unavailable("the process was not started".to_owned()),
            orphans: 0,
        }
    }

    fn spawn(
        launch: &Launch,
        placement: &Placement,
        limits: &Limits,
        watch: &Watch,
        door: &Door,
    ) -> std::io::Result<Process> {
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.arguments)
            .env_clear()
            .envs(&launch.environment)
            .env(SOCKET_VARIABLE, door.path())
            .env(NONCE_VARIABLE, door.nonce())
            .current_dir(door.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        confine(&mut command, placement.cores.as_deref());
        watch.reaper.expects(door.nonce());
        let mut child = command.spawn().inspect_err(|_| watch.reaper.forgets(door.nonce()))?;
        let family = Family::new(child.id().unwrap_or(0), door.nonce(), &watch.reaper);
        let record = Attempt { ended: None, ending: None, ..Process::never(launch, placement) };
        Ok(Process {
            stderr: child.stderr.take().map(Tail::follow),
            stdout: child.stdout.take().map(Tail::follow),
            child,
            family,
            limits: limits.clone(),
            stop: watch.stop.clone(),
            trace: watch.trace.clone(),
            record,
            over: false,
        })
    }

    /// Adds a span that ends now to the run's trace, if there is one.
    fn trace(&self, what: &str, about: &str, begun: Instant) {
        if let Some(trace) = &self.trace {
            let (provider, pid) = (&self.record.provider, self.child.id().unwrap_or(0));
            trace.add(Span { what, about, provider, pid, begun });
        }
    }

    async fn greet(
        &mut self,
        door: Door,
        launch: &Launch,
        begun: Instant,
    ) -> Result<(Channel, Hello), Loss> {
        let limit = self.limits.hello;
        let connect = async {
            door.accept().await.map_err(|e| ProtocolFault::Socket { detail: e.to_string() })
        };
        let stream = self.guard("hello", limit, connect).await?;
        let peer = stream.peer_cred().ok().and_then(|cred| cred.pid()).unwrap_or(0);
        if !self.family.has(peer) {
            return Err(ProtocolFault::ForeignPeer { pid: peer }.into());
        }
        let mut channel = door.shut(stream, launch.provider.clone());
        let rest = limit.saturating_sub(begun.elapsed());
        let reply = self.guard("hello", rest, channel.receive("hello")).await?;
        let Reply::Hello(hello) = reply else { return Err(unexpected("hello", &reply, "hello")) };
        self.record.hello = Some(Nanos(begun.elapsed().as_nanos() as f64));
        if hello.protocol != PROTOCOL {
            let fault = ProtocolFault::Version { found: hello.protocol, expected: PROTOCOL };
            return Err(fault.into());
        }
        Ok((channel, hello))
    }

    /// Waits for an exchange within deadline, memory limit and the process's life.
    async fn guard<T>(
        &mut self,
        asked: &'static str,
        limit: Duration,
        exchange: impl Future<Output = Result<T, ProtocolFault>>,
    ) -> Result<T, Loss> {
        let deadline = tokio::time::sleep(limit);
        let mut look = tokio::time::interval(self.limits.memory_poll);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let stop = self.stop.clone();
        tokio::pin!(deadline, exchange);
        let stopped = stop.wait();
        tokio::pin!(stopped);
        let mut ended = None;
        loop {
            tokio::select! {
                biased;
                outcome = &mut exchange => return match outcome {
                    Ok(value) => Ok(value),
                    Err(ProtocolFault::Closed { .. }) => Err(self.why_closed(asked).await),
                    Err(fault) => Err(fault.into()),
                },
                status = self.child.wait(), if ended.is_none() => {
                    // What it wrote before it ended is still read; then there is nothing to wait for.
                    ended = Some(ending_of(status.ok()));
                    deadline.as_mut().reset(tokio::time::Instant::now() + Duration::from_millis(100));
                }
                () = &mut deadline => return Err(match ended {
                    Some(ending) => Loss::Ended { asked, ending },
                    None => Loss::Timeout { asked, limit },
                }),
                () = &mut stopped => return Err(Loss::Interrupted),
                _ = look.tick() => {
                    let found = Bytes(self.family.resident());
                    if found > self.limits.memory {
                        return Err(Loss::Memory { found, limit: self.limits.memory });
                    }
                }
            }
        }
    }

    /// The socket was closed: because the process ended, or although it lives.
    async fn why_closed(&mut self, asked: &'static str) -> Loss {
        match tokio::time::timeout(self.limits.grace, self.child.wait()).await {
            Ok(status) => Loss::Ended { asked, ending: ending_of(status.ok()) },
            Err(_) => ProtocolFault::Closed { asked }.into(),
        }
    }

    /// Ends the group: SIGTERM, grace, SIGKILL. It never waits for ever.
    async fn put_down(&mut self) {
        self.family.resident();
        self.family.high_water();
        if self.ended_by(Duration::ZERO).await {
            return;
        }
        self.family.signal_group(Signal::TERM);
        if self.ended_by(self.limits.grace).await {
            return;
        }
        self.family.signal_group(Signal::KILL);
        self.ended_by(self.limits.grace * 5).await;
    }

    async fn ended_by(&mut self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.child.wait()).await.is_ok()
    }

    async fn lose(mut self, loss: &Loss) -> Attempt {
        self.put_down().await;
        self.sweep(Duration::ZERO).await;
        self.record.ending = Some(loss.ending());
        self.closing().await
    }

    async fn finish(mut self) -> (Attempt, Option<Loss>) {
        let status = tokio::time::timeout(self.limits.grace, self.child.wait()).await;
        let (ending, mut loss) = match status {
            Ok(status) => match ending_of(status.ok()) {
                Ending::Exit(0) => (Ending::Exit(0), None),
                bad => {
                    let detail = sentence(&bad);
                    (bad, Some(Loss::Protocol(ProtocolFault::BadEnd { detail })))
                }
            },
            Err(_) => {
                self.put_down().await;
                let limit = self.limits.grace;
                (Ending::Timeout, Some(Loss::Timeout { asked: "bye", limit }))
            }
        };
        self.sweep(FOLLOW).await;
        let count = self.record.orphans;
        if count > 0 && loss.is_none() {
            loss = Some(Loss::Protocol(ProtocolFault::LeftBehind { count }));
        }
        self.record.ending = Some(ending);
        (self.closing().await, loss)
    }

    /// Ends who is left, after they had `follow` to end by themselves. Bounded: what is born faster than it is
    /// ended is left to the next attempt's sweep.
    async fn sweep(&mut self, follow: Duration) {
        let deadline = Instant::now() + follow;
        let mut left = self.family.left();
        while !left.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
            left = self.family.left();
        }
        for _ in 0..50 {
            if left.is_empty() {
                break;
            }
            self.record.orphans += u32::try_from(left.len()).unwrap_or(u32::MAX);
            left.iter().for_each(|pid| family::end(*pid));
            let mut still = self.family.left();
            for _ in 0..100 {
                if !still.iter().any(|pid| left.contains(pid)) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                still = self.family.left();
            }
            left = still;
        }
        self.family.over();
        self.over = true;
    }

    async fn closing(&mut self) -> Attempt {
        for tail in [&mut self.stderr, &mut self.stdout].into_iter().flatten() {
            tail.finish(Duration::from_millis(100)).await;
        }
        self.record.stderr = self.logs();
        self.record.ended = Some(now());
        self.record.peak_memory = Probe::Known(Bytes(self.family.peak));
        self.record.clone()
    }

    /// stderr's last lines, then stdout's, if there were any: stdout is a log and nothing more.
    fn logs(&self) -> String {
        let text = |tail: &Option<Tail>| tail.as_ref().map(Tail::text).unwrap_or_default();
        let (stderr, stdout) = (text(&self.stderr), text(&self.stdout));
        if stdout.is_empty() { stderr } else { format!("{stderr}\n[stdout]\n{stdout}") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.over {
            self.family.signal_group(Signal::KILL);
            self.family.left().into_iter().for_each(family::end);
            self.family.over();
        }
    }
}

fn ending_of(status: Option<ExitStatus>) -> Ending {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Exit(code),
            (None, Some(signal)) => Ending::Signal(signal),
            (None, None) => Ending::Exit(-1),
        },
        None => Ending::Exit(-1),
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> Wide {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wide(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
