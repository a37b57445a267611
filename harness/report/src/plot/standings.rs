//! One gate: who stands where in every cell. Rows are cells, columns providers; a square says how many times as long as the
//! first a provider takes, the deeper the longer; the slowest of the gate is deepest.

use plotters::prelude::*;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::ordering::{GateOrdering, Ranking, Standing};

use super::palette::{FAINT, FIRST, GRID, INK, SECOND, standalone};
use super::sizes::colored;
use super::{Area, PlotError, draw, font, widest, width};

const ROW: i32 = 22;
const HEAD: i32 = 84;
const GAP: i32 = 6;
/// How many times as long gets the deepest color, at least.
const DEEPEST: f64 = 2.0;

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws the standings of a gate as a file of its own; none where no cell is ranked.
///
/// # Errors
/// [`PlotError`] when the drawing library fails.
pub fn standings(gate: &GateOrdering) -> Result<Option<String>, PlotError> {
    let mut rows: Vec<(String, &Ranking)> = Vec::new();
    if let Some(overall) = &gate.overall {
        rows.push((format!("mean over {} cells", overall.cells.len()), &overall.ranking));
    }
    rows.extend(gate.cells.iter().map(|cell| (cell.cell.clone(), &cell.ranking)));
    let ids = in_order(gate);
    if ids.is_empty() {
        return Ok(None);
    }
    let left = widest(rows.iter().map(|(text, _)| text.as_str()), 12, 120) + 18;
    let column = widest(ids.iter().map(|id| id.as_str()), 12, 62) + 16;
    let size = (
        (left + column * ids.len() as i32 + 12).max(620) as u32,
        (HEAD + ROW * rows.len() as i32 + GAP + 12) as u32,
    );
    let deepest = deepest(gate);
    let what = format!("{}: time over the first's, by cell and provider", gate.gate);
    let svg = draw(&what, &what, size, |area| {
        head(area, gate)?;
        for (at, id) in ids.iter().enumerate() {
            let x = left + column * at as i32 + (column - width(id.as_str(), 12)) / 2;
            let color = if **id == gate.candidate { FIRST } else { INK };
            area.draw(&Text::new(id.to_string(), (x, HEAD - 20), font(12, color)))?;
        }
        for (line, (text, ranking)) in rows.iter().enumerate() {
            // The mean stands apart from the cells.
            let below = if gate.overall.is_some() && line > 0 { GAP } else { 0 };
            let y = HEAD + ROW * line as i32 + below;
            area.draw(&Text::new(text.clone(), (10, y + 4), font(12, INK)))?;
            for (at, id) in ids.iter().enumerate() {
                let frame = [
                    (left + column * at as i32, y),
                    (left + column * (at as i32 + 1) - 4, y + ROW - 4),
                ];
                square(area, (frame, deepest), ranking, id)?;
            }
        }
        Ok(())
    })?;
    Ok(Some(standalone(&svg)))
}

/// Providers as they stand over the gate, then those that have no place there.
pub(crate) fn in_order(gate: &GateOrdering) -> Vec<&ProviderId> {
    let overall = gate.overall.iter().flat_map(|overall| &overall.ranking.standings);
    let mut all: Vec<&ProviderId> = overall.map(|standing| &standing.provider).collect();
    for id in colored(gate) {
        if !all.contains(&id) {
            all.push(id);
        }
    }
    all
}

fn head(area: &Area<'_>, gate: &GateOrdering) -> Drawn {
    let contract = gate.timing.as_ref().map_or(String::new(), |t| format!(", {}", t.contract));
    area.draw(&Text::new(gate.gate.to_string(), (10, 8), font(16, INK)))?;
    let about = format!("{}{contract}", gate.place);
    area.draw(&Text::new(about, (10, 28), font(12, FAINT)))?;
    let key = "time over the first's; framed: nobody is called faster, = where several share that";
    area.draw(&Text::new(key.to_owned(), (10, 44), font(12, FAINT)))
}

fn square(
    area: &Area<'_>,
    (frame, deepest): ([(i32, i32); 2], f64),
    ranking: &Ranking,
    id: &ProviderId,
) -> Drawn {
    let Some(standing) = ranking.standings.iter().find(|s| s.provider == *id) else {
        let at = ((frame[0].0 + frame[1].0) / 2 - 3, frame[0].1 + 3);
        return area.draw(&Text::new("–".to_owned(), at, font(12, FAINT)));
    };
    let ratio = over_first(standing);
    area.draw(&Rectangle::new(frame, SECOND.mix(0.45 * depth(ratio, deepest)).filled()))?;
    let best = standing.rank == 1;
    let edge = if best { FIRST.stroke_width(2) } else { GRID.stroke_width(1) };
    area.draw(&Rectangle::new(frame, edge))?;
    let tied = best && ranking.standings.iter().filter(|s| s.rank == 1).count() > 1;
    let text = format!("{}{}", times(ratio), if tied { " =" } else { "" });
    let x = (frame[0].0 + frame[1].0 - width(&text, 12)) / 2;
    area.draw(&Text::new(text, (x, frame[0].1 + 3), font(12, INK)))
}

/// A provider's time over that of the first in the list.
pub(crate) fn over_first(standing: &Standing) -> f64 {
    let estimate = standing.to_first.as_ref().and_then(|pair| pair.comparison.estimate.as_ref());
    estimate.map_or(1.0, |estimate| estimate.ratio.0)
}

/// A ratio with as many digits as say something.
pub(crate) fn times(ratio: f64) -> String {
    match ratio {
        r if r < 10.0 => format!("{r:.2}"),
        r if r < 100.0 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

/// How many times as long gets the deepest color: the slowest of a gate.
pub(crate) fn deepest(gate: &GateOrdering) -> f64 {
    let standings = gate.cells.iter().flat_map(|cell| &cell.ranking.standings);
    standings.map(over_first).filter(|ratio| ratio.is_finite()).fold(DEEPEST, f64::max)
}

/// From 0 at the first to 1 at the deepest color.
fn depth(ratio: f64, deepest: f64) -> f64 {
    (ratio.max(1.0).ln() / deepest.ln()).clamp(0.0, 1.0)
}

/// The step of a color in a page, from 0 to 5.
pub(crate) fn shade(ratio: f64, deepest: f64) -> u8 {
    (5.0 * depth(ratio, deepest)).ceil() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_has_no_color_and_the_slow_ones_all_of_it() {
        let depth = |ratio| depth(ratio, 6.0);
        assert_eq!((depth(1.0), depth(0.9)), (0.0, 0.0));
        assert!(depth(1.2) > 0.0 && depth(1.2) < depth(2.0));
        assert_eq!((depth(6.0), depth(900.0)), (1.0, 1.0));
        let shades = [1.0, 1.01, 2.0, 6.0, 900.0].map(|ratio| shade(ratio, 6.0));
        assert_eq!(shades, [0, 1, 2, 5, 5]);
    }

    #[test]
    fn ratios_have_three_digits() {
        assert_eq!([1.0, 9.994, 12.34, 345.6].map(times), ["1.00", "9.99", "12.3", "346"]);
    }
}
