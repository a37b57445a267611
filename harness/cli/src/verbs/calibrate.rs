//! `calibrate`: how often the right thing is called on this machine.

use std::sync::mpsc::channel;
use std::thread;

use proofhouse_evidence::{Folder, Writer, now};
use proofhouse_gate::judge::JUDGE;
use proofhouse_runner::ports::GateJudge;
use proofhouse_runner::{CalibrationFindings, CalibrationOptions, Stop};
use proofhouse_schema::SCHEMA;
use proofhouse_schema::evidence::{CalibrationRate, CalibrationRecord, Record};
use proofhouse_schema::exit::Exit;
use proofhouse_schema::ids::ProviderId;

use super::run::options;
use super::{TOOL, out, quick_arguments};
use crate::arguments::{CalibrateArguments, Common, RunArguments};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::{Paint, Progress, Sink as _, Table};

/// False calls of equal twins must stay at or under this rate, and so must the interval's upper end.
const MOST_FALSE: f64 = 0.01;
/// A planted slowdown must be called at least this often, by the interval's lower end.
const LEAST_SEEN: f64 = 0.95;

/// Compares the CPU provider with its twins.
pub fn calibrate(
    project: &Project,
    common: &Common,
    asked: &CalibrateArguments,
) -> Result<Exit, CliError> {
    let begun = now();
    if !(asked.planted > 0.0 && asked.planted <= 1.0) {
        return Err(CliError::Usage(format!("--planted {}: above 0, at most 1", asked.planted)));
    }
    let run = RunArguments { profile: asked.profile.clone(), ..quick_arguments() };
    let options = CalibrationOptions {
        run: options(project, &run)?,
        provider: ProviderId::new("cpu").map_err(|error| CliError::Usage(error.to_string()))?,
        comparisons: usize::from(asked.comparisons),
        planted: asked.planted,
    };
    let (events, received) = channel();
    let mut progress = Progress::new(Paint::stderr(common.color));
    let teller = thread::spawn(move || {
        for event in received {
            progress.event(&event);
        }
    });
    let found = proofhouse_runner::calibrate(&options, &GateJudge, &Stop::new(), &events);
    drop(events);
    // The teller only prints.
    let _ = teller.join();
    let found = found?;
    let paint = Paint::stdout(common.color);
    out(&table(&found, paint))?;
    let Some((session, provider)) = &found.whole else {
        let (made, asked) = (found.lines.len(), found.asked);
        out(&format!(
            "interrupted after {made} of {asked} comparisons; no record is kept, since a calibration counts only whole\n"
        ))?;
        return Ok(Exit::Interrupted);
    };
    if !asked.no_record {
        let facts = &options.run.facts;
        let mut writer = Writer::open(Folder::new(&project.evidence), &facts.writer)?;
        let record = CalibrationRecord {
            schema: SCHEMA.to_owned(),
            tool: TOOL.to_owned(),
            judge: JUDGE.to_owned(),
            started: begun,
            source: facts.source.clone(),
            session: Box::new(session.clone()),
            provider: provider.clone(),
            comparisons: found.lines.clone(),
            rates: found.rates.clone(),
        };
        let (_, file) = writer.put(&Record::Calibration(Box::new(record)), begun)?;
        out(&format!("recorded in {}/{file}\n", project.shown(&project.evidence)))?;
    }
    Ok(if found.rates.iter().all(right) { Exit::Passed } else { Exit::Failed })
}

fn right(rate: &CalibrationRate) -> bool {
    if rate.planted == 0.0 { rate.high <= MOST_FALSE } else { rate.low >= LEAST_SEEN }
}

fn table(found: &CalibrationFindings, paint: Paint) -> String {
    let mut table = Table::new(&[
        "",
        ">planted",
        ">comparisons",
        ">win",
        ">parity",
        ">loss",
        ">undecided",
        ">rate",
        "95 % interval",
        "must be",
        ">half-width",
    ]);
    for rate in &found.rates {
        let (mark, shown) =
            if right(rate) { ("ok", paint.good("ok")) } else { ("no", paint.bad("no")) };
        let must = if rate.planted == 0.0 {
            format!("at most {:.0} %", 100.0 * MOST_FALSE)
        } else {
            format!("at least {:.0} %", 100.0 * LEAST_SEEN)
        };
        let width =
            rate.median_half_width.map_or("-".to_owned(), |w| format!("{:.2} %", 100.0 * w.0));
        let plain = |text: String| (text, None);
        table.painted(vec![
            (mark.to_owned(), Some(shown)),
            plain(format!("{:.0} %", 100.0 * rate.planted)),
            plain(rate.comparisons.to_string()),
            plain(rate.wins.to_string()),
            plain(rate.parities.to_string()),
            plain(rate.losses.to_string()),
            plain(rate.undecided.to_string()),
            plain(format!("{:.2} %", 100.0 * rate.rate)),
            plain(format!("{:.2} to {:.2} %", 100.0 * rate.low, 100.0 * rate.high)),
            plain(must),
            plain(width),
        ]);
    }
    table.render(|head| paint.faint(head))
}
