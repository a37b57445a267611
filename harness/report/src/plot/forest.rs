//! Many cells: the ratio to each baseline with its interval, on a logarithmic axis; ties lie in the gray band.

use plotters::prelude::*;
use proofhouse_schema::report::CellRow;
use proofhouse_schema::verdict::{Comparison, Estimate};

use super::palette::{BAND, FAINT, GRID, INK, speed};
use super::{PlotError, bounds, draw, font};

const WIDTH: u32 = 860;
const ROW: i32 = 20;
const LEFT: i32 = 330;
const RIGHT: i32 = 150;
const TOP: i32 = 30;

/// Draws the ratios of cells against one baseline each line, in the order given.
///
/// # Errors
/// [`PlotError`] when the drawing library fails.
pub fn forest(title: &str, cells: &[&CellRow]) -> Result<String, PlotError> {
    let rows: Vec<(&CellRow, &Comparison)> =
        cells.iter().flat_map(|cell| cell.comparisons.iter().map(move |c| (*cell, c))).collect();
    let what = format!("{title}: ratio to the baseline, above 1 the candidate is faster");
    let height = (TOP + ROW * rows.len().max(1) as i32 + 26) as u32;
    draw(&what, &what, (WIDTH, height), |area| {
        let estimates = rows.iter().filter_map(|(_, c)| c.estimate.as_ref());
        let axis = Axis::over(estimates);
        let bottom = TOP + ROW * rows.len() as i32;
        let margin = rows.first().map_or(0.0, |(_, c)| c.margin);
        let band = [(axis.x(1.0 / (1.0 + margin)), TOP - 6), (axis.x(1.0 + margin), bottom)];
        area.draw(&Rectangle::new(band, BAND.filled()))?;
        axis.paint(area, bottom)?;
        for (index, (cell, comparison)) in rows.iter().enumerate() {
            row(area, &axis, TOP + ROW * index as i32 + ROW / 2, cell, comparison)?;
        }
        Ok(())
    })
}

fn row(
    area: &super::Area<'_>,
    axis: &Axis,
    y: i32,
    cell: &CellRow,
    comparison: &Comparison,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let label = format!("{} {} / {}", cell.shape, cell.dtype, comparison.baseline);
    area.draw(&Text::new(label, (4, y - 6), font(12, INK)))?;
    let color = speed(comparison.speed);
    let beside = (WIDTH as i32 - RIGHT + 10, y - 6);
    let Some(Estimate { ratio, low, high, .. }) = &comparison.estimate else {
        return area.draw(&Text::new("no estimate".to_owned(), beside, font(12, FAINT)));
    };
    let line = vec![(axis.x(low.0), y), (axis.x(high.0), y)];
    area.draw(&PathElement::new(line, color.stroke_width(3)))?;
    area.draw(&Circle::new((axis.x(ratio.0), y), 4, color.filled()))?;
    let text = format!("{:.2}x {}", ratio.0, comparison.speed);
    area.draw(&Text::new(text, beside, font(12, color)))
}

/// A logarithmic axis that always shows 1.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn over<'a>(estimates: impl Iterator<Item = &'a Estimate>) -> Self {
        let logs = estimates
            .flat_map(|e| [e.low.0, e.high.0, e.ratio.0])
            .filter(|r| *r > 0.0)
            .map(f64::ln)
            .chain([0.9_f64.ln(), 1.1_f64.ln()]);
        let (low, high) = bounds(logs, (-1.0, 1.0));
        Self { low, high }
    }

    fn x(&self, ratio: f64) -> i32 {
        let span = f64::from(WIDTH as i32 - LEFT - RIGHT);
        let at = (ratio.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low);
        LEFT + (at * span).clamp(0.0, span) as i32
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

    fn paint(
        &self,
        area: &super::Area<'_>,
        bottom: i32,
    ) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        for ratio in self.ticks() {
            let x = self.x(ratio);
            area.draw(&PathElement::new(vec![(x, TOP - 6), (x, bottom)], GRID.stroke_width(1)))?;
            area.draw(&Text::new(format!("{ratio}x"), (x - 8, bottom + 6), font(11, FAINT)))?;
        }
        let one = self.x(1.0);
        area.draw(&PathElement::new(vec![(one, TOP - 6), (one, bottom)], INK.stroke_width(1)))?;
        area.draw(&Text::new("slower".to_owned(), (one - 48, 6), font(11, FAINT)))?;
        area.draw(&Text::new("faster".to_owned(), (one + 10, 6), font(11, FAINT)))
    }
}
