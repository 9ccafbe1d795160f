//! The ratios as a bar chart.

use plotters::prelude::*;

use super::measure::Measured;
use crate::shown::{self, COLOURS, GRID, INK, Picture, font};

/// Height of a row \[px\].
const ROW: u32 = 34;
const WIDTH: u32 = 1_000;
/// Characters of a name that there is room for.
const MOST: usize = 56;
const MET: RGBColor = COLOURS[0];
const MISSED: RGBColor = COLOURS[1];

/// The picture as SVG: a bar for each row, its range, and a tick at the least ratio.
pub(super) fn svg(results: &[Measured]) -> Picture {
    let rows = results.len() as f64;
    let least = results.iter().map(|row| row.ratio().min).fold(1.0, f64::min) / 2.0;
    let most = results.iter().map(|row| row.ratio().max.max(row.bar)).fold(10.0, f64::max);
    shown::svg((WIDTH, ROW * results.len() as u32 + 100), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(12)
            .margin_right(40)
            .caption("Times faster than the peer; tick: the bar", font(18, INK))
            .x_label_area_size(40)
            .y_label_area_size(360)
            .build_cartesian_2d((least..most * 1.5).log_scale(), 0.0..rows)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GRID)
            .y_labels(0)
            .x_label_formatter(&|value| format!("{value}×"))
            .label_style(font(12, INK))
            .draw()?;
        for (i, row) in results.iter().enumerate() {
            let (ratio, at) = (row.ratio(), rows - i as f64 - 0.5);
            let colour = if row.met() { MET } else { MISSED };
            let bar = [(least, at - 0.3), (ratio.median, at + 0.3)];
            chart.draw_series([Rectangle::new(bar, colour.mix(0.75).filled())])?;
            let range = vec![(ratio.min, at), (ratio.max, at)];
            chart.draw_series([PathElement::new(range, INK.stroke_width(1))])?;
            let tick = vec![(row.bar, at - 0.42), (row.bar, at + 0.42)];
            chart.draw_series([PathElement::new(tick, INK.stroke_width(2))])?;
            let (_, y) = chart.backend_coord(&(1.0, at));
            let mut name: String = row.name.chars().take(MOST).collect();
            if name.len() < row.name.len() {
                name.push('…');
            }
            root.draw_text(&name, &font(12, INK), (12, y - 7))?;
        }
        Ok(())
    })
}
