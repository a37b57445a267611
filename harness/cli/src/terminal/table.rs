//! Aligned columns.

/// A table of texts; numbers are aligned to the right by the caller's choice of column.
#[derive(Debug)]
pub struct Table {
    heads: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<(String, Option<String>)>>,
}

impl Table {
    /// A table with these heads; a head that starts with `>` is aligned to the right.
    pub fn new(heads: &[&'static str]) -> Self {
        Self {
            right: heads.iter().map(|h| h.starts_with('>')).collect(),
            heads: heads.iter().map(|h| h.trim_start_matches('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// A row of plain texts.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|text| (text, None)).collect());
    }

    /// A row of texts, each with how it looks (the same text with color), if it has any.
    pub fn painted(&mut self, cells: Vec<(String, Option<String>)>) {
        self.rows.push(cells);
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, each line ending with a newline.
    pub fn render(&self, faint: impl Fn(&str) -> String) -> String {
        let width = |text: &str| text.chars().count();
        let widths: Vec<usize> = (0..self.heads.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells
                    .map(|(text, _)| width(text))
                    .chain([width(self.heads[column])])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let pad = |column: usize, text: &str, shown: &str| {
            let fill = " ".repeat(widths[column] - width(text));
            if self.right[column] { format!("{fill}{shown}") } else { format!("{shown}{fill}") }
        };
        let heads: Vec<String> =
            self.heads.iter().enumerate().map(|(i, h)| pad(i, h, &faint(h))).collect();
        let mut out = heads.join("  ").trim_end().to_owned() + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .enumerate()
                .map(|(i, (text, shown))| pad(i, text, shown.as_deref().unwrap_or(text)))
                .collect();
            out.push_str(cells.join("  ").trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_aligned_whatever_their_color() {
        let mut table = Table::new(&["gate", ">cells"]);
        table.row(vec!["a".to_owned(), "1".to_owned()]);
        table
            .painted(vec![("long".to_owned(), Some("<long>".to_owned())), ("12".to_owned(), None)]);
        assert_eq!(table.render(str::to_owned), "gate  cells\na         1\n<long>     12\n");
    }
}
