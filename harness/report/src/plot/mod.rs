//! Plots, by plotters, as SVG text. Colors are custom properties with a fallback, so that one plot serves a light page, a
//! dark page, print, and a file of its own.

mod forest;
mod intervals;
mod matrix;
mod palette;
mod scatter;
mod sizes;
mod standings;

pub use forest::forest;
pub use intervals::intervals;
pub use matrix::matrix;
pub use scatter::scatter;
pub use sizes::sizes;
pub use standings::standings;

pub(crate) use palette::inline;
pub(crate) use sizes::longest;
pub(crate) use standings::{deepest, in_order, over_first, shade, times};

use plotters::coord::Shift;
use plotters::prelude::*;

/// A plot that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the plot of {what} could not be drawn: {cause}")]
pub struct PlotError {
    /// What was to be drawn.
    pub what: String,
    /// What the drawing library says.
    pub cause: String,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws into an SVG of a size and gives its text. `label` is what a screen reader says.
fn draw(
    what: &str,
    label: &str,
    size: (u32, u32),
    paint: impl FnOnce(&Area<'_>) -> Result<(), DrawingAreaErrorKind<std::io::Error>>,
) -> Result<String, PlotError> {
    let error = |cause: DrawingAreaErrorKind<std::io::Error>| PlotError {
        what: what.to_owned(),
        cause: cause.to_string(),
    };
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        paint(&area).map_err(error)?;
        area.present().map_err(error)?;
    }
    Ok(palette::dress(&text, label))
}

/// Text of a size in pixels in a color of the palette. Plotters' size is the height of a line, which is 1.24 times that.
fn font(size: u32, color: RGBColor) -> TextStyle<'static> {
    ("sans-serif", f64::from(size) * 1.24).into_font().color(&color)
}

/// Room in pixels that a text of a size needs, by the widest of common sans-serif fonts.
fn width(text: &str, size: u32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * 0.62).ceil() as i32
}

/// Room in pixels that the longest of some texts needs, at least `least`.
fn widest<'a>(texts: impl Iterator<Item = &'a str>, size: u32, least: i32) -> i32 {
    texts.map(|text| width(text, size)).chain([least]).max().unwrap_or(least)
}

/// The least and the largest of finite values, widened a little; a default where there are none.
fn bounds(values: impl Iterator<Item = f64>, default: (f64, f64)) -> (f64, f64) {
    let (low, high) = values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return default;
    }
    let room = ((high - low) * 0.06).max(high.abs() * 1e-3).max(f64::MIN_POSITIVE);
    (low - room, high + room)
}
