//! What differs between two texts, by lines.

/// Lines shown on either side of a difference.
const AROUND: usize = 1;

/// The lines that only the old text has (`-`) and only the new one (`+`), each stretch under the line of the old text where
/// it begins. Empty for equal texts.
#[must_use]
pub fn difference(file: &str, old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let edits = edits(&old, &new);
    let changed: Vec<usize> =
        (0..edits.len()).filter(|at| !matches!(edits[*at], Edit::Same(_))).collect();
    let near = |at: usize| changed.iter().any(|other| other.abs_diff(at) <= AROUND);
    let mut text = String::new();
    let mut place = 0;
    let mut shown = false;
    for (at, edit) in edits.iter().enumerate() {
        if near(at) && !shown {
            text.push_str(&format!("{file}:{}\n", place + 1));
        }
        shown = near(at);
        if shown {
            text.push_str(&edit.to_string());
        }
        place += usize::from(!matches!(edit, Edit::New(_)));
    }
    text
}

enum Edit<'a> {
    Same(&'a str),
    Old(&'a str),
    New(&'a str),
}

impl std::fmt::Display for Edit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Edit::Same(line) => writeln!(f, "  {line}"),
            Edit::Old(line) => writeln!(f, "- {line}"),
            Edit::New(line) => writeln!(f, "+ {line}"),
        }
    }
}

/// The shortest way from one to the other: by the longest common part of what lies between equal ends.
fn edits<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Edit<'a>> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev());
    let tail = tail.take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut longest = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i][j] = match a[i] == b[j] {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let mut edits: Vec<Edit<'_>> = old[..head].iter().map(|line| Edit::Same(line)).collect();
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            edits.push(Edit::Same(a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            edits.push(Edit::Old(a[i]));
            i += 1;
        } else {
            edits.push(Edit::New(b[j]));
            j += 1;
        }
    }
    edits.extend(old[old.len() - tail..].iter().map(|line| Edit::Same(line)));
    edits
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn only_what_differs_is_shown_with_its_line() {
        let (old, new) = ("a\nb\nc\nd\ne\n", "a\nb\nC\nd\ne\nf\n");
        assert_eq!(difference("x.md", old, old), "");
        assert_eq!(difference("x.md", old, new), "x.md:2\n  b\n- c\n+ C\n  d\n  e\n+ f\n");
        assert_eq!(difference("x.md", "", "a\n"), "x.md:1\n+ a\n");
        assert_eq!(difference("x.md", "a\n", ""), "x.md:1\n- a\n");
    }
}
