//! What a person sees: colors, tables, progress. The only place that prints, with `main`.

mod orderings;
mod problem;
mod progress;
mod summary;
mod table;

use std::io::{self, IsTerminal as _, Write as _};

use proofhouse_schema::verdict::{Speed, Verdict};

use crate::arguments::ColorChoice;

pub use orderings::{cells, gates};
pub use problem::{announce, explain, explain_causes, explain_chain, of_chain};
pub use progress::{Progress, Sink};
pub use summary::summary;
pub use table::Table;

/// `1 cell`, `2 cells`.
pub fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Prints to stdout; a closed pipe and a terminal that hung up end quietly.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe || is_gone(&error) => Ok(()),
        other => other,
    }
}

/// Whether stdout was a terminal that is no more: every write to it fails, and nobody is there to miss what was written.
fn is_gone(error: &io::Error) -> bool {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileTypeExt as _;
    const EIO: i32 = 5;
    let meta =
        || std::fs::File::from(io::stdout().as_fd().try_clone_to_owned().ok()?).metadata().ok();
    error.raw_os_error() == Some(EIO) && meta().is_some_and(|m| m.file_type().is_char_device())
}

/// Warns of evidence that is not whole: a line for each way.
pub fn warn_of_gaps(gaps: &[String], paint: Paint) {
    for gap in gaps {
        let word = paint.open("warning");
        tell(&format!("{word} the evidence is not whole: {gap}; run `proofhouse verify`"));
    }
}

/// Prints a line to stderr; there is nowhere to tell that stderr is closed.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Colors, or none.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// Whether stdout gets color.
    pub fn stdout(choice: ColorChoice) -> Self {
        Self::decide(choice, io::stdout().is_terminal())
    }

    /// Whether stderr gets color.
    pub fn stderr(choice: ColorChoice) -> Self {
        Self::decide(choice, io::stderr().is_terminal())
    }

    fn decide(choice: ColorChoice, terminal: bool) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let on = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => terminal && !unwanted,
        };
        Self { on }
    }

    /// Whether there is color.
    pub fn on(self) -> bool {
        self.on
    }

    fn code(self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Bold.
    pub fn bold(self, text: &str) -> String {
        self.code("1", text)
    }

    /// Of less weight.
    pub fn faint(self, text: &str) -> String {
        self.code("2", text)
    }

    /// Good.
    pub fn good(self, text: &str) -> String {
        self.code("32", text)
    }

    /// Bad.
    pub fn bad(self, text: &str) -> String {
        self.code("31;1", text)
    }

    /// Open.
    pub fn open(self, text: &str) -> String {
        self.code("33", text)
    }

    /// A text in a verdict's color.
    pub fn verdict(self, verdict: Verdict, text: &str) -> String {
        match verdict {
            Verdict::Pass => self.good(text),
            Verdict::Fail | Verdict::Errored => self.bad(text),
            Verdict::Inconclusive | Verdict::Invalid | Verdict::Unqualified => self.open(text),
            Verdict::Unsupported | Verdict::NotRun => self.faint(text),
        }
    }

    /// A text in a speed verdict's color.
    pub fn speed(self, speed: Speed, text: &str) -> String {
        match speed {
            Speed::Win | Speed::Lead => self.good(text),
            Speed::Loss | Speed::Trail => self.bad(text),
            Speed::Parity | Speed::Even => text.to_owned(),
            Speed::Inconclusive => self.open(text),
        }
    }
}
