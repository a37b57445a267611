//! The last words of processes that ended badly, fit to be printed anywhere.

use proofhouse_schema::evidence::{Attempt, Ending};
use proofhouse_schema::verdict::Verdict;

/// Processes of one cell whose last words are shown.
const PROCESSES: usize = 3;
/// Lines of one process.
const LINES: usize = 8;
/// Characters of one line.
const WIDTH: usize = 200;
/// What parts standard error from standard output in an attempt's log.
const STDOUT: &str = "\n[stdout]\n";

/// The end of a process's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTail {
    /// Whose process, and of which replicate.
    pub who: String,
    /// The last lines, without control characters, cut to a bound.
    pub lines: Vec<String>,
}

impl LogTail {
    /// The last words of the processes that can explain a verdict: those that ended badly, and for an errored cell also
    /// those that went on after it. A process that said nothing has no words; equal ones are shown once.
    #[must_use]
    pub fn of(verdict: Verdict, attempts: &[Attempt]) -> Vec<LogTail> {
        let telling = |attempt: &&Attempt| match &attempt.ending {
            Some(Ending::Exit(0) | Ending::Interrupted) => false,
            Some(_) => true,
            None => verdict == Verdict::Errored,
        };
        let mut tails: Vec<LogTail> = Vec::new();
        for attempt in attempts.iter().filter(telling) {
            let lines = last_lines(&attempt.stderr);
            if !lines.is_empty() && !tails.iter().any(|tail| tail.lines == lines) {
                let who = format!("{}, replicate {}", attempt.provider, attempt.replicate);
                tails.push(LogTail { who, lines });
            }
        }
        tails.truncate(PROCESSES);
        tails
    }
}

/// The last lines of standard error; of standard output where there is no other.
fn last_lines(log: &str) -> Vec<String> {
    let (stderr, stdout) = log.split_once(STDOUT).unwrap_or((log, ""));
    let log = if stderr.trim().is_empty() { stdout } else { stderr };
    // A progress bar writes its line again and again; its last state is what was seen.
    let shown = |line: &str| plain(line.trim_end().rsplit('\r').next().unwrap_or_default());
    let lines: Vec<String> =
        log.lines().map(shown).filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| cut(line)).collect()
}

fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    line.chars().take(WIDTH).chain("...".chars()).collect()
}

/// A text without anything that could move a cursor, color a terminal or turn the direction of reading: escape sequences
/// are left out, tabs become spaces, every other control character a mark.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' if rest.peek() == Some(&'[') => {
                // A sequence ends with its first letter or sign from @ to ~; the bracket itself is one.
                rest.next();
                while rest.next_if(|c| !('@'..='~').contains(c) && !c.is_control()).is_some() {}
                rest.next_if(|c| ('@'..='~').contains(c));
            }
            '\t' | '\n' => out.push(' '),
            c if c.is_control() || turns_the_line(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Marks that change the direction of what comes after them, or part lines.
fn turns_the_line(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_schema::probe::Probe;
    use proofhouse_schema::units::Wide;
    use std::collections::BTreeMap;

    fn attempt(ending: Option<Ending>, stderr: &str) -> Attempt {
        Attempt {
            provider: "fake".parse().unwrap(),
            replicate: 2,
            argv: vec![],
            environment: BTreeMap::new(),
            started: Wide(0),
            ended: None,
            hello: None,
            ending,
            stderr: stderr.to_owned(),
            peak_memory: Probe::Unavailable("a test".to_owned()),
            orphans: 0,
        }
    }

    fn lines(stderr: &str) -> Vec<String> {
        let tails = LogTail::of(Verdict::Errored, &[attempt(Some(Ending::Signal(11)), stderr)]);
        tails.into_iter().next().map(|tail| tail.lines).unwrap_or_default()
    }

    #[test]
    fn a_process_that_ended_badly_has_its_last_words() {
        let crashed = attempt(Some(Ending::Signal(11)), "one\n\ntwo\n");
        let tails = LogTail::of(Verdict::Inconclusive, std::slice::from_ref(&crashed));
        let expected = LogTail {
            who: "fake, replicate 2".to_owned(),
            lines: vec!["one".to_owned(), "two".to_owned()],
        };
        assert_eq!(tails, [expected]);
        assert_eq!(LogTail::of(Verdict::Errored, &[crashed.clone(), crashed]).len(), 1);
    }

    #[test]
    fn a_good_or_an_interrupted_end_is_not_told_and_one_that_goes_on_only_of_an_errored_cell() {
        for ending in [Some(Ending::Exit(0)), Some(Ending::Interrupted)] {
            assert!(LogTail::of(Verdict::Errored, &[attempt(ending, "words")]).is_empty());
        }
        let on = [attempt(None, "words")];
        assert!(LogTail::of(Verdict::Invalid, &on).is_empty());
        assert_eq!(LogTail::of(Verdict::Errored, &on).len(), 1);
        assert!(LogTail::of(Verdict::Errored, &[attempt(Some(Ending::Exit(3)), " \n")]).is_empty());
    }

    #[test]
    fn a_long_log_is_cut_to_its_end() {
        let many: String = (0..1000).map(|i| format!("line {i}\n")).collect();
        let kept = lines(&many);
        assert_eq!((kept.len(), kept.last().map(String::as_str)), (LINES, Some("line 999")));
        let wide = lines(&"x".repeat(100_000));
        assert_eq!(wide[0].chars().count(), WIDTH + 3);
    }

    #[test]
    fn standard_output_is_shown_only_where_there_is_no_other() {
        assert_eq!(lines("\n[stdout]\nhello"), ["hello"]);
        assert_eq!(lines("bad\n[stdout]\nhello"), ["bad"]);
    }

    #[test]
    fn nothing_reaches_a_terminal_that_could_steer_it() {
        assert_eq!(plain("\u{1b}[31;1mred\u{1b}[0m\tx"), "red x");
        assert_eq!(plain("\u{1b}]0;title\u{7}"), "\u{fffd}]0;title\u{fffd}");
        assert_eq!(plain("a\u{202e}b\u{9b}2Jc\u{0}"), "a\u{fffd}b\u{fffd}2Jc\u{fffd}");
        assert_eq!(plain("\u{1b}[12"), "");
        assert_eq!(plain("größer µs ✓"), "größer µs ✓");
        assert_eq!(lines("10%\r50%\r100% done"), ["100% done"]);
    }
}
