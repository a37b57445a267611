//! One cell: time per call of every provider, median and 10th to 90th percentile.

use plotters::prelude::*;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::report::CellRow;

use super::palette::{FAINT, FIRST, GRID, INK, QUIET};
use super::{PlotError, bounds, draw, font, widest, width};
use crate::words;

const WIDTH: u32 = 560;
const ROW: u32 = 30;
const RIGHT: i32 = 90;

/// Draws the times of one cell, one line per provider.
///
/// # Errors
/// [`PlotError`] when the drawing library fails.
pub fn intervals(cell: &CellRow) -> Result<String, PlotError> {
    let what = format!("times of {}", cell.cell);
    let rows = cell.times.len() as u32;
    let left = widest(cell.times.keys().map(ProviderId::as_str), 13, 90) + 12;
    let height = 34 + ROW * rows.max(1);
    draw(&what, &what, (WIDTH, height), |area| {
        let values = cell.times.values().flat_map(|s| [s.p10_ns.0, s.p90_ns.0]);
        let (low, high) = bounds(values.chain([0.0]), (0.0, 1.0));
        let low = low.max(0.0);
        let span = f64::from(WIDTH as i32 - left - RIGHT);
        let x = |ns: f64| left + ((ns - low) / (high - low) * span).clamp(0.0, span) as i32;
        let bottom = (ROW * rows + 6) as i32;
        for step in 0..=4 {
            let ns = low + (high - low) * f64::from(step) / 4.0;
            area.draw(&PathElement::new(vec![(x(ns), 4), (x(ns), bottom)], GRID.stroke_width(1)))?;
            let text = words::time(ns);
            let middle = width(&text, 11) / 2;
            area.draw(&Text::new(text, (x(ns) - middle, bottom + 8), font(11, FAINT)))?;
        }
        for (index, (provider, s)) in cell.times.iter().enumerate() {
            let y = 20 + (index as u32 * ROW) as i32;
            let color = if *provider == cell.provider { FIRST } else { QUIET };
            area.draw(&Text::new(provider.to_string(), (4, y - 6), font(13, INK)))?;
            let line = vec![(x(s.p10_ns.0), y), (x(s.p90_ns.0), y)];
            area.draw(&PathElement::new(line, color.stroke_width(3)))?;
            area.draw(&Circle::new((x(s.p50_ns.0), y), 5, color.filled()))?;
            let text = words::time(s.p50_ns.0);
            area.draw(&Text::new(text, (WIDTH as i32 - RIGHT + 14, y - 6), font(12, INK)))?;
        }
        Ok(())
    })
}
