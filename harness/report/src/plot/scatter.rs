//! One cell: every sample, by replicate and block, colored by its place within the block.

use plotters::prelude::*;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::report::{CellRow, SamplePoint};

use super::palette::{FAINT, GRID, INK, OPEN, position};
use super::{Area, PlotError, bounds, draw, font, widest};
use crate::words;

const WIDTH: u32 = 560;
const BAND: i32 = 76;
const RIGHT: i32 = 14;
/// Samples farther than this many interquartile ranges from the quartiles are drawn at the edge.
const FAR: f64 = 3.0;

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws a cell's samples: one band per provider, time from left to right, the order in color. A few samples that lie far
/// from all others are drawn as triangles at the edge, and counted, so that the rest keeps its structure.
///
/// # Errors
/// [`PlotError`] when the drawing library fails.
pub fn scatter(cell: &CellRow) -> Result<String, PlotError> {
    let what = format!("samples of {}", cell.cell);
    let providers: Vec<&ProviderId> = cell.times.keys().collect();
    let left = widest(providers.iter().map(|p| p.as_str()), 13, 112) + 12;
    let height = (28 + BAND * providers.len().max(1) as i32) as u32;
    draw(&what, &what, (WIDTH, height), |area| {
        for (index, provider) in providers.iter().enumerate() {
            let points: Vec<&SamplePoint> =
                cell.samples.iter().filter(|p| p.provider == **provider).collect();
            let top = BAND * index as i32 + 6;
            area.draw(&Text::new(provider.to_string(), (4, top), font(13, INK)))?;
            band(area, (left, top), &points)?;
        }
        legend(area, cell, (left, height as i32 - 16))
    })
}

fn band(area: &Area<'_>, (left, top): (i32, i32), points: &[&SamplePoint]) -> Drawn {
    let limits = Limits::of(points);
    let Limits { low, high, .. } = limits;
    area.draw(&Text::new(words::time(high), (4, top + 18), font(10, FAINT)))?;
    area.draw(&Text::new(words::time(low), (4, top + 51), font(10, FAINT)))?;
    if let Some(beyond) = limits.beyond() {
        area.draw(&Text::new(beyond, (4, top + 35), font(10, OPEN)))?;
    }
    let frame = [(left, top), (WIDTH as i32 - RIGHT, top + BAND - 12)];
    area.draw(&Rectangle::new(frame, GRID.stroke_width(1)))?;
    let across = f64::from(WIDTH as i32 - left - RIGHT - 8);
    let down = f64::from(BAND - 24);
    for (place, point) in points.iter().enumerate() {
        let x = left + 4 + (across * (place as f64 + 0.5) / points.len() as f64) as i32;
        let clipped = point.per_call_ns.clamp(low, high);
        let y = top + 6 + (down * (high - clipped) / (high - low)) as i32;
        let style = position(point.position).filled();
        if clipped == point.per_call_ns {
            area.draw(&Circle::new((x, y), 2, style))?;
        } else {
            area.draw(&TriangleMarker::new((x, y), 4, style))?;
        }
    }
    Ok(())
}

/// What a band shows, and what lies beyond it.
struct Limits {
    low: f64,
    high: f64,
    below: usize,
    above: usize,
    least: f64,
    most: f64,
}

impl Limits {
    fn of(points: &[&SamplePoint]) -> Self {
        let mut times: Vec<f64> =
            points.iter().map(|p| p.per_call_ns).filter(|t| t.is_finite()).collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get(((times.len().max(1) - 1) as f64 * share).round() as usize);
        let quartiles = at(0.25).copied().zip(at(0.75).copied());
        let (first, third) = quartiles.unwrap_or((0.0, 1.0));
        // A constant half of the samples still leaves a hundredth of their time as room.
        let room = FAR * (third - first).max(third.abs() * 0.003);
        let near = |t: &&f64| (first - room..=third + room).contains(*t);
        let (low, high) = bounds(times.iter().filter(near).copied(), (0.0, 1.0));
        Self {
            low,
            high,
            below: times.iter().filter(|t| **t < low).count(),
            above: times.iter().filter(|t| **t > high).count(),
            least: times.first().copied().unwrap_or(low),
            most: times.last().copied().unwrap_or(high),
        }
    }

    fn beyond(&self) -> Option<String> {
        match (self.below, self.above) {
            (0, 0) => None,
            (0, above) => Some(format!("{above} up to {}", words::time(self.most))),
            (below, 0) => Some(format!("{below} from {}", words::time(self.least))),
            (below, above) => {
                Some(format!("{} beyond, to {}", below + above, words::time(self.most)))
            }
        }
    }
}

fn legend(area: &Area<'_>, cell: &CellRow, (left, y): (i32, i32)) -> Drawn {
    let places = cell.samples.iter().map(|p| p.position).max().map_or(0, |p| p + 1);
    for place in 0..places.min(6) {
        let x = left + place as i32 * 70;
        area.draw(&Circle::new((x + 4, y + 5), 3, position(place).filled()))?;
        let text = format!("ran {}", ["1st", "2nd", "3rd", "4th", "5th", "6th"][place as usize]);
        area.draw(&Text::new(text, (x + 12, y), font(11, FAINT)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(times: &[f64]) -> Vec<SamplePoint> {
        let point = |time: &f64| SamplePoint {
            provider: "cpu".parse().unwrap(),
            replicate: 0,
            block: 0,
            position: 0,
            per_call_ns: *time,
        };
        times.iter().map(point).collect()
    }

    #[test]
    fn one_sample_far_away_does_not_squeeze_the_others() {
        let points = points(&[10.0, 10.1, 10.2, 10.3, 10.4, 10.5, 900.0]);
        let limits = Limits::of(&points.iter().collect::<Vec<_>>());
        assert!(limits.high < 11.0 && limits.low > 9.0);
        assert_eq!(limits.beyond().unwrap(), format!("1 up to {}", words::time(900.0)));
    }

    #[test]
    fn samples_of_two_kinds_are_all_shown() {
        let points = points(&[10.0, 10.1, 10.2, 20.0, 20.1, 20.2]);
        let limits = Limits::of(&points.iter().collect::<Vec<_>>());
        assert!(limits.low < 10.0 && limits.high > 20.2 && limits.beyond().is_none());
    }

    #[test]
    fn constant_samples_and_none_have_limits_too() {
        for times in [&[][..], &[5.0], &[5.0, 5.0, 5.0]] {
            let points = points(times);
            let limits = Limits::of(&points.iter().collect::<Vec<_>>());
            assert!(limits.low < limits.high && limits.beyond().is_none(), "{times:?}");
        }
    }
}
