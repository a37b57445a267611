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
pub(super) const QUIET: RGBColor = RGBColor(0x5d, 0x65, 0x71);
pub(super) const FIRST: RGBColor = RGBColor(0x2f, 0x62, 0xc9);
pub(super) const SECOND: RGBColor = RGBColor(0xd2, 0x6a, 0x1b);
pub(super) const THIRD: RGBColor = RGBColor(0x7b, 0x47, 0xb8);
pub(super) const FOURTH: RGBColor = RGBColor(0x0f, 0x85, 0x8c);
pub(super) const FIFTH: RGBColor = RGBColor(0xd6, 0x40, 0x8f);
pub(super) const SIXTH: RGBColor = RGBColor(0x7a, 0x5c, 0x00);
pub(super) const SEVENTH: RGBColor = RGBColor(0x55, 0x00, 0x66);

/// Providers side by side, the candidate first. The first six stay apart under every common color blindness, on a light page
/// and on a dark one; shapes and names beside the lines say the same again.
const PROVIDERS: [RGBColor; 8] = [FIRST, SECOND, FOURTH, FIFTH, SIXTH, INK, SEVENTH, THIRD];

/// The color of the provider with this number.
pub(super) fn provider(number: usize) -> RGBColor {
    PROVIDERS.get(number).copied().unwrap_or(QUIET)
}

/// Every color with the custom property that carries it.
const PROPERTIES: [(RGBColor, &str); 15] = [
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
    (FIFTH, "fifth"),
    (SIXTH, "sixth"),
    (SEVENTH, "seventh"),
];

/// What plotters writes on every element, and the less that means the same; the font's family is on the root.
const DEFAULTS: [(&str, &str); 7] = [
    (" opacity=\"1\"", ""),
    (" stroke=\"none\"", ""),
    (" text-anchor=\"start\"", ""),
    (" font-family=\"sans-serif\"", ""),
    (" stroke-width=\"1\"", ""),
    (".000000000000002\"", "\""),
    ("\n</text>", "</text>"),
];

/// The plot as a part of a page that has the custom properties: without fallbacks and namespace.
pub(crate) fn inline(svg: &str) -> String {
    let mut text = svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
    for (RGBColor(r, g, b), name) in PROPERTIES {
        let long = format!("var(--{name}, #{r:02X}{g:02X}{b:02X})");
        text = text.replace(&long, &format!("var(--{name})"));
    }
    text
}

/// The page's own style, whose first rules give every custom property its light and its dark value.
const STYLE: &str = include_str!("../html/style.css");

/// The plot as a file of its own: with the custom properties of the page, light and dark, and a ground.
pub(super) fn standalone(svg: &str) -> String {
    let properties = STYLE.split("\n* {").next().unwrap_or_default();
    let ground = "<rect width=\"100%\" height=\"100%\" fill=\"var(--page, #FFFFFF)\"/>";
    match svg.split_once('>') {
        Some((root, rest)) => format!("{root}>\n<style>{properties}</style>\n{ground}{rest}"),
        None => svg.to_owned(),
    }
}

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
    for (long, short) in DEFAULTS {
        text = text.replace(long, short);
    }
    let text = dots(&text);
    let label = label.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    let root = format!("<svg role=\"img\" aria-label=\"{label}\" font-family=\"sans-serif\" ");
    text.replacen("<svg ", &root, 1)
}

/// Small filled circles of one color become one path with round ends: a page of a thousand cells has some hundred
/// thousand of them, and as elements of their own they would be most of it.
fn dots(svg: &str) -> String {
    let mut paths: Vec<Dots<'_>> = Vec::new();
    let mut out = String::with_capacity(svg.len());
    for line in svg.lines() {
        if let Some((x, y, fill)) = dot(line) {
            match paths.iter_mut().find(|path| path.fill == fill) {
                Some(path) => path.add(x, y),
                None => paths.push(Dots::new(x, y, fill)),
            }
            continue;
        }
        if line == "</svg>" {
            paths.drain(..).for_each(|path| out.push_str(&path.element()));
        }
        out.push_str(&lowered(line).unwrap_or_else(|| line.to_owned()));
        // The text of a text element is on the next line.
        if !line.starts_with("<text ") {
            out.push('\n');
        }
    }
    out
}

/// Dots of one color: a path of moves, each relative to the last, and strokes of no length.
struct Dots<'a> {
    fill: &'a str,
    path: String,
    last: (i32, i32),
}

impl<'a> Dots<'a> {
    fn new(x: i32, y: i32, fill: &'a str) -> Self {
        Self { fill, path: format!("M{x} {y}h0"), last: (x, y) }
    }

    fn add(&mut self, x: i32, y: i32) {
        let (across, down) = (x - self.last.0, y - self.last.1);
        let between = if down < 0 { "" } else { " " };
        self.path.push_str(&format!("m{across}{between}{down}h0"));
        self.last = (x, y);
    }

    fn element(&self) -> String {
        let Self { fill, path, .. } = self;
        format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{fill}\" stroke-width=\"4\" stroke-linecap=\"round\"/>\n"
        )
    }
}

/// A text element whose baseline is in `y` instead of in a shift by its size.
fn lowered(line: &str) -> Option<String> {
    let rest = line.strip_prefix("<text x=\"")?;
    let (x, rest) = rest.split_once("\" y=\"")?;
    let (y, rest) = rest.split_once("\" dy=\"0.76em\" font-size=\"")?;
    let (size, rest) = rest.split_once('"')?;
    let baseline = y.parse::<f64>().ok()? + 0.76 * size.parse::<f64>().ok()?;
    Some(format!("<text x=\"{x}\" y=\"{baseline:.0}\" font-size=\"{size}\"{rest}"))
}

/// Center and color of a line that is a filled circle of radius 2.
fn dot(line: &str) -> Option<(i32, i32, &str)> {
    let rest = line.strip_prefix("<circle cx=\"")?.strip_suffix("\"/>")?;
    let (x, rest) = rest.split_once("\" cy=\"")?;
    let (y, rest) = rest.split_once("\" r=\"2\"")?;
    let (_, rest) = rest.split_once("fill=\"")?;
    let fill = rest.split_once('"').map_or(rest, |(fill, _)| fill);
    let place = (x.parse().ok()?, y.parse().ok()?);
    (fill != "none").then_some((place.0, place.1, fill))
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
        assert!(drawn.contains("d=\"M1 7h0m1 0h0\" fill=\"none\" stroke=\"red\""), "{drawn}");
        assert!(drawn.contains(&circle(3, 4)), "{drawn}");
        assert_eq!(drawn.matches("<path").count(), 1);
    }

    #[test]
    fn a_file_of_its_own_has_every_property_light_and_dark() {
        let svg = standalone("<svg width=\"1\">\n</svg>");
        for (_, name) in PROPERTIES {
            assert_eq!(svg.matches(&format!("--{name}: #")).count(), 2, "{name}");
        }
        assert!(svg.contains("prefers-color-scheme: dark") && svg.contains("var(--page"));
    }

    #[test]
    fn colors_become_custom_properties_with_a_fallback() {
        let svg = dress("<svg width=\"1\"><line stroke=\"#1C1F24\"/></svg>", "a < b");
        assert!(svg.contains("stroke=\"var(--ink, #1C1F24)\""), "{svg}");
        assert!(svg.contains("aria-label=\"a &lt; b\""), "{svg}");
    }
}
