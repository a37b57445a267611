//! What a run comes to: its exit code, and what must be said in words.

use proofhouse_gate::judge::total;
use proofhouse_schema::exit::Exit;
use proofhouse_schema::verdict::VerdictBody;

use crate::interrupt::Cause;

/// A run at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended<'a> {
    /// Every verdict.
    pub(crate) verdicts: &'a [VerdictBody],
    /// Cells that were planned, and those of them that decide.
    pub(crate) planned: usize,
    pub(crate) required: usize,
    /// Cells without a verdict of which replicates are kept.
    pub(crate) begun: usize,
    /// Why it was stopped, if it was.
    pub(crate) cause: Option<Cause>,
    /// Whether work was refused for want of time.
    pub(crate) spent: bool,
}

impl Ended<'_> {
    /// Planned cells without a verdict.
    pub(crate) fn left(&self) -> usize {
        self.planned - self.verdicts.len()
    }

    /// Required cells without a verdict.
    fn required_left(&self) -> usize {
        self.required - self.decided()
    }

    fn decided(&self) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.required).count()
    }

    /// Whether a cell with a verdict decides.
    pub(crate) fn decides(&self) -> bool {
        self.decided() > 0
    }

    /// Whether its time ended it. Who asked for an end has the word over the clock.
    fn cut_short(&self) -> bool {
        let over = self.cause == Some(Cause::TimeBudget) || (self.cause.is_none() && self.spent);
        self.left() > 0 && over
    }

    /// The exit code; `adjusted` is what gates ask for that require something of many cells together.
    pub(crate) fn exit(&self, adjusted: Exit) -> Exit {
        // Cells that do not decide ask for no exit code, whatever they came to.
        let so_far = if self.decides() { total(self.verdicts).exit } else { Exit::Passed };
        match self.left() {
            0 if self.planned == 0 => Exit::NothingSelected,
            0 => so_far.worst(adjusted),
            // What decides may not have had its turn; and nothing at all is never green.
            _ if !self.cut_short() => so_far.worst(Exit::Interrupted),
            _ if self.required_left() > 0 || self.verdicts.is_empty() => so_far.worst(Exit::NotRun),
            _ => so_far,
        }
    }

    /// What the exit code does not say.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.cut_short() {
            remarks.push(format!(
                "the time budget is used up: {} of {} cells are left, {} of them required; replicates of {} are kept; \
                 the same command goes on from there",
                self.left(),
                self.planned,
                self.required_left(),
                self.begun
            ));
        }
        if !self.verdicts.is_empty() && !self.decides() {
            let none = "no required cell is among them: nothing that decides was run, and nothing is proved";
            remarks.push(none.to_owned());
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_schema::canonical::Digest;
    use proofhouse_schema::evidence::Grade;
    use proofhouse_schema::verdict::Verdict;

    fn body(verdict: Verdict, required: bool) -> VerdictBody {
        VerdictBody {
            schema: proofhouse_schema::SCHEMA.to_owned(),
            evidence: Digest::of(b"evidence"),
            gate: "rms_norm.correctness".parse().unwrap(),
            cell: "rows=1".to_owned(),
            provider: "cpu".parse().unwrap(),
            judge: "a judge".to_owned(),
            verdict,
            reasons: vec![],
            comparisons: vec![],
            grade: Grade::Exploratory,
            required,
        }
    }

    fn ended(verdicts: &[VerdictBody], planned: usize, required: usize) -> Ended<'_> {
        Ended { verdicts, planned, required, begun: 0, cause: None, spent: false }
    }

    #[test]
    fn cells_that_do_not_decide_ask_for_no_exit_code_and_prove_nothing() {
        for verdict in [Verdict::Pass, Verdict::Fail] {
            let verdicts = [body(verdict, false)];
            let ended = ended(&verdicts, 1, 0);
            assert_eq!(ended.exit(Exit::Passed), Exit::Passed);
            assert!(ended.remarks()[0].contains("nothing is proved"));
        }
        assert_eq!(ended(&[], 0, 0).exit(Exit::Passed), Exit::NothingSelected);
        let decided = [body(Verdict::Pass, true), body(Verdict::Fail, false)];
        assert_eq!(ended(&decided, 2, 1).exit(Exit::Passed), Exit::Passed);
        assert!(ended(&decided, 2, 1).remarks().is_empty());
        assert_eq!(ended(&decided, 2, 1).exit(Exit::Inconclusive), Exit::Inconclusive);
    }

    #[test]
    fn a_budget_that_leaves_required_cells_is_not_run_and_tells_how_many() {
        let verdicts = [body(Verdict::Pass, true), body(Verdict::Pass, true)];
        let spent = Ended { begun: 2, spent: true, ..ended(&verdicts, 7, 5) };
        assert_eq!(spent.exit(Exit::Passed), Exit::NotRun);
        let told = &spent.remarks()[0];
        assert!(
            told.contains("5 of 7 cells are left, 3 of them required; replicates of 2"),
            "{told}"
        );
        let hard = Ended { cause: Some(Cause::TimeBudget), spent: false, ..spent };
        assert_eq!(hard.exit(Exit::Passed), Exit::NotRun);
        let informative = Ended { planned: 4, required: 2, ..spent };
        assert_eq!(informative.exit(Exit::Passed), Exit::Passed);
        let nothing = Ended { verdicts: &[], planned: 2, required: 0, ..spent };
        assert_eq!(nothing.exit(Exit::Passed), Exit::NotRun);
        let failed = [body(Verdict::Fail, true)];
        assert_eq!(Ended { verdicts: &failed, ..spent }.exit(Exit::Passed), Exit::Failed);
    }

    #[test]
    fn who_asked_for_an_end_has_the_word_over_the_clock() {
        let verdicts = [body(Verdict::Pass, true)];
        let asked = Ended { cause: Some(Cause::Asked), spent: true, ..ended(&verdicts, 2, 2) };
        assert_eq!(asked.exit(Exit::Passed), Exit::Interrupted);
        assert!(asked.remarks().is_empty());
        let whole = Ended { planned: 1, ..asked };
        assert_eq!(whole.exit(Exit::Passed), Exit::Passed, "nothing was left when it was asked");
    }
}
