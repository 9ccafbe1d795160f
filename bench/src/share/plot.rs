//! The results as a picture: what each class has been served, over completions.

use std::error::Error;

use plotters::prelude::*;

use super::Measured;
use super::run::{Run, Workload};
use crate::shown::{self, Area, COLOURS, GRID, GUIDE, INK, Picture, font};

/// Panels side by side.
const PANELS_PER_ROW: usize = 3;
/// Size of a panel \[px\].
const PANEL: (u32, u32) = (400, 340);
/// Height of the title \[px\].
const TITLE: u32 = 44;
/// Points per line; more would not be seen.
const POINTS: usize = 400;
/// The picture as SVG: a panel for each arm, a line for each class and run.
pub(super) fn svg(load: &Workload, results: &[Measured]) -> Picture {
    let columns = results.len().clamp(1, PANELS_PER_ROW);
    let rows = results.len().div_ceil(columns).max(1);
    let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32 + TITLE);
    shown::svg(size, |root| {
        let (title, panels) = root.split_vertically(TITLE);
        title.draw_text("Cumulative service of each class over completions", &font(19, INK), (20, 16))?;
        for (area, measured) in panels.split_evenly((rows, columns)).iter().zip(results) {
            panel(area, load, measured)?;
        }
        Ok(())
    })
}

fn panel(area: &Area<'_>, load: &Workload, measured: &Measured) -> Result<(), Box<dyn Error>> {
    let unit = load.cost as f64 / 1_000.0;
    let (x_end, y_end) = (load.total() as f64, load.requests as f64 * unit * 1.04);
    let quanta: Vec<_> = measured.arm.quanta.iter().map(u64::to_string).collect();
    let caption = format!("{}, {}", measured.arm.name, quanta.join(" : "));
    let mut chart = ChartBuilder::on(area)
        .margin_left(10)
        .margin_right(20)
        .margin_bottom(8)
        .caption(caption, font(16, INK))
        .x_label_area_size(42)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..x_end, 0.0..y_end)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GUIDE)
        .label_style(font(12, INK))
        .axis_desc_style(font(13, INK))
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .x_desc("completions")
        .y_desc("served [1000 tokens]")
        .draw()?;

    let mark = load.requests as f64;
    chart.draw_series(DashedLineSeries::new([(mark, 0.0), (mark, y_end)], 4, 4, GUIDE.stroke_width(1)))?;
    let label = format!("first {}", load.requests);
    chart
        .draw_series([EmptyElement::at((mark, y_end * 0.06)) + Text::new(label, (5, 0), font(12, GUIDE))])?;

    for (class, name) in load.classes.iter().enumerate() {
        let colour = COLOURS[class % COLOURS.len()];
        // The first is the widest, so that lines at the same place are all seen.
        let width = 2 + 2 * (load.classes.len() - 1 - class).min(3) as u32;
        for (i, run) in measured.runs.iter().enumerate() {
            let line = LineSeries::new(service(run, class, unit), colour.stroke_width(width));
            let drawn = chart.draw_series(line)?;
            if i == 0 {
                drawn.label(&**name).legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(width))
                });
            }
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .margin(8)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font(font(13, INK))
        .draw()?;
    Ok(())
}

/// A number on an axis, without digits that say nothing.
fn number(value: &f64) -> String {
    ((value * 1_000.0).round() / 1_000.0).to_string()
}

/// What `class` has been served after each completion, thinned out \[completions, units\].
fn service(run: &Run, class: usize, unit: f64) -> Vec<(f64, f64)> {
    let mut served = 0.0;
    let all = run.completions.iter().enumerate().map(|(i, &c)| {
        if c == class {
            served += unit;
        }
        ((i + 1) as f64, served)
    });
    let every = run.completions.len().div_ceil(POINTS).max(1);
    let last = run.completions.len();
    let kept = all.filter(|(x, _)| (*x as usize).is_multiple_of(every) || *x as usize == last);
    std::iter::once((0.0, 0.0)).chain(kept).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use super::*;

    fn run(completions: Vec<usize>) -> Run {
        Run {
            completions,
            requests: 2,
            waited: vec![Histogram::new(3).unwrap(), Histogram::new(3).unwrap()],
            refused: vec![0, 0],
            elapsed: Duration::from_secs(1),
        }
    }

    #[test]
    fn service_starts_at_nothing_and_grows_with_the_own_completions_only() {
        let run = run(vec![0, 1, 0]);
        assert_eq!(service(&run, 0, 0.5), [(0.0, 0.0), (1.0, 0.5), (2.0, 0.5), (3.0, 1.0)]);
        assert_eq!(service(&run, 1, 0.5), [(0.0, 0.0), (1.0, 0.0), (2.0, 0.5), (3.0, 0.5)]);
    }

    #[test]
    fn a_long_line_is_thinned_out_and_keeps_its_end() {
        let run = run(vec![0; 10 * POINTS + 1]);
        let line = service(&run, 0, 1.0);
        assert!(line.len() <= POINTS + 2, "{}", line.len());
        assert_eq!(*line.last().unwrap(), ((10 * POINTS + 1) as f64, (10 * POINTS + 1) as f64));
    }
}
