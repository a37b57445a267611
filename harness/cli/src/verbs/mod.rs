//! One file per verb.

mod archive;
#[cfg(feature = "index")]
mod bench;
mod bundle;
mod calibrate;
mod compare;
#[cfg(feature = "index")]
mod conclusion;
mod doctor;
mod gaps;
mod import;
#[cfg(feature = "index")]
mod index;
mod list;
mod orderings;
#[cfg(feature = "index")]
mod query;
mod render;
#[cfg(feature = "index")]
mod report;
mod run;
mod schema;
mod selftest;
#[cfg(not(feature = "index"))]
mod tally;
mod text;
mod verify;

use clap::Parser as _;
use proofhouse_schema::exit::Exit;

use crate::arguments::{Arguments, RunArguments, Verb};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::print;

/// The tool's name and version, as records hold it.
pub const TOOL: &str = concat!("proofhouse ", env!("CARGO_PKG_VERSION"));

/// What `run` takes when nothing is said.
fn quick_arguments() -> RunArguments {
    let Ok(Arguments { verb: Verb::Run(run), .. }) =
        Arguments::try_parse_from(["proofhouse", "run"])
    else {
        unreachable!("`proofhouse run` is well formed");
    };
    run
}

/// Prints to stdout.
fn out(text: &str) -> Result<(), CliError> {
    print(text).map_err(|source| CliError::Write { path: "standard output".into(), source })
}

/// Does what was asked.
///
/// # Errors
/// [`CliError`]; its exit code is [`CliError::exit`].
pub fn dispatch(arguments: Arguments) -> Result<Exit, CliError> {
    let Arguments { common, verb } = arguments;
    let project = || Project::find(&common);
    match verb {
        Verb::Doctor => doctor::doctor(&common),
        Verb::List(list) => list::list(&project()?, &common, &list),
        Verb::Plan(run) => run::plan(&project()?, &common, &run),
        Verb::Run(run) if run.dry_run => run::plan(&project()?, &common, &run),
        Verb::Run(run) => run::run(&project()?, &common, &run),
        Verb::Bundle(asked) => bundle::bundle(&project()?, &asked),
        Verb::Import(import) => import::import(&project()?, &import),
        Verb::Verify => verify::verify(&project()?, &common),
        #[cfg(feature = "index")]
        Verb::Query(query) => query::query(&project()?, &common, &query),
        #[cfg(feature = "index")]
        Verb::Report(report) => report::report(&project()?, &common, &report),
        Verb::Compare(asked) => compare::compare(&project()?, &common, &asked),
        Verb::Render(asked) => render::render(&project()?, &common, &asked),
        Verb::Selftest(selftest) => selftest::selftest(&project()?, &common, &selftest),
        Verb::Calibrate(asked) => calibrate::calibrate(&project()?, &common, &asked),
        Verb::Schema(schema) => schema::schema(&project()?, &schema),
        #[cfg(feature = "index")]
        Verb::Bench(bench) => bench::bench(&project()?, &common, &bench),
        #[cfg(not(feature = "index"))]
        Verb::Query(_) | Verb::Report(_) | Verb::Bench(_) => Err(CliError::Usage(
            "this command was built without the index (it comes from a bundle): bring its evidence home with \
             `proofhouse import`, and ask there"
                .to_owned(),
        )),
        Verb::Completions { shell } => text::completions(shell),
        Verb::Man => text::man(),
        Verb::Reap => {
            proofhouse_runner::attempt::reap(std::io::stdin().lock());
            Ok(Exit::Passed)
        }
    }
}
