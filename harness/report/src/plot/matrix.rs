//! One operator: the worst verdict by shape and dtype, with the number of cells.

use std::collections::BTreeMap;

use plotters::prelude::*;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::report::CellRow;
use proofhouse_schema::verdict::Verdict;

use super::palette::{FAINT, INK, verdict};
use super::{PlotError, draw, font, widest};
use crate::tally::Tally;
use crate::words;

const COLUMN: i32 = 92;
const ROW: i32 = 24;
const TOP: i32 = 26;

/// Draws the matrix of one operator's cells. Shapes keep the order in which they come.
///
/// # Errors
/// [`PlotError`] when the drawing library fails.
pub fn matrix(title: &str, cells: &[&CellRow]) -> Result<String, PlotError> {
    let mut shapes: Vec<&str> = Vec::new();
    let mut by_place: BTreeMap<(&str, Dtype), Vec<&CellRow>> = BTreeMap::new();
    for cell in cells {
        if !shapes.contains(&cell.shape.as_str()) {
            shapes.push(&cell.shape);
        }
        by_place.entry((&cell.shape, cell.dtype)).or_default().push(cell);
    }
    let mut dtypes: Vec<Dtype> = by_place.keys().map(|(_, dtype)| *dtype).collect();
    dtypes.sort();
    dtypes.dedup();
    let what = format!("{title}: verdicts by shape and dtype");
    let left = widest(shapes.iter().copied(), 12, 80) + 12;
    let size = (
        (left + COLUMN * dtypes.len().max(1) as i32 + 8) as u32,
        (TOP + ROW * shapes.len().max(1) as i32 + 6) as u32,
    );
    draw(&what, &what, size, |area| {
        for (column, dtype) in dtypes.iter().enumerate() {
            let x = left + COLUMN * column as i32;
            area.draw(&Text::new(dtype.to_string(), (x + 8, 6), font(12, FAINT)))?;
        }
        for (row, shape) in shapes.iter().enumerate() {
            let y = TOP + ROW * row as i32;
            area.draw(&Text::new((*shape).to_owned(), (4, y + 5), font(12, INK)))?;
            for (column, dtype) in dtypes.iter().enumerate() {
                let x = left + COLUMN * column as i32;
                match by_place.get(&(*shape, *dtype)) {
                    Some(cells) => place(area, (x, y), cells)?,
                    None => {
                        area.draw(&Text::new("–".to_owned(), (x + 8, y + 4), font(12, FAINT)))?
                    }
                }
            }
        }
        Ok(())
    })
}

fn place(
    area: &super::Area<'_>,
    (x, y): (i32, i32),
    cells: &[&CellRow],
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let tally = Tally::of(cells.iter().copied());
    let worst = tally.worst();
    let color = verdict(worst);
    let frame = [(x, y), (x + COLUMN - 4, y + ROW - 4)];
    area.draw(&Rectangle::new(frame, color.mix(0.18).filled()))?;
    area.draw(&Rectangle::new(frame, color.stroke_width(1)))?;
    let text = format!("{} {}/{}", words::mark(worst), tally.count(Verdict::Pass), tally.total());
    area.draw(&Text::new(text, (x + 8, y + 4), font(12, INK)))
}
