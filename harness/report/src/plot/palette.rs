//! Colors. Plotters writes fixed colors; each of ours is then replaced by a custom property of the page, with the color
//! itself as the fallback.

use plotters::style::RGBColor;
use proofhouse_schema::verdict::{Speed, Verdict};

pub(super) const INK: RGBColor = RGBColor(0x1c, 0x1f, 0x24);
pub(super) const FAINT: RGBColor = RGBColor(0x6b, 0x72, 0x80);
pub(super) const GRID: RGBColor = RGBColor(0xe2, 0xe5, 0xea);
pub(super) const BAND: RGBColor = RGBColor(0xee, 0xf0, 0xf4);
pub(super) const GOOD: RGBColor = RGBColor(0x1a, 0x7f, 0x4b);
pub(super) const BAD: RGBColor = RGBColor(0xc2, 0x2f, 0x3d);
pub(super) const OPEN: RGBColor = RGBColor(0xa8, 0x6a, 0x04);
pub(super) const QUIET: RGBColor = RGBColor(0x8b, 0x93, 0xa1);
pub(super) const FIRST: RGBColor = RGBColor(0x2f, 0x62, 0xc9);
pub(super) const SECOND: RGBColor = RGBColor(0xd2, 0x6a, 0x1b);
pub(super) const THIRD: RGBColor = RGBColor(0x7b, 0x47, 0xb8);
pub(super) const FOURTH: RGBColor = RGBColor(0x0f, 0x85, 0x8c);

/// Every color with the custom property that carries it.
const PROPERTIES: [(RGBColor, &str); 12] = [
    (INK, "ink"),
    (FAINT, "faint"),
    (GRID, "grid"),
    (BAND, "band"),
    (GOOD, "good"),
    (BAD, "bad"),
    (OPEN, "open"),
    (QUIET, "quiet"),
    (FIRST, "first"),
    (SECOND, "second"),
    (THIRD, "third"),
    (FOURTH, "fourth"),
];

/// The color of a place within a block.
pub(super) const fn position(place: u32) -> RGBColor {
    match place % 4 {
        0 => FIRST,
        1 => SECOND,
        2 => THIRD,
        _ => FOURTH,
    }
}

/// The color of a speed verdict.
pub(super) const fn speed(speed: Speed) -> RGBColor {
    match speed {
        Speed::Win | Speed::Lead => GOOD,
        Speed::Loss | Speed::Trail => BAD,
        Speed::Parity | Speed::Even => QUIET,
        Speed::Inconclusive => OPEN,
    }
}

/// The color of a verdict.
pub(super) const fn verdict(verdict: Verdict) -> RGBColor {
    match verdict {
        Verdict::Pass => GOOD,
        Verdict::Fail | Verdict::Errored => BAD,
        Verdict::Inconclusive | Verdict::Invalid | Verdict::Unqualified => OPEN,
        Verdict::Unsupported | Verdict::NotRun => QUIET,
    }
}

/// Names the plot for screen readers, lets it shrink with the page, and swaps fixed colors for custom properties.
pub(super) fn dress(svg: &str, label: &str) -> String {
    let mut text = svg.to_owned();
    for (RGBColor(r, g, b), name) in PROPERTIES {
        let hex = format!("#{r:02X}{g:02X}{b:02X}");
        text = text.replace(&format!("\"{hex}\""), &format!("\"var(--{name}, {hex})\""));
    }
    let text = dots(&text.replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", ""));
    let label = label.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    text.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1)
}

/// Small filled circles of one color become one path with round ends: a page of a thousand cells has some hundred
/// thousand of them, and as elements of their own they would be most of it.
fn dots(svg: &str) -> String {
    let mut paths: Vec<(&str, String)> = Vec::new();
    let mut out = String::with_capacity(svg.len());
    for line in svg.lines() {
        match dot(line) {
            Some((x, y, fill)) => {
                let at = format!("M{x} {y}h0");
                match paths.iter_mut().find(|(color, _)| *color == fill) {
                    Some((_, path)) => path.push_str(&at),
                    None => paths.push((fill, at)),
                }
            }
            None if line == "</svg>" => {
                for (fill, path) in paths.drain(..) {
                    out.push_str(&format!(
                        "<path d=\"{path}\" stroke=\"{fill}\" stroke-width=\"4\" stroke-linecap=\"round\"/>\n"
                    ));
                }
                out.push_str("</svg>\n");
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// Center and color of a line that is a filled circle of radius 2.
fn dot(line: &str) -> Option<(&str, &str, &str)> {
    let rest = line.strip_prefix("<circle cx=\"")?.strip_suffix("\"/>")?;
    let (x, rest) = rest.split_once("\" cy=\"")?;
    let (y, rest) = rest.split_once("\" r=\"2\"")?;
    let (_, fill) = rest.split_once("fill=\"")?;
    (!fill.contains('"')).then_some((x, y, fill))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_of_a_color_become_one_path_and_other_marks_stay() {
        let circle =
            |x: u32, r: u32| format!("<circle cx=\"{x}\" cy=\"7\" r=\"{r}\" fill=\"red\"/>\n");
        let svg = format!("<svg>\n{}{}{}</svg>\n", circle(1, 2), circle(2, 2), circle(3, 4));
        let drawn = dots(&svg);
        assert!(drawn.contains("d=\"M1 7h0M2 7h0\" stroke=\"red\""), "{drawn}");
        assert!(drawn.contains(&circle(3, 4)), "{drawn}");
        assert_eq!(drawn.matches("<path").count(), 1);
    }

    #[test]
    fn colors_become_custom_properties_with_a_fallback() {
        let svg = dress("<svg width=\"1\"><line stroke=\"#1C1F24\"/></svg>", "a < b");
        assert!(svg.contains("stroke=\"var(--ink, #1C1F24)\""), "{svg}");
        assert!(svg.contains("aria-label=\"a &lt; b\""), "{svg}");
    }
}
