//! `run` and `plan`.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use proofhouse_evidence::{Folder, now, utc_stamp};
use proofhouse_runner::attempt::ReaperProgram;
use proofhouse_runner::device::{DeviceChoice, Devices};
use proofhouse_runner::ports::{FolderEvidence, GateJudge};
use proofhouse_runner::{
    Filter, Limits, Outcome, Plan, Reuse, RunError, RunOptions, SET_VARIABLE, Selection,
    SessionFacts, Stop,
};
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::exit::Exit;
use proofhouse_schema::ids::{ProviderId, WriterId};

use super::archive;
#[cfg(feature = "index")]
use super::conclusion::show;
use super::doctor::timer_library;
#[cfg(not(feature = "index"))]
use super::tally::show;
use super::{TOOL, out};
use crate::arguments::{Common, DeviceWord, Output, REAP, RunArguments};
use crate::error::{CliError, hint_of_run};
use crate::project::{Project, binaries, cache, this_program};
use crate::terminal::{
    Paint, Progress, Sink, Table, counted, explain_chain, of_chain, print, tell,
};

/// Says what a run would do, and does nothing.
pub fn plan(project: &Project, common: &Common, asked: &RunArguments) -> Result<Exit, CliError> {
    let options = options(project, asked)?;
    let evidence = FolderEvidence::read(Folder::new(&project.evidence)).map_err(RunError::from)?;
    let plan = proofhouse_runner::plan(&options, &evidence)?;
    match asked.format {
        Output::Json => out(&plan_lines(&plan))?,
        Output::Human => out(&plan_table(&plan, Paint::stdout(common.color)))?,
    }
    Ok(if plan.cells() == 0 { Exit::NothingSelected } else { Exit::Passed })
}

fn plan_lines(plan: &Plan) -> String {
    let mut text = String::new();
    for gate in &plan.gates {
        for cell in &gate.cells {
            let value = serde_json::json!({
                "gate": gate.gate.header.id, "cell": gate.cell(cell).key,
                "candidate": cell.candidate, "required": gate.required(),
                "reused": cell.reused.as_ref().map(|f| f.evidence.to_string()),
            });
            text.push_str(&format!("{value}\n"));
        }
    }
    text
}

fn plan_table(plan: &Plan, paint: Paint) -> String {
    let mut table = Table::new(&["gate", "kind", ">cells", ">to run", ">used again", ">excluded"]);
    for gate in &plan.gates {
        let reused = gate.cells.iter().filter(|cell| cell.reused.is_some()).count();
        table.row(vec![
            gate.gate.header.id.to_string(),
            gate.gate.header.kind.to_string(),
            gate.cells.len().to_string(),
            (gate.cells.len() - reused).to_string(),
            reused.to_string(),
            gate.gate.exclusions.len().to_string(),
        ]);
    }
    let (cells, reused) = (plan.cells(), plan.reused());
    let begun = match plan.begun() {
        0 => String::new(),
        begun => format!("; {begun} go on with replicates that were kept"),
    };
    let total = format!(
        "\n{}: {} to run, {reused} with evidence that is used again{begun}\n",
        counted(cells as u64, "cell"),
        cells - reused
    );
    table.render(|head| paint.faint(head)) + &total
}

/// Runs gates, writes evidence, judges, draws the report.
pub fn run(project: &Project, common: &Common, asked: &RunArguments) -> Result<Exit, CliError> {
    let begun = Instant::now();
    let mut options = options(project, asked)?;
    // The budget is the command's; what was spent before the run begins counts.
    let spent = begun.elapsed();
    options.time_budget = options.time_budget.map(|budget| budget.saturating_sub(spent));
    let profile = options.profile.id.clone();
    let writer = options.facts.writer.clone();
    let mut evidence =
        FolderEvidence::open(Folder::new(&project.evidence), &writer).map_err(RunError::from)?;
    let sink: Box<dyn Sink> = match asked.format {
        Output::Json => Box::new(Progress::json()),
        Output::Human => Box::new(Progress::new(Paint::stderr(common.color))),
    };
    let outcome = drive(options, &mut evidence, sink)?;
    drop(evidence);
    if let Some(problem) = &outcome.problem {
        tell_problem(problem, common, asked);
    }
    if outcome.planned == 0 {
        tell("nothing was selected: `proofhouse list --cells` shows what there is");
        return Ok(outcome.exit.worst(Exit::NothingSelected));
    }
    if !asked.no_report {
        let title = format!("Proofhouse, profile {profile}");
        show(project, common, asked, &outcome, &title)?;
    }
    if let Some(result) = &asked.result {
        let files = archive::pack(&project.evidence, "evidence", result)?;
        tell(&format!(
            "result    {}: {files} files of evidence, for `proofhouse import`",
            result.display()
        ));
    }
    if asked.format == Output::Human {
        let code = outcome.exit.code();
        let meaning = match outcome.exit {
            Exit::Passed if !outcome.decides => "no required gate was selected: nothing is proved",
            Exit::NotRun if outcome.left > 0 => {
                "the time budget is used up and required cells are left"
            }
            exit => exit.meaning(),
        };
        if outcome.left > 0 {
            let next = if outcome.gained || asked.time_budget.is_none() {
                "the same command goes on from there"
            } else {
                "nothing was gained: the time budget holds none of them, so give it more"
            };
            out(&format!(
                "{} of {} cells are left; replicates of {} are kept; {next}\n",
                outcome.left, outcome.planned, outcome.begun
            ))?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        out(&format!("{meaning} (exit {code}), {seconds:.1} s\n"))?;
    }
    Ok(outcome.exit)
}

/// Tells what stopped the run before its end.
fn tell_problem(problem: &RunError, common: &Common, asked: &RunArguments) {
    let (paint, hint) = (Paint::stderr(common.color), hint_of_run(problem));
    if asked.format == Output::Json {
        // A reader that went away misses it; the exit code says it, too.
        let _ = print(&format!("{}\n", of_chain(problem, hint)));
    }
    explain_chain(problem, paint);
    if let Some(hint) = hint {
        tell(&format!("  {} {hint}", paint.faint("hint")));
    }
}

fn drive(
    options: RunOptions,
    evidence: &mut FolderEvidence,
    mut sink: Box<dyn Sink>,
) -> Result<Outcome, CliError> {
    let (events, received) = channel();
    let teller = thread::spawn(move || {
        for event in received {
            sink.event(&event);
        }
    });
    let outcome = proofhouse_runner::run(options, evidence, &GateJudge, &Stop::new(), &events);
    drop(events);
    // The teller only prints: if it panicked, the evidence is written all the same.
    let _ = teller.join();
    Ok(outcome?)
}

/// What a run is asked to do: everything that is read from the environment is read here.
pub fn options(project: &Project, asked: &RunArguments) -> Result<RunOptions, CliError> {
    let declared = project.declared(&asked.profile)?;
    let binaries = binaries()?;
    let cache = cache();
    Ok(RunOptions {
        gates: declared.gates,
        gates_folder: project.gates.clone(),
        profile: declared.profile,
        providers: declared.providers,
        checker: checker()?,
        timer_library: timer_library(&binaries, DeviceKind::Cpu),
        timer_cuda_library: timer_library(&binaries, DeviceKind::Cuda),
        devices: Devices::probe(
            device_choice(asked.device, asked.gpu.is_some()),
            asked.gpu.as_deref(),
        ),
        package_set: env::var_os(SET_VARIABLE).map(PathBuf::from),
        kernel_cache: cache.join("kernels"),
        binaries,
        custody: custody(),
        cache,
        shared_memory: PathBuf::from("/dev/shm"),
        selection: Selection {
            filters: asked.filter.iter().cloned().map(Filter::Text).collect(),
            shard: asked.shard,
        },
        reuse: if asked.fresh { Reuse::Fresh } else { Reuse::ByContent },
        jobs: asked.jobs.map_or_else(cores, usize::from),
        seed: asked.seed,
        limits: Limits::default(),
        facts: facts(project)?,
        environment: environment(),
        offline: asked.offline,
        time_budget: asked.time_budget,
        trace: asked.trace.clone(),
        reaper: Some(ReaperProgram { program: this_program()?, arguments: vec![REAP.to_owned()] }),
        handle_signals: true,
    })
}

/// Which devices the words ask for. A GPU that is named is asked for: where it is not found its gates are not run, and not
/// left out.
fn device_choice(device: DeviceWord, named: bool) -> DeviceChoice {
    match device {
        DeviceWord::Found if named => DeviceChoice::All,
        DeviceWord::Found => DeviceChoice::Found,
        DeviceWord::Cpu => DeviceChoice::Only(DeviceKind::Cpu),
        DeviceWord::Cuda => DeviceChoice::Only(DeviceKind::Cuda),
        DeviceWord::All => DeviceChoice::All,
    }
}

/// The checker's provider id.
///
/// # Errors
/// Never: the id follows its grammar.
pub fn checker() -> Result<ProviderId, CliError> {
    ProviderId::new("oracle").map_err(|error| CliError::Usage(error.to_string()))
}

/// Runs of one machine exclude each other here, whatever project they belong to.
pub fn custody() -> PathBuf {
    env::temp_dir().join("proofhouse-custody")
}

/// Cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Variables that are text; attempts get only the allow-listed ones.
pub fn environment() -> BTreeMap<String, String> {
    env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// What is known of this session before it starts.
pub fn facts(project: &Project) -> Result<SessionFacts, CliError> {
    Ok(SessionFacts {
        writer: writer_id()?,
        tool: TOOL.to_owned(),
        host: proofhouse_provenance::host(),
        source: proofhouse_provenance::source(&project.root),
        command: command(),
    })
}

/// What was typed; of names that are not UTF-8, what can be shown.
fn command() -> Vec<String> {
    let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("proofhouse".to_owned()).chain(words).collect()
}

/// This machine's salted id and the time.
///
/// # Errors
/// Never: the parts follow the grammar.
pub fn writer_id() -> Result<WriterId, CliError> {
    let machine = proofhouse_provenance::machine_id();
    let machine = machine.known().map_or("unknown", |id| &id[..8]);
    WriterId::new(format!("w{machine}-{}", utc_stamp(now())))
        .map_err(|error| CliError::Usage(error.to_string()))
}
