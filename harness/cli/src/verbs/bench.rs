//! `bench`: what the tool itself costs. Each line is measured on this machine, now.

use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use proofhouse_evidence::Folder;
use proofhouse_runner::ports::{FolderEvidence, GateJudge};
use proofhouse_runner::{Filter, Reuse, RunOptions, Stop};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::Record;
use proofhouse_schema::exit::Exit;
use proofhouse_schema::gate::{GateKind, Inputs, ResolvedGate};
use proofhouse_schema::units::Wide;
use proofhouse_store::synthetic::{self, Synthetic};
use proofhouse_store::{Selection, Store, StoreError};

use super::report::heading;
use super::run::options;
use super::{out, quick_arguments};
use crate::arguments::{BenchArguments, Common};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::{Paint, Table, tell};

/// Cells of the planning benchmark.
const PLANNED: usize = 10_000;
/// Samples of the query benchmark.
const SAMPLES: u64 = 10_000_000;

/// A measured line: what it is, what was measured, what it must reach.
#[derive(Debug)]
struct Line {
    name: &'static str,
    measured: String,
    limit: String,
    within: bool,
}

type Benchmark = fn(&Project) -> Result<Vec<Line>, CliError>;

/// The benchmarks by name.
const BENCHMARKS: [(&str, Benchmark); 4] =
    [("start-up", start_up), ("planning", planning), ("index", index), ("query", query)];

/// Runs the benchmarks and prints a table; a limit that is passed is a failure.
pub fn bench(project: &Project, common: &Common, asked: &BenchArguments) -> Result<Exit, CliError> {
    let wanted = |name: &str| asked.filter.as_deref().is_none_or(|text| name.contains(text));
    let mut lines = Vec::new();
    for (name, benchmark) in BENCHMARKS.iter().filter(|(name, _)| wanted(name)) {
        tell(&format!("{name} ..."));
        lines.extend(benchmark(project)?);
    }
    if lines.is_empty() {
        return Ok(Exit::NothingSelected);
    }
    let paint = Paint::stdout(common.color);
    let mut table = Table::new(&["", "what", ">measured", ">must be under"]);
    for line in &lines {
        let (mark, shown) =
            if line.within { ("ok", paint.good("ok")) } else { ("no", paint.bad("no")) };
        table.painted(vec![
            (mark.to_owned(), Some(shown)),
            (line.name.to_owned(), None),
            (line.measured.clone(), None),
            (line.limit.clone(), None),
        ]);
    }
    out(&table.render(|head| paint.faint(head)))?;
    Ok(if lines.iter().all(|line| line.within) { Exit::Passed } else { Exit::Failed })
}

fn timed(name: &'static str, took: Duration, limit: Duration) -> Line {
    Line {
        name,
        measured: format!("{:.1} ms", took.as_secs_f64() * 1e3),
        limit: format!("{:.0} ms", limit.as_secs_f64() * 1e3),
        within: took < limit,
    }
}

fn scratch() -> Result<tempfile::TempDir, CliError> {
    tempfile::tempdir().map_err(|source| CliError::Write { path: std::env::temp_dir(), source })
}

/// From spawn to hello of a Rust worker: the median over fresh processes, each with one small cell.
fn start_up(project: &Project) -> Result<Vec<Line>, CliError> {
    let folder = scratch()?;
    let mut options = options(project, &quick_arguments())?;
    options.reuse = Reuse::Fresh;
    let ours = |gate: &ResolvedGate| gate.header.candidates.iter().any(|id| id.as_str() == "cpu");
    options.gates.retain(|gate| gate.header.kind == GateKind::Correctness && ours(gate));
    options.gates.truncate(1);
    if let Some(gate) = options.gates.first_mut() {
        gate.cells.truncate(1);
    }
    let mut took = Vec::new();
    for round in 0..20 {
        let evidence = Folder::new(folder.path().join(round.to_string()));
        took.extend(hellos(options.clone(), &evidence)?);
    }
    took.sort_by(f64::total_cmp);
    let median = took.get(took.len() / 2).copied().unwrap_or(f64::INFINITY);
    let worst = took.last().copied().unwrap_or(f64::INFINITY);
    let ms = |ns: f64| Duration::from_secs_f64((ns / 1e9).min(1e6));
    let limit = Duration::from_millis(30);
    Ok(vec![
        timed("spawn to hello, Rust worker, median of 20", ms(median), limit),
        timed("spawn to hello, Rust worker, worst of 20", ms(worst), limit),
    ])
}

fn hellos(options: RunOptions, folder: &Folder) -> Result<Vec<f64>, CliError> {
    let writer = options.facts.writer.clone();
    let mut evidence =
        FolderEvidence::open(folder.clone(), &writer).map_err(proofhouse_runner::RunError::from)?;
    let (events, received) = channel();
    proofhouse_runner::run(options, &mut evidence, &GateJudge, &Stop::new(), &events)?;
    drop((events, received));
    let mut found = Vec::new();
    for stored in folder.read_all()? {
        if let Record::Cell(cell) = stored.record {
            let candidate =
                |a: &&proofhouse_schema::evidence::Attempt| a.provider == cell.candidate.id;
            let hello = cell.attempts.iter().filter(candidate).filter_map(|a| a.hello);
            found.extend(hello.map(|nanos| nanos.0));
        }
    }
    Ok(found)
}

/// Planning many cells: the time, and the memory of this process afterwards.
fn planning(project: &Project) -> Result<Vec<Line>, CliError> {
    let folder = scratch()?;
    let mut options = options(project, &quick_arguments())?;
    let gate = options.gates.iter().find(|gate| gate.header.kind == GateKind::Correctness);
    let gate =
        gate.cloned().ok_or_else(|| CliError::Usage("no correctness gate to plan".to_owned()))?;
    options.gates = vec![grown(gate)];
    options.selection.filters = vec![Filter::Text("rows".to_owned())];
    let evidence = FolderEvidence::read(Folder::new(folder.path()))
        .map_err(proofhouse_runner::RunError::from)?;
    let begun = Instant::now();
    let plan = proofhouse_runner::plan(&options, &evidence)?;
    let took = begun.elapsed();
    let cells = plan.cells();
    let memory = resident_mib();
    let mut lines = vec![timed("planning 10,000 cells", took, Duration::from_secs(1))];
    lines.push(Line {
        name: "memory with 10,000 cells planned",
        measured: memory.map_or_else(|| "unknown".to_owned(), |mib| format!("{mib:.0} MiB")),
        limit: "150 MiB".to_owned(),
        within: memory.is_some_and(|mib| mib < 150.0) && cells >= PLANNED,
    });
    Ok(lines)
}

/// A gate with many cells, which differ in their seeds.
fn grown(mut gate: ResolvedGate) -> ResolvedGate {
    gate.header.candidates.truncate(1);
    let model: Vec<_> = gate.cells.iter().filter(|c| c.key.contains("rows")).cloned().collect();
    gate.cells = (0..PLANNED)
        .map(|index| {
            let mut cell = model[index % model.len()].clone();
            cell.key = format!("{} #{index}", cell.key);
            let (Inputs::Seeded { seed, .. } | Inputs::File { seed, .. }) = &mut cell.case.inputs;
            *seed = Wide(index as u64);
            cell
        })
        .collect();
    gate
}

fn resident_mib() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// Ingest, and a report of 1,000 cells.
fn index(_project: &Project) -> Result<Vec<Line>, CliError> {
    let folder = scratch()?;
    let mut store = Store::open(&folder.path().join("index.duckdb"))?;
    let begun = Instant::now();
    store.ingest(&Synthetic { cells: 10_000, samples: 100 })?;
    let ingest = begun.elapsed();
    let records: Vec<Digest> = (0..1000)
        .map(|number| synthetic::verdict(number, 100).map(|verdict| verdict.evidence))
        .collect::<Result<_, _>>()
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let begun = Instant::now();
    let model = store.report(Selection::Records(&records), heading("benchmark"))?;
    let page = proofhouse_report::html(&model, &proofhouse_report::Remarks::default())?;
    let report = begun.elapsed();
    tell(&format!("the page of {} cells has {:.1} MB", model.cells.len(), page.len() as f64 / 1e6));
    Ok(vec![
        timed("ingest of 10,000 records of 100 samples", ingest, Duration::from_secs(10)),
        timed("report of 1,000 timed cells", report, Duration::from_secs(2)),
    ])
}

/// SQL over many samples: the slowest of three questions.
fn query(_project: &Project) -> Result<Vec<Line>, CliError> {
    let folder = scratch()?;
    let mut store = Store::open(&folder.path().join("index.duckdb"))?;
    synthetic::fill_samples(&mut store, SAMPLES)?;
    let questions: BTreeMap<&str, &str> = BTreeMap::from([
        (
            "median",
            "SELECT provider, median(per_call_ns) FROM samples WHERE measured GROUP BY provider",
        ),
        ("count", "SELECT provider, replicate, count(*) FROM samples GROUP BY ALL"),
        (
            "spread",
            "SELECT replicate, block, avg(per_call_ns), stddev(per_call_ns) FROM samples GROUP BY ALL",
        ),
    ]);
    let mut worst = Duration::ZERO;
    for sql in questions.values() {
        let begun = Instant::now();
        let rows = store.query(sql)?;
        worst = worst.max(begun.elapsed());
        if rows.rows.is_empty() {
            let path = folder.path().to_owned();
            return Err(StoreError::NotFound { path }.into());
        }
    }
    let limit = Duration::from_secs(1);
    Ok(vec![timed("SQL over 10 million samples, slowest of 3", worst, limit)])
}
