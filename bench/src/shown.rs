//! How results are shown: numbers, colours, pictures, and the machine that they come from.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::{Map, Value, json};

/// Digits in groups of three, from four on.
pub(crate) fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What an experiment ran on.
pub(crate) fn machine() -> Map<String, Value> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let load = read("/proc/loadavg");
    [
        ("cpu", json!(cpu.map(|(_, name)| name.trim()))),
        ("cores", json!(std::thread::available_parallelism().map_or(0, usize::from))),
        ("os", json!(std::env::consts::OS)),
        (
            "load_average_1min",
            json!(load.split_whitespace().next().and_then(|load| load.parse::<f64>().ok())),
        ),
        ("optimised", json!(!cfg!(debug_assertions))),
        ("tollgate", json!(env!("CARGO_PKG_VERSION"))),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

/// Told apart by colour-blind eyes too (Okabe and Ito), and seen on white and on black.
pub(crate) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(140, 140, 140),
];
pub(crate) const PAPER: RGBColor = RGBColor(255, 255, 255);
pub(crate) const INK: RGBColor = RGBColor(51, 51, 51);
pub(crate) const GRID: RGBColor = RGBColor(228, 228, 228);
pub(crate) const GUIDE: RGBColor = RGBColor(130, 130, 130);

/// The same colours on a dark page. The rules of a style sheet go before the attributes that are drawn.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) {\
    svg [fill=\"#FFFFFF\"] { fill: #16191d } svg [fill=\"#333333\"] { fill: #e3e6ea }\
    svg [stroke=\"#FFFFFF\"] { stroke: #16191d } svg [stroke=\"#333333\"] { stroke: #e3e6ea }\
    svg [stroke=\"#E4E4E4\"] { stroke: #33383f } svg [fill=\"#828282\"] { fill: #9aa1a9 }\
    svg [stroke=\"#828282\"] { stroke: #9aa1a9 } svg [fill=\"#0072B2\"] { fill: #5b8ff9 }\
    svg [stroke=\"#0072B2\"] { stroke: #5b8ff9 } svg [fill=\"#D55E00\"] { fill: #ee7b2c }\
    svg [stroke=\"#D55E00\"] { stroke: #ee7b2c } }</style>";

/// A picture, or why there is none.
pub(crate) type Picture = Result<String, Box<dyn Error>>;
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws into SVG of this size \[px\] that follows the reader's light or dark scheme.
pub(crate) fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn Error>>) -> Picture {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&PAPER)?;
        draw(&root)?;
        root.present()?;
    }
    // Right behind the opening tag.
    let at = text.find("<svg").and_then(|start| text[start..].find('>').map(|end| start + end + 1));
    text.insert_str(at.unwrap_or(0), DARK);
    Ok(text)
}

pub(crate) fn font(size: i32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        assert_eq!(
            ["0", "12", "123", "1234", "123456", "1234567"].map(grouped).join(" "),
            "0 12 123 1,234 123,456 1,234,567"
        );
    }

    #[test]
    fn a_picture_follows_the_readers_scheme() {
        let picture = svg((40, 20), |root| Ok(root.draw_text("x", &font(12, INK), (1, 1))?)).unwrap();
        let [start, style, drawn] =
            ["<svg", "prefers-color-scheme: dark", "<text"].map(|part| picture.find(part).expect(part));
        assert!(start < style && style < drawn, "{picture}");
    }
}
