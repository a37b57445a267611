//! Many cells: the ratio to each baseline with its interval, on a logarithmic axis; ties lie in the gray band.

use plotters::prelude::*;
use proofhouse_schema::report::CellRow;
use proofhouse_schema::verdict::{Comparison, Estimate};

use super::palette::{BAND, FAINT, GRID, INK, speed, verdict};
use super::{Area, PlotError, bounds, draw, font, widest, width};

const WIDTH: i32 = 860;
const ROW: i32 = 20;
const TOP: i32 = 44;

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// One line of the plot. A cell that was compared with nobody has a line, too: leaving it out would flatter.
struct Line<'a> {
    cell: &'a CellRow,
    comparison: Option<&'a Comparison>,
    label: String,
    said: String,
}

impl<'a> Line<'a> {
    fn all(cells: &[&'a CellRow]) -> Vec<Self> {
        let mut lines = Vec::new();
        for cell in cells {
            if cell.comparisons.is_empty() {
                lines.push(Self::new(cell, None));
            }
            lines.extend(cell.comparisons.iter().map(|c| Self::new(cell, Some(c))));
        }
        lines
    }

    fn new(cell: &'a CellRow, comparison: Option<&'a Comparison>) -> Self {
        let case = format!("{} {}", cell.shape, cell.dtype);
        let (label, said) = match comparison {
            None => (case, format!("{}, no ratio", cell.verdict)),
            Some(c) => {
                let said = match &c.estimate {
                    Some(e) => format!("{:.2}x {}", e.ratio.0, c.speed),
                    None => "no estimate".to_owned(),
                };
                (format!("{case} / {}", c.baseline), said)
            }
        };
        Self { cell, comparison, label, said }
    }

    fn paint(&self, area: &Area<'_>, axis: &Axis, y: i32) -> Drawn {
        area.draw(&Text::new(self.label.clone(), (4, y - 6), font(12, INK)))?;
        let estimate = self.comparison.and_then(|c| Some((c, c.estimate.as_ref()?)));
        let color = match (self.comparison, estimate) {
            (_, Some((c, _))) => speed(c.speed),
            (None, None) => verdict(self.cell.verdict),
            (Some(_), None) => FAINT,
        };
        if let Some((_, Estimate { ratio, low, high, .. })) = estimate {
            let line = vec![(axis.x(low.0), y), (axis.x(high.0), y)];
            area.draw(&PathElement::new(line, color.stroke_width(3)))?;
            area.draw(&Circle::new((axis.x(ratio.0), y), 4, color.filled()))?;
        }
        area.draw(&Text::new(self.said.clone(), (axis.right + 10, y - 6), font(12, color)))
    }
}

/// Draws the ratios of cells against one baseline each line, in the order given.
///
/// # Errors
/// [`PlotError`] when the drawing library fails.
pub fn forest(title: &str, cells: &[&CellRow]) -> Result<String, PlotError> {
    let lines = Line::all(cells);
    let what = format!("{title}: ratio to the baseline, above 1 the candidate is faster");
    let bottom = TOP + ROW * lines.len().max(1) as i32;
    let left = widest(lines.iter().map(|l| l.label.as_str()), 12, 180).min(480) + 14;
    let right = WIDTH - 14 - widest(lines.iter().map(|l| l.said.as_str()), 12, 100).min(180);
    draw(&what, &what, (WIDTH as u32, (bottom + 24) as u32), |area| {
        let comparisons = || lines.iter().filter_map(|l| l.comparison);
        let axis = Axis::over(comparisons().filter_map(|c| c.estimate.as_ref()), left, right);
        let margin = comparisons().next().map_or(0.0, |c| c.margin);
        let band = [(axis.x(1.0 / (1.0 + margin)), TOP - 6), (axis.x(1.0 + margin), bottom)];
        area.draw(&Rectangle::new(band, BAND.filled()))?;
        axis.paint(area, bottom)?;
        for (index, line) in lines.iter().enumerate() {
            line.paint(area, &axis, TOP + ROW * index as i32 + ROW / 2)?;
        }
        Ok(())
    })
}

/// A tick's ratio without the dust of its power of ten.
fn tick(ratio: f64) -> String {
    let digits = if ratio < 1.0 { 3 } else { 1 };
    let text = format!("{ratio:.digits$}");
    format!("{}x", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A logarithmic axis that always shows 1.
struct Axis {
    low: f64,
    high: f64,
    left: i32,
    right: i32,
}

impl Axis {
    fn over<'a>(estimates: impl Iterator<Item = &'a Estimate>, left: i32, right: i32) -> Self {
        let logs = estimates
            .flat_map(|e| [e.low.0, e.high.0, e.ratio.0])
            .filter(|r| *r > 0.0)
            .map(f64::ln)
            .chain([0.9_f64.ln(), 1.1_f64.ln()]);
        let (low, high) = bounds(logs, (-1.0, 1.0));
        Self { low, high, left, right }
    }

    fn x(&self, ratio: f64) -> i32 {
        let span = f64::from(self.right - self.left);
        let at = (ratio.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low);
        self.left + (at * span).clamp(0.0, span) as i32
    }

    /// Ratios that get a grid line: 1 and steps of 1, 2, 5 per decade, as many as there is room for.
    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        for decade in -4..=5 {
            for step in [1.0, 1.5, 2.0, 3.0, 5.0, 7.0] {
                let ratio = step * 10_f64.powi(decade);
                let inside = (self.low..=self.high).contains(&ratio.ln());
                let apart = ticks.last().is_none_or(|last| self.x(ratio) - self.x(*last) > 34);
                if inside && apart {
                    ticks.push(ratio);
                }
            }
        }
        ticks
    }

    fn paint(&self, area: &Area<'_>, bottom: i32) -> Drawn {
        for ratio in self.ticks() {
            let x = self.x(ratio);
            area.draw(&PathElement::new(vec![(x, TOP - 6), (x, bottom)], GRID.stroke_width(1)))?;
            let text = tick(ratio);
            for y in [TOP - 20, bottom + 6] {
                let at = (x - width(&text, 11) / 2, y);
                area.draw(&Text::new(text.clone(), at, font(11, FAINT)))?;
            }
        }
        let one = self.x(1.0);
        area.draw(&PathElement::new(vec![(one, TOP - 6), (one, bottom)], INK.stroke_width(1)))?;
        area.draw(&Text::new("slower".to_owned(), (one - 54, 6), font(11, FAINT)))?;
        area.draw(&Text::new("faster".to_owned(), (one + 10, 6), font(11, FAINT)))
    }
}

#[cfg(test)]
mod tests {
    use super::tick;

    #[test]
    fn ticks_have_no_dust() {
        let ticks = [7.0 * 10_f64.powi(-1), 0.15, 1.0, 1.5, 10.0, 150.0].map(tick);
        assert_eq!(ticks, ["0.7x", "0.15x", "1x", "1.5x", "10x", "150x"]);
    }
}
