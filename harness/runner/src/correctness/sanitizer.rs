//! Sanitizer cells: the candidate's process under compute-sanitizer, one tool and one process at a time.

use std::path::{Path, PathBuf};

use proofhouse_schema::evidence::{
    Attempt, Observation, Outcome, Pass, Purpose, SanitizerObservation, SanitizerRun,
};
use proofhouse_schema::gate::CaseSpec;
use proofhouse_schema::probe::Probe;

use super::{BatchRun, Broken, Given, Passes, Way};
use crate::attempt::{Loss, Placement};
use crate::draft::{Place, PosedFacts};
use crate::provider::find_program;
use proofhouse_schema::protocol::Poison;

/// The sanitizer's program.
const PROGRAM: &str = "compute-sanitizer";
/// Where a toolkit puts it when no `PATH` names it.
const TOOLKIT: &str = "/usr/local/cuda/bin/compute-sanitizer";
/// Its tools; a gate passes only if all of them ran.
const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];
/// Lines of a report that are kept.
const KEPT: usize = 8;

impl BatchRun<'_> {
    /// Takes the candidate through one case under every tool.
    pub(super) async fn sanitized(
        &mut self,
        case: &CaseSpec,
        place: Place,
    ) -> Result<(Given, Vec<Attempt>), Broken> {
        let options = &self.context.options;
        let found = find_program(Path::new(PROGRAM), options)
            .or_else(|| Some(PathBuf::from(TOOLKIT)).filter(|path| path.is_file()));
        let Some(program) = found else {
            let reason =
                format!("{PROGRAM} is not installed (it comes with NVIDIA's CUDA toolkit)");
            let observation = Observation::NotRun { reason };
            return Ok((Given { posed: PosedFacts::default(), observation }, Vec::new()));
        };
        let version = version(&program).await;
        let mut seen = SanitizerObservation {
            tools: Vec::new(),
            qualification: self.context.qualification(&case.operator, case.dtype),
        };
        let (mut posed, mut attempts) = (PosedFacts::default(), Vec::new());
        for tool in TOOLS {
            let log = self.desk.parts()?.1.file(&format!("{tool}-{}-{}", place.gate, place.cell));
            let run = self.under(&program, tool, &log, case, place).await;
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            // The folder goes with the run; a file that is left there is no harm.
            let _ = std::fs::remove_file(&log);
            let (facts, attempt, pass) = match run? {
                Ran::Unsupported(reason) => {
                    let observation = Observation::Unsupported { reason };
                    return Ok((Given { posed, observation }, attempts));
                }
                Ran::Pass(facts, attempt, pass) => (facts, attempt, pass),
            };
            posed = facts;
            attempts.push(*attempt);
            seen.tools.push(SanitizerRun {
                tool: tool.to_owned(),
                version: version.clone(),
                errors: errors(&text),
                report: reported(&text),
                pass: *pass,
            });
        }
        Ok((Given { posed, observation: Observation::Sanitizer(seen) }, attempts))
    }

    /// One process under one tool.
    async fn under(
        &mut self,
        program: &Path,
        tool: &str,
        log: &Path,
        case: &CaseSpec,
        place: Place,
    ) -> Result<Ran, Broken> {
        let log = log.to_string_lossy();
        let words = [&*program.to_string_lossy(), "--tool", tool, "--log-file", &*log];
        let wrapper = words.iter().map(ToString::to_string).collect();
        let placement = Placement {
            threads: self.context.options.limits.correctness_threads,
            device: self.batch.device,
            wrapper,
            ..Placement::default()
        };
        let worker = match self.context.start(&self.batch.candidate, &placement).await {
            Ok(worker) => worker,
            Err((loss, _)) => return Err(Broken::Candidate(loss)),
        };
        let mut live = super::Live { worker, witness: None };
        let (checker, scratch) = self.desk.parts()?;
        let mut passes = Passes {
            live: &mut live,
            checker,
            scratch,
            case,
            name: format!("s{}-{}", place.gate, place.cell),
            posed: None,
            poses: Vec::new(),
            bound: Vec::new(),
            expected: Vec::new(),
        };
        let way = Way {
            purpose: Purpose::Sanitized,
            slot: "s",
            poison: Poison::A,
            contents: 0,
            row: None,
            prepare: true,
            checked: false,
        };
        let pass = passes.pass(way, None).await;
        let facts = passes.posed.as_ref().map(PosedFacts::from).unwrap_or_default();
        let forgotten = passes.forget(pass.as_ref().err()).await;
        let pass = match pass.and_then(|pass| forgotten.map(|()| pass)) {
            Ok(pass) => pass,
            Err(Broken::Candidate(loss) | Broken::Capture(loss)) => {
                live.worker.lose(&loss).await;
                return Err(Broken::Candidate(loss));
            }
            Err(broken) => {
                live.worker.end().await;
                return Err(broken);
            }
        };
        // The sanitizer writes its summary when the process ends.
        let (attempt, loss) = live.worker.end().await;
        if let Some(loss) = loss.filter(|loss| *loss == Loss::Interrupted) {
            return Err(Broken::Candidate(loss));
        }
        Ok(match pass.outcome {
            Outcome::Unsupported(reason) => Ran::Unsupported(reason),
            _ => Ran::Pass(facts, Box::new(attempt), Box::new(pass)),
        })
    }
}

enum Ran {
    Unsupported(String),
    Pass(PosedFacts, Box<Attempt>, Box<Pass>),
}

async fn version(program: &Path) -> Probe<String> {
    let said = tokio::process::Command::new(program).arg("--version").output().await;
    Probe::from_result(said.map_err(|error| error.to_string()).and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("Version"));
        line.map(|line| line.trim().to_owned()).ok_or_else(|| "it named no version".to_owned())
    }))
}

/// The count of errors in a tool's summary; none without a summary.
fn errors(log: &str) -> Option<u64> {
    let summary = log.lines().rev().find(|line| line.contains("SUMMARY:"))?;
    let (_, counted) = summary.split_once("SUMMARY:")?;
    let words: Vec<&str> = counted.split_ascii_whitespace().collect();
    // `ERROR SUMMARY: 3 errors`, `RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)`.
    words.first()?.parse().ok()
}

/// The first lines that report something: all but the tool's greeting and its clean summary.
fn reported(log: &str) -> Vec<String> {
    let told = log.lines().map(|line| line.trim_start_matches('=').trim());
    let news = |line: &&str| {
        !line.is_empty() && !line.starts_with("COMPUTE-SANITIZER") && !line.contains("SUMMARY: 0 ")
    };
    told.filter(news).take(KEPT).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_counted_whichever_tool_wrote_it_and_silence_is_no_count() {
        let memcheck = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n";
        assert_eq!((errors(memcheck), reported(memcheck).len()), (Some(0), 0));
        let race = "========= COMPUTE-SANITIZER\n========= Error: Race reported between Write\n\
                    ========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n";
        assert_eq!(errors(race), Some(2));
        assert!(reported(race)[0].starts_with("Error: Race"));
        assert_eq!(errors("========= COMPUTE-SANITIZER\n"), None);
        assert_eq!(errors(""), None);
        assert_eq!(errors("========= ERROR SUMMARY: many errors\n"), None);
    }
}
