//! One cell: every sample, by replicate and block, colored by its place within the block.

use plotters::prelude::*;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::report::{CellRow, SamplePoint};

use super::palette::{FAINT, GRID, INK, position};
use super::{PlotError, bounds, draw, font};
use crate::words;

const WIDTH: u32 = 560;
const BAND: i32 = 70;
const LEFT: i32 = 120;
const RIGHT: i32 = 14;

/// Draws a cell's samples: one band per provider, time from left to right, the order in color.
///
/// # Errors
/// [`PlotError`] when the drawing library fails.
pub fn scatter(cell: &CellRow) -> Result<String, PlotError> {
    let what = format!("samples of {}", cell.cell);
    let providers: Vec<&ProviderId> = cell.times.keys().collect();
    let height = (28 + BAND * providers.len().max(1) as i32) as u32;
    draw(&what, &what, (WIDTH, height), |area| {
        for (index, provider) in providers.iter().enumerate() {
            let points: Vec<&SamplePoint> =
                cell.samples.iter().filter(|p| p.provider == **provider).collect();
            let top = BAND * index as i32 + 6;
            let (low, high) = bounds(points.iter().map(|p| p.per_call_ns), (0.0, 1.0));
            area.draw(&Text::new(provider.to_string(), (4, top + 2), font(13, INK)))?;
            area.draw(&Text::new(words::time(high), (4, top + 18), font(10, FAINT)))?;
            area.draw(&Text::new(words::time(low), (4, top + 46), font(10, FAINT)))?;
            let frame = [(LEFT, top), (WIDTH as i32 - RIGHT, top + BAND - 12)];
            area.draw(&Rectangle::new(frame, GRID.stroke_width(1)))?;
            let across = f64::from(WIDTH as i32 - LEFT - RIGHT - 8);
            let down = f64::from(BAND - 20);
            for (place, point) in points.iter().enumerate() {
                let x = LEFT + 4 + (across * (place as f64 + 0.5) / points.len() as f64) as i32;
                let y = top + 4 + (down * (high - point.per_call_ns) / (high - low)) as i32;
                area.draw(&Circle::new((x, y), 2, position(point.position).filled()))?;
            }
        }
        legend(area, cell, height as i32 - 16)
    })
}

fn legend(
    area: &super::Area<'_>,
    cell: &CellRow,
    y: i32,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let places = cell.samples.iter().map(|p| p.position).max().map_or(0, |p| p + 1);
    for place in 0..places.min(6) {
        let x = LEFT + place as i32 * 84;
        area.draw(&Circle::new((x + 4, y + 5), 3, position(place).filled()))?;
        let text = format!("ran {}", ["1st", "2nd", "3rd", "4th", "5th", "6th"][place as usize]);
        area.draw(&Text::new(text, (x + 12, y), font(11, FAINT)))?;
    }
    Ok(())
}
