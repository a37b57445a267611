//! One gate: time per call against the extent that varies, on two logarithmic axes, a line for each provider.

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use proofhouse_schema::evidence::Summary;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::ordering::GateOrdering;

use super::palette::{FAINT, GRID, INK, provider, standalone};
use super::{Area, PlotError, draw, font, widest, width};
use crate::series::{Series, series};

/// Size of a panel.
const PANEL: (i32, i32) = (560, 360);
/// Where the panel's frame begins, and how far from its lower end it stops.
const LEFT: i32 = 74;
const TOP: i32 = 36;
const BOTTOM: i32 = 46;
/// Least distance of two names at the right end.
const APART: i32 = 15;
/// How far below the least time the memory floor is shown, as a logarithm.
const FLOOR_ROOM: f64 = 0.7;
/// Panels side by side.
const COLUMNS: i32 = 2;
/// Panels that one picture holds at most, the longest first.
const PANELS: usize = 8;

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws a gate as a file of its own: a panel for each series of cells that differ in one extent alone. None where no two
/// cells do.
///
/// # Errors
/// [`PlotError`] when the drawing library fails.
pub fn sizes(gate: &GateOrdering) -> Result<Option<String>, PlotError> {
    let mut all = series(gate);
    all.truncate(PANELS);
    if all.is_empty() {
        return Ok(None);
    }
    let columns = COLUMNS.min(all.len() as i32);
    let lines = (all.len() as i32 + columns - 1) / columns;
    let head = 44;
    let size = ((columns * PANEL.0) as u32, (head + lines * PANEL.1) as u32);
    let what = label(gate, all[0].dimension);
    let svg = draw(&what, &what, size, |area| {
        area.draw(&Text::new(gate.gate.to_string(), (14, 10), font(16, INK)))?;
        area.draw(&Text::new(about(gate), (14, 30), font(12, FAINT)))?;
        for (at, series) in all.iter().enumerate() {
            let (column, line) = (at as i32 % columns, at as i32 / columns);
            Panel::new(gate, series, (column * PANEL.0, head + line * PANEL.1)).paint(area)?;
        }
        Ok(())
    })?;
    Ok(Some(standalone(&svg)))
}

/// Draws the longest series of a gate as a part of a page, with what it varies in.
///
/// # Errors
/// [`PlotError`] when the drawing library fails.
pub(crate) fn longest(gate: &GateOrdering) -> Result<Option<String>, PlotError> {
    let all = series(gate);
    let Some(series) = all.first() else { return Ok(None) };
    let what = label(gate, series.dimension);
    let size = (PANEL.0 as u32, PANEL.1 as u32);
    draw(&what, &what, size, |area| Panel::new(gate, series, (0, 0)).paint(area)).map(Some)
}

fn label(gate: &GateOrdering, dimension: &str) -> String {
    format!("{}: time per call against {dimension}, by provider", gate.gate)
}

fn about(gate: &GateOrdering) -> String {
    let contract = gate.timing.as_ref().map_or(String::new(), |t| format!(", {}", t.contract));
    format!("{}{contract}; median, band: 10th to 90th percentile of samples", gate.place)
}

/// Providers in the order of their colors: the candidate, then the others by their ids.
pub(super) fn colored(gate: &GateOrdering) -> Vec<&ProviderId> {
    let standings = gate.cells.iter().flat_map(|cell| &cell.ranking.standings);
    let mut all: Vec<&ProviderId> = standings.map(|standing| &standing.provider).collect();
    all.sort_by_key(|id| (**id != gate.candidate, *id));
    all.dedup();
    all
}

/// One series.
struct Panel<'a> {
    series: &'a Series<'a>,
    lines: Vec<Line<'a>>,
    at: (i32, i32),
    right: i32,
    extents: (f64, f64),
    times: (f64, f64),
}

/// One provider's times, by the logarithm of the extent.
struct Line<'a> {
    id: &'a ProviderId,
    color: RGBColor,
    number: usize,
    points: Vec<(f64, &'a Summary)>,
}

impl<'a> Panel<'a> {
    fn new(gate: &'a GateOrdering, series: &'a Series<'a>, at: (i32, i32)) -> Self {
        let line = |(number, id): (usize, &'a ProviderId)| {
            let points = series.cells.iter().filter_map(|(extent, cell)| {
                let standing = cell.ranking.standings.iter().find(|s| s.provider == *id)?;
                Some(((*extent as f64).max(0.5).ln(), standing.time.as_ref()?))
            });
            Line { id, color: provider(number), number, points: points.collect() }
        };
        let lines: Vec<Line<'_>> = colored(gate).into_iter().enumerate().map(line).collect();
        let shown = lines.iter().flat_map(|l| &l.points);
        let shown = shown.flat_map(|(_, s)| [s.p10_ns.0, s.p90_ns.0]).filter(|t| *t > 0.0);
        let times: Vec<f64> = shown.map(f64::ln).collect();
        // A floor far below every time would press the lines together.
        let least = times.iter().copied().fold(f64::INFINITY, f64::min) - FLOOR_ROOM;
        let floors = series.cells.iter().filter_map(|(_, cell)| Some(cell.memory_floor_ns?.0.ln()));
        let logs = times.iter().copied().chain(floors.map(|floor| floor.max(least)));
        let names = lines.iter().map(|line| line.id.as_str()).chain(["memory floor"]);
        Self {
            right: PANEL.0 - widest(names, 12, 60) - 22,
            extents: spread(series.cells.iter().map(|(e, _)| (*e as f64).max(0.5).ln()), 0.04),
            times: spread(logs, 0.04),
            series,
            lines,
            at,
        }
    }

    fn x(&self, log: f64) -> i32 {
        let share = (log - self.extents.0) / (self.extents.1 - self.extents.0);
        self.at.0 + LEFT + (share * f64::from(self.right - LEFT)) as i32
    }

    fn y(&self, log: f64) -> i32 {
        let share = (log - self.times.0) / (self.times.1 - self.times.0);
        self.at.1 + PANEL.1 - BOTTOM - (share * f64::from(PANEL.1 - BOTTOM - TOP)) as i32
    }

    fn point(&self, log: f64, ns: f64) -> (i32, i32) {
        (self.x(log), self.y(ns.max(f64::MIN_POSITIVE).ln()))
    }

    fn paint(&self, area: &Area<'_>) -> Drawn {
        let head = (self.at.0 + LEFT, self.at.1 + 12);
        area.draw(&Text::new(self.series.held.clone(), head, font(13, INK)))?;
        self.axes(area)?;
        self.floor(area)?;
        // The candidate is drawn last, over the others.
        for line in self.lines.iter().rev() {
            self.line(area, line)?;
        }
        self.names(area)
    }

    fn axes(&self, area: &Area<'_>) -> Drawn {
        let (left, right) = (self.at.0 + LEFT, self.at.0 + self.right);
        let (top, bottom) = (self.at.1 + TOP, self.at.1 + PANEL.1 - BOTTOM);
        for (ns, text) in ticks(self.times) {
            let y = self.y(ns.ln());
            area.draw(&PathElement::new(vec![(left, y), (right, y)], GRID.stroke_width(1)))?;
            let x = left - 8 - width(&text, 11);
            area.draw(&Text::new(text, (x, y - 6), font(11, FAINT)))?;
        }
        let mut last = i32::MIN;
        for (extent, _) in &self.series.cells {
            let (x, text) = (self.x((*extent as f64).max(0.5).ln()), extent.to_string());
            area.draw(&PathElement::new(vec![(x, top), (x, bottom)], GRID.stroke_width(1)))?;
            let begin = x - width(&text, 11) / 2;
            // A label that would run into the one before it is left out; its line stays.
            if begin > last {
                last = begin + width(&text, 11) + 4;
                area.draw(&Text::new(text, (begin, bottom + 7), font(11, FAINT)))?;
            }
        }
        let dimension = self.series.dimension.to_owned();
        let middle = (left + right - width(&dimension, 12)) / 2;
        area.draw(&Text::new(dimension, (middle, bottom + 24), font(12, FAINT)))
    }

    fn floor(&self, area: &Area<'_>) -> Drawn {
        let points: Vec<(i32, i32)> = self.floors();
        area.draw(&DashedPathElement::new(points, 5, 4, FAINT.stroke_width(1)))
    }

    /// The memory floor where it is above the frame's lower end, from the point on at which it comes in.
    fn floors(&self) -> Vec<(i32, i32)> {
        let all = self.series.cells.iter().filter_map(|(extent, cell)| {
            Some(((*extent as f64).max(0.5).ln(), cell.memory_floor_ns?.0.ln()))
        });
        let mut points = Vec::new();
        let mut before: Option<(f64, f64)> = None;
        for (x, floor) in all.filter(|(_, floor)| floor.is_finite()) {
            if floor >= self.times.0 {
                if let Some((x0, floor0)) = before.filter(|(_, floor0)| *floor0 < self.times.0) {
                    let share = (self.times.0 - floor0) / (floor - floor0);
                    points.push((self.x(x0 + share * (x - x0)), self.y(self.times.0)));
                }
                points.push((self.x(x), self.y(floor)));
            }
            before = Some((x, floor));
        }
        points
    }

    fn line(&self, area: &Area<'_>, line: &Line<'_>) -> Drawn {
        let lower = line.points.iter().map(|(x, s)| self.point(*x, s.p10_ns.0));
        let upper = line.points.iter().rev().map(|(x, s)| self.point(*x, s.p90_ns.0));
        let band: Vec<(i32, i32)> = lower.chain(upper).collect();
        area.draw(&Polygon::new(band, line.color.mix(0.16).filled()))?;
        let points: Vec<(i32, i32)> =
            line.points.iter().map(|(x, s)| self.point(*x, s.p50_ns.0)).collect();
        let thick = if line.number == 0 { 3 } else { 2 };
        area.draw(&PathElement::new(points.clone(), line.color.stroke_width(thick)))?;
        points.into_iter().try_for_each(|point| shape(area, line.number, point, line.color))
    }

    /// Names at the right end, moved apart where lines end close to one another.
    fn names(&self, area: &Area<'_>) -> Drawn {
        let mut ends: Vec<End<'_>> = Vec::new();
        for line in &self.lines {
            if let Some((x, time)) = line.points.last() {
                let end = self.point(*x, time.p50_ns.0);
                ends.push((end, line.id.as_str(), line.color, Some(line.number)));
            }
        }
        ends.extend(self.floors().last().map(|end| (*end, "memory floor", FAINT, None)));
        ends.sort_by_key(|((_, y), ..)| *y);
        let wanted: Vec<i32> = ends.iter().map(|((_, y), ..)| *y).collect();
        let limits = (self.at.1 + TOP, self.at.1 + PANEL.1 - BOTTOM + 10);
        let places = apart(&wanted, limits);
        let x = self.at.0 + self.right + 16;
        for ((end, name, color, number), y) in ends.into_iter().zip(places) {
            let from = (self.at.0 + self.right + 2, y);
            let leader = vec![(end.0 + 4, end.1), from];
            area.draw(&PathElement::new(leader, color.mix(0.45).stroke_width(1)))?;
            if let Some(number) = number {
                shape(area, number, (x - 7, y), color)?;
            }
            // The mark has the color; the name has contrast.
            let ink = if number.is_some() { INK } else { FAINT };
            area.draw(&Text::new(name.to_owned(), (x, y - 6), font(12, ink)))?;
        }
        Ok(())
    }
}

/// Where a line ends, its name, its color, and whose mark it has.
type End<'a> = ((i32, i32), &'a str, RGBColor, Option<usize>);

/// The mark of the provider with this number.
fn shape(area: &Area<'_>, number: usize, at: (i32, i32), color: RGBColor) -> Drawn {
    let (x, y) = at;
    let filled = color.filled();
    match number % 8 {
        0 => area.draw(&Circle::new(at, 4, filled)),
        1 => area.draw(&Rectangle::new([(x - 3, y - 3), (x + 3, y + 3)], filled)),
        2 => area.draw(&TriangleMarker::new(at, 5, filled)),
        3 => {
            let diamond = vec![(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)];
            area.draw(&Polygon::new(diamond, filled))
        }
        4 => area.draw(&Cross::new(at, 3, color.stroke_width(2))),
        5 => area.draw(&Circle::new(at, 3, color.stroke_width(2))),
        6 => {
            let down = vec![(x - 4, y - 4), (x + 4, y - 4), (x, y + 4)];
            area.draw(&Polygon::new(down, filled))
        }
        _ => area.draw(&Rectangle::new([(x - 3, y - 3), (x + 3, y + 3)], color.stroke_width(2))),
    }
}

/// Sorted places moved so that none is closer than [`APART`] to the one before it, within limits where there is room.
fn apart(wanted: &[i32], (top, bottom): (i32, i32)) -> Vec<i32> {
    let mut places = wanted.to_vec();
    let mut least = top;
    for place in &mut places {
        *place = (*place).max(least);
        least = *place + APART;
    }
    let mut most = bottom;
    for place in places.iter_mut().rev() {
        *place = (*place).min(most);
        most = *place - APART;
    }
    places
}

/// The least and the largest logarithm, with a share of their distance as room.
fn spread(logs: impl Iterator<Item = f64>, share: f64) -> (f64, f64) {
    let (low, high) = logs
        .filter(|log| log.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return (0.0, 1.0);
    }
    let room = ((high - low) * share).max(0.02);
    (low - room, high + room)
}

/// Times that get a line: 1, 2 and 5 of each decade, or the decades alone where there are many.
fn ticks((low, high): (f64, f64)) -> Vec<(f64, String)> {
    let decades = (high - low) / std::f64::consts::LN_10;
    let steps: &[f64] = match decades {
        d if d < 1.2 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
        d if d < 4.0 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let all = (-1..12).flat_map(|decade| steps.iter().map(move |s| s * 10_f64.powi(decade)));
    let inside = all.filter(|ns| (low..=high).contains(&ns.ln()));
    inside.map(|ns| (ns, short(ns))).collect()
}

/// A time of one or two digits.
fn short(ns: f64) -> String {
    let (value, unit) = match ns {
        v if v < 1e3 => (v, "ns"),
        v if v < 1e6 => (v / 1e3, "us"),
        v if v < 1e9 => (v / 1e6, "ms"),
        v => (v / 1e9, "s"),
    };
    // The dust of a power of ten is rounded away.
    format!("{} {unit}", (value * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_moved_apart_and_stay_inside() {
        let places = apart(&[100, 101, 102, 300], (40, 310));
        assert_eq!(places, [100, 115, 130, 300]);
        let places = apart(&[305, 306, 307], (40, 310));
        assert_eq!(places, [280, 295, 310]);
        assert!(apart(&[], (0, 10)).is_empty());
    }

    #[test]
    fn ticks_are_round_times() {
        let texts = |low: f64, high: f64| -> Vec<String> {
            ticks((low.ln(), high.ln())).into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(
            texts(900.0, 6000.0),
            ["1 us", "1.5 us", "2 us", "3 us", "4 us", "5 us", "6 us"]
        );
        assert_eq!(texts(90.0, 60_000.0)[..3], ["100 ns", "200 ns", "500 ns"]);
        assert_eq!(texts(1.5e6, 1.6e9).len(), 9);
    }
}
