//! What people type. Nothing is resolved here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use proofhouse_runner::Shard;
use proofhouse_schema::ids::ProfileId;

const AFTER: &str = "\
Examples:
  proofhouse run                          the default suite: every gate, profile quick
  proofhouse run --filter 'rms_norm BF16' one operator in one dtype
  proofhouse run --profile full --shard 1/4
  proofhouse query \"SELECT gate, verdict, count(*) FROM verdicts GROUP BY ALL\"
  proofhouse verify                       re-hash every record and judge it again

Exit codes (of several, the first in this list):
  110 write error   96 set-up or bad declaration   102 worker protocol   100 failed
  103 invalid   105 errored   106 unqualified   101 inconclusive   104 required gate not run
  4 nothing selected   130 interrupted   2 usage   0 all required gates passed";

/// The verb of a run's reaper.
pub const REAP: &str = "reap";

/// Proves GPU kernels: runs declared gates over kernels and named providers, keeps evidence, judges fail-closed.
#[derive(Debug, Parser)]
#[command(name = "proofhouse", version, after_help = AFTER, max_term_width = 110)]
pub struct Arguments {
    /// Where things are and how they are shown.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Options of every verb.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// The project: a folder with gates/ and baselines/ [default: the nearest one above the current folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// The gates folder [default: ROOT/gates]
    #[arg(long, global = true, value_name = "DIR")]
    pub gates: Option<PathBuf>,
    /// A further provider: a folder with a provider.toml (may be given more than once)
    #[arg(long = "provider", global = true, value_name = "DIR")]
    pub providers: Vec<PathBuf>,
    /// The evidence folder [default: ROOT/evidence]
    #[arg(long, global = true, value_name = "DIR")]
    pub evidence: Option<PathBuf>,
    /// The reports folder [default: ROOT/reports]
    #[arg(long, global = true, value_name = "DIR")]
    pub reports: Option<PathBuf>,
    /// When to use color
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub color: ColorChoice,
}

/// When to use color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Say what is here, what is missing, and what to do about it
    Doctor,
    /// List gates and their cells
    List(ListArguments),
    /// Say what a run would do, and what it would use again (the same as run --dry-run)
    Plan(RunArguments),
    /// Run gates, write evidence, judge, and draw the report
    Run(RunArguments),
    /// Pack binaries, gates and providers for a host without Rust, network or DuckDB
    Bundle(BundleArguments),
    /// Merge another evidence folder, or the result file of a run elsewhere, into this one, after verifying it
    Import(ImportArguments),
    /// Re-hash every record, follow the logs, and judge the stored evidence again
    Verify,
    /// Answer SQL from the evidence
    Query(QueryArguments),
    /// Draw a report from the evidence: HTML, Markdown and JUnit
    Report(ReportArguments),
    /// Rank all providers of every timed cell, and over each gate, from the stored samples
    Compare(CompareArguments),
    /// Fill the tables of Markdown files from the evidence, or check that they are what it says
    Render(RenderArguments),
    /// Plant faults and exploits, and show that every checker finds them
    Selftest(SelftestArguments),
    /// Compare a provider with twins of itself, and tell how often the right thing is called
    Calibrate(CalibrateArguments),
    /// Write or check the JSON Schemas and the catalog that are committed
    Schema(SchemaArguments),
    /// Measure the tool itself: planning, start-up, ingest, query, report
    Bench(BenchArguments),
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the man page
    Man,
    /// End what a run's workers started, once the run is gone; runs start it themselves
    #[command(name = REAP, hide = true)]
    Reap,
}

impl Verb {
    /// Whether a program reads what is printed: then errors are printed for it, too.
    pub fn for_a_program(&self) -> bool {
        match self {
            Verb::List(asked) => asked.format == Output::Json,
            Verb::Plan(asked) | Verb::Run(asked) => asked.format == Output::Json,
            Verb::Compare(asked) => asked.format == Output::Json,
            _ => false,
        }
    }
}

/// How a verb prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// What `list` takes.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// Show every cell too
    #[arg(long)]
    pub cells: bool,
    /// The profile
    #[arg(long, default_value = "quick")]
    pub profile: ProfileId,
    /// For people, or JSON lines
    #[arg(long, value_enum, default_value_t = Output::Human)]
    pub format: Output,
}

/// Devices whose gates belong to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceWord {
    /// The host's processor and what is found beside it.
    Found,
    /// The host's processor alone.
    Cpu,
    /// An NVIDIA GPU alone.
    Cuda,
    /// Every kind.
    All,
}

/// What `run` and `plan` take.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  proofhouse run --filter rms_norm --filter rows=8
  proofhouse run --provider ../my-kernels/provider --filter my-kernels
  proofhouse run --profile claim --time-budget 9m    stops in time; the same command goes on
  proofhouse run --device cuda --filter baseline     only gates on the GPU, which must be here
  proofhouse run --format json | jq 'select(.event==\"cell_finished\") | .verdict'")]
pub struct RunArguments {
    /// How much is measured: quick (exploratory), full (qualified) or claim
    #[arg(long, default_value = "quick")]
    pub profile: ProfileId,
    /// Take cells of which all these texts begin a word of `GATE CELL PROVIDER` (or are it, with = or .)
    #[arg(long, value_name = "WORDS")]
    pub filter: Vec<String>,
    /// Take part I of N
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Devices whose gates belong to the run: what is found here, one kind, or all (one that is missing is then not run)
    #[arg(long, value_enum, default_value_t = DeviceWord::Found)]
    pub device: DeviceWord,
    /// The GPU, by UUID, where there are several
    #[arg(long, value_name = "UUID")]
    pub gpu: Option<String>,
    /// Correctness cells at a time; timing always runs alone [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Use evidence again where nothing has changed, by content digest (this is the default)
    #[arg(long, conflicts_with = "fresh")]
    pub resume: bool,
    /// Measure everything again
    #[arg(long)]
    pub fresh: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Begin nothing that would pass this time, e.g. 90s, 9m, 1h; the same command goes on, replicate by replicate
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub time_budget: Option<std::time::Duration>,
    /// Pack the evidence into one file at the end, for `import` on another machine
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// Ask no package registry; providers whose environment is not there yet are not run
    #[arg(long)]
    pub offline: bool,
    /// Draw no report at the end
    #[arg(long)]
    pub no_report: bool,
    /// Write every request and its time as trace events, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// The seed that orders and samples are drawn from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// For people, or a stream of events as JSON lines
    #[arg(long, value_enum, default_value_t = Output::Human)]
    pub format: Output,
}

/// What `bundle` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo house bundle proofhouse.tar.gz
  on the host:  tar xzf proofhouse.tar.gz && cd proofhouse
                bin/proofhouse run --device cuda --time-budget 9m --result ../result.tar.gz
  at home:      cargo house import result.tar.gz")]
pub struct BundleArguments {
    /// The file to write
    #[arg(default_value = "proofhouse.tar.gz")]
    pub output: PathBuf,
    /// The command without the index that goes into the bundle [default: what `cargo house bundle` built]
    #[arg(long, value_name = "FILE")]
    pub command: Option<PathBuf>,
}

/// What `import` takes.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The evidence folder to merge, or a file that `run --result` wrote
    pub from: PathBuf,
}

/// What `query` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Tables: evidence, attempts, samples, verdicts, comparisons, sessions, claims (DESCRIBE evidence shows columns)

Examples:
  proofhouse query \"SELECT gate, verdict, count(*) FROM verdicts GROUP BY ALL ORDER BY ALL\"
  proofhouse query --format parquet --output samples.parquet \"SELECT * FROM samples\"")]
pub struct QueryArguments {
    /// One statement that reads
    pub sql: String,
    /// How rows are written
    #[arg(long, value_enum, default_value_t = RowFormat::Table)]
    pub format: RowFormat,
    /// Write to a file (needed for parquet)
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// Aligned columns.
    Table,
    /// Comma-separated values with a header.
    Csv,
    /// A JSON array of one object a row.
    Json,
    /// Apache Parquet, into a file.
    Parquet,
}

/// What `report` takes.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The title
    #[arg(long, default_value = "Proofhouse")]
    pub title: String,
    /// The files' name, without its ending [default: REPORTS/report]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What `compare` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  proofhouse compare                                     every timed cell, then every gate as a whole
  proofhouse compare --filter 'rms_norm.baseline rows=8'
  proofhouse compare --plots out                         time against size, and who stands where, as SVG
  proofhouse compare --format json | jq 'select(.line==\"crossover\")'")]
pub struct CompareArguments {
    /// Take cells of which all these texts begin a word of `GATE CELL PROVIDER` (or are it, with = or .)
    #[arg(long, value_name = "WORDS")]
    pub filter: Vec<String>,
    /// Write SVG plots of each gate into this folder
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// For people, or JSON lines
    #[arg(long, value_enum, default_value_t = Output::Human)]
    pub format: Output,
}

/// What `render` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
A table stands between two lines, each alone on its line:
  <!-- proofhouse:table gate=rms_norm.baseline -->
  <!-- /proofhouse -->
Tables:
  table gate=ID      each cell of a gate
                     columns: shape, dtype, inputs, time, other, ratio, says, verdict, evidence, noise, providers
  summary            a row for each gate; narrowed by device=cpu|cuda, place=WORD_OF_ITS_NAME, gates=ID,ID
                     columns: operator, contract, gate, cells, ratio, worst, verdicts
Either takes columns=NAME,NAME in the order wanted.

Examples:
  proofhouse render README.md docs/results.md
  proofhouse render --check README.md docs/results.md    ends with 100 and shows the difference")]
pub struct RenderArguments {
    /// The Markdown files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write nothing; a file that is not what the evidence says is a failure
    #[arg(long)]
    pub check: bool,
}

/// Where faults are planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SelftestDevice {
    /// The host's processor.
    Cpu,
    /// An NVIDIA GPU, which must be here.
    Cuda,
}

/// Kinds of gates in which faults are planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SelftestKind {
    /// Outputs against the oracle.
    Correctness,
    /// Calls in a device graph.
    Graph,
    /// Times.
    Baseline,
}

/// What `selftest` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  proofhouse selftest --filter memo
  proofhouse selftest --device cuda                      on a host with a GPU and PyTorch
  proofhouse selftest --device cuda --kind baseline      a part, which is recorded, too")]
pub struct SelftestArguments {
    /// Where faults are planted
    #[arg(long, value_enum, default_value_t = SelftestDevice::Cpu)]
    pub device: SelftestDevice,
    /// The GPU, by UUID, where there are several
    #[arg(long, value_name = "UUID")]
    pub gpu: Option<String>,
    /// Only exploits that gates of one kind must see
    #[arg(long, value_enum)]
    pub kind: Option<SelftestKind>,
    /// Only exploits whose name holds this; then no record is written
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Pack the evidence into one file at the end, for `import` on another machine
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// Write no record of it
    #[arg(long)]
    pub no_record: bool,
}

/// Whose provider is calibrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CalibrateDevice {
    /// The host's processor's: `cpu`.
    Cpu,
    /// The GPU's: `cuda`.
    Cuda,
}

/// What `calibrate` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  proofhouse calibrate                                       the cpu provider, 400 comparisons of each kind
  proofhouse calibrate --device cuda --filter rows=8192 --planted 0.02
  proofhouse calibrate --device cuda --planted 0             equal twins alone")]
pub struct CalibrateArguments {
    /// Comparisons of each kind, at least
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub comparisons: u16,
    /// How much slower one twin is made, as a fraction; 0: compare with the equal twin alone
    #[arg(long, default_value_t = 0.05, value_name = "FRACTION", allow_negative_numbers = true)]
    pub planted: f64,
    /// Whose provider: the host's processor's, or the GPU's
    #[arg(long, value_enum, default_value_t = CalibrateDevice::Cpu)]
    pub device: CalibrateDevice,
    /// The GPU, by UUID, where there are several
    #[arg(long, value_name = "UUID")]
    pub gpu: Option<String>,
    /// Take cells of which all these texts begin a word of `GATE.calibration CELL`
    #[arg(long, value_name = "WORDS")]
    pub filter: Vec<String>,
    /// Pack the evidence into one file at the end, for `import` on another machine
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// Write every request and its time as trace events, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// How much is measured [default: calibration, on a GPU calibration-cuda]
    #[arg(long)]
    pub profile: Option<ProfileId>,
    /// Write no record of it
    #[arg(long)]
    pub no_record: bool,
}

/// What `schema` takes.
#[derive(Debug, Args)]
pub struct SchemaArguments {
    /// Write the files (else they are compared, and a difference is a failure)
    #[arg(long)]
    pub write: bool,
}

/// What `bench` takes.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Only benchmarks whose name holds this
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
}

/// `90s`, `9m`, `1h`.
fn time(text: &str) -> Result<std::time::Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor = match unit {
        "s" | "" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("unit {unit:?}: s, m and h are accepted")),
    };
    let number: u64 = digits.parse().map_err(|_| "expected a number and s, m or h".to_owned())?;
    match number.checked_mul(factor) {
        Some(seconds) if seconds > 0 => Ok(std::time::Duration::from_secs(seconds)),
        _ => Err("expected more than no time, and less than eternity".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("9m").unwrap().as_secs(), 540);
        assert_eq!(time("90").unwrap().as_secs(), 90);
        for bad in ["", "0", "m", "9d", "-1s", "99999999999999999999s"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_help_tells_every_exit_code() {
        for exit in proofhouse_schema::exit::Exit::ALL {
            let code = exit.code().to_string();
            assert!(AFTER.split_whitespace().any(|word| word == code), "{code}");
        }
    }
}
