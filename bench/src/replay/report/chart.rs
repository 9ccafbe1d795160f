//! The results as pictures: SVG that follows the reader's light or dark scheme.

use std::error::Error;

use plotters::prelude::*;

use super::super::stats::{Outcome, Row};
use super::{Measured, digits, percent, rows};
use crate::shown::{self, Area, COLOURS, GRID, GUIDE, INK, PAPER, Picture, font};

const WIDTH: u32 = 920;
/// Height of a panel and of the title above all [px].
const PANEL: u32 = 165;
const TITLE: u32 = 62;
const MARGIN: i32 = 14;
/// Width of the scales [px].
const SCALE: u32 = 62;
/// Lines and areas at most in a panel.
const MOST: usize = 7;
/// Draws into SVG of this height.
fn svg(height: u32, draw: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn Error>>) -> Picture {
    shown::svg((WIDTH, height), draw)
}

/// A title with the names of the colours under it.
fn heading(area: &Area<'_>, title: &str, names: &[String]) -> Result<(), Box<dyn Error>> {
    area.draw_text(title, &font(18, INK), (MARGIN, 12))?;
    let mut x = MARGIN;
    for (name, colour) in names.iter().zip(COLOURS) {
        area.draw(&Rectangle::new([(x, 42), (x + 11, 53)], colour.filled()))?;
        area.draw_text(name, &font(13, INK), (x + 16, 41))?;
        let (width, _) = area.estimate_text_size(name, &font(13, INK))?;
        x += 16 + width as i32 + 22;
    }
    Ok(())
}

/// The classes that get a colour each; the last one may be all others together.
fn shown(outcome: &Outcome) -> Vec<(String, Vec<usize>)> {
    let drawn = |i: &usize| Row::Served(*i).place().is_some();
    let mut order: Vec<usize> = (0..outcome.classes.len()).filter(drawn).collect();
    let name = |i: usize| outcome.classes[i].name.to_string();
    if order.len() <= MOST {
        return order.into_iter().map(|i| (name(i), vec![i])).collect();
    }
    order.sort_by_key(|&i| std::cmp::Reverse(outcome.classes[i].counts.served));
    let others = order.split_off(MOST - 1);
    let mut shown: Vec<_> = order.into_iter().map(|i| (name(i), vec![i])).collect();
    shown.push((format!("{} others", others.len()), others));
    shown
}

/// Service, queues and waiting times of the classes over time.
pub(crate) fn timeline(title: &str, outcome: &Outcome) -> Picture {
    let line = &outcome.timeline;
    let shown = shown(outcome);
    let names: Vec<_> = shown.iter().map(|(name, _)| name.clone()).collect();
    let sum = |members: &[usize], row: fn(usize) -> Row, bin: usize| -> f64 {
        let places = members.iter().filter_map(|&i| row(i).place());
        places.map(|place| line.get(place, bin)).sum()
    };
    let bins: Vec<usize> = (0..line.len()).filter(|&bin| line.time_in(bin) > 0).collect();
    let (unit, unit_name) = match outcome.duration as f64 / 1e9 {
        ..180.0 => (1e9, "s"),
        ..7_200.0 => (60e9, "min"),
        _ => (3_600e9, "h"),
    };
    let middle = |bin: usize| (bin as f64 * line.width() as f64 + line.time_in(bin) as f64 / 2.0) / unit;
    let series = |value: &dyn Fn(&[usize], usize) -> Option<f64>| -> Vec<Vec<(f64, f64)>> {
        let of = |members: &[usize]| {
            bins.iter().filter_map(|&bin| Some((middle(bin), value(members, bin)?))).collect()
        };
        shown.iter().map(|(_, members)| of(members)).collect()
    };
    let time = |bin: usize| line.time_in(bin) as f64;
    let served = series(&|members, bin| Some(sum(members, Row::Served, bin) / time(bin) * 1e9 / 1e3));
    let queue = series(&|members, bin| Some(sum(members, Row::Queue, bin) / time(bin)));
    let waited = series(&|members, bin| {
        let count = sum(members, Row::Dispatched, bin);
        (count > 0.0).then(|| sum(members, Row::Waited, bin) / count / 1e9)
    });
    // Where a class's due is a few requests only, its share is a matter of whose turn it just was.
    let fair = series(&|members, bin| {
        let (received, due) = (sum(members, Row::Received, bin), sum(members, Row::Due, bin));
        let turn = members.iter().map(|&i| outcome.classes[i].turn()).fold(0.0, f64::max);
        (due > 10.0 * turn).then(|| received / due * 100.0)
    });
    let busy = Row::Busy.place().expect("there is one");
    let workers = outcome.workers.len() as f64;
    let busy: Vec<_> =
        bins.iter().map(|&bin| (middle(bin), line.get(busy, bin) / time(bin) / workers * 100.0)).collect();
    let end = outcome.duration as f64 / unit;
    let step = line.width() as f64 / unit;

    svg(TITLE + 5 * PANEL + 26, |root| {
        let (head, rest) = root.split_vertically(TITLE);
        heading(&head, title, &names)?;
        let panel = |i: u32, name: &str, top: f64| {
            let last = i == 4;
            let height = PANEL + if last { 26 } else { 0 };
            let (_, below) = rest.split_vertically(i * PANEL);
            let (area, _) = below.split_vertically(height);
            Panel { area, name: name.to_owned(), end, top, x: last.then(|| format!("time [{unit_name}]")) }
        };
        stacked(panel(0, "served [1000 tokens/s]", 0.0), &served)?;
        lines(panel(1, "of its due [%]", 150.0), &fair, step)?;
        lines(panel(2, "requests waiting", 1.0), &queue, step)?;
        lines(panel(3, "mean wait [s]", 1e-3), &waited, step)?;
        let workers = panel(4, "workers busy [%]", 104.0);
        let mut chart = workers.build(0.0)?;
        chart.draw_series(AreaSeries::new(busy, 0.0, GUIDE.mix(0.35)).border_style(GUIDE))?;
        Ok(())
    })
}

/// One chart of several on the same time.
struct Panel<'a> {
    area: Area<'a>,
    name: String,
    end: f64,
    /// Least top of the scale.
    top: f64,
    x: Option<String>,
}

type Chart<'c, 'a> = ChartContext<
    'c,
    SVGBackend<'a>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

impl<'a> Panel<'a> {
    fn build(&self, most: f64) -> Result<Chart<'_, 'a>, Box<dyn Error>> {
        let top = if most > self.top { most * 1.06 } else { self.top };
        let mut chart = ChartBuilder::on(&self.area)
            .margin_left(MARGIN)
            .margin_right(24)
            .margin_top(8)
            .margin_bottom(if self.x.is_some() { 4 } else { 10 })
            .x_label_area_size(if self.x.is_some() { 38 } else { 0 })
            .y_label_area_size(SCALE)
            .build_cartesian_2d(0.0..self.end.max(1e-9), 0.0..top)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GUIDE)
            .label_style(font(12, INK))
            .axis_desc_style(font(13, INK))
            .x_labels(9)
            .y_labels(5)
            .x_label_formatter(&|v| digits(*v))
            .y_label_formatter(&|v| digits(*v))
            .x_desc(self.x.as_deref().unwrap_or(""))
            .y_desc(self.name.as_str())
            .draw()?;
        Ok(chart)
    }
}

fn stacked(panel: Panel<'_>, series: &[Vec<(f64, f64)>]) -> Result<(), Box<dyn Error>> {
    let points = series.first().map_or(0, Vec::len);
    let mut tops = vec![0.0; points];
    let mut areas = Vec::new();
    for line in series {
        let top = line.iter().zip(&mut tops).map(|((x, value), top)| {
            *top += value;
            (*x, *top)
        });
        areas.push(top.collect::<Vec<_>>());
    }
    let most = tops.iter().copied().fold(0.0, f64::max);
    let mut chart = panel.build(most)?;
    // The highest first: those below are drawn over it.
    for (area, colour) in areas.into_iter().zip(COLOURS).rev() {
        chart.draw_series(AreaSeries::new(area, 0.0, colour))?;
    }
    Ok(())
}

/// Lines of points that are `step` apart.
fn lines(panel: Panel<'_>, series: &[Vec<(f64, f64)>], step: f64) -> Result<(), Box<dyn Error>> {
    let most = series.iter().flatten().map(|(_, value)| *value).fold(0.0, f64::max);
    let mut chart = panel.build(most)?;
    for (line, colour) in series.iter().zip(COLOURS) {
        // No line over times for which there is nothing to say.
        for part in line.chunk_by(|a, b| b.0 - a.0 <= 1.5 * step) {
            let points =
                if let [(x, y)] = part { &[(x - step / 2.0, *y), (x + step / 2.0, *y)][..] } else { part };
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        }
    }
    Ok(())
}

/// Time to the first token of every row under every policy: the median, and the tail up to one in a hundred.
pub(crate) fn spread(title: &str, results: &[Measured]) -> Picture {
    const ROW: u32 = 26;
    const LABEL: u32 = 190;
    let mut names: Vec<String> = Vec::new();
    for measured in results {
        for (name, _) in rows(&measured.outcome) {
            // With groups, a class that only some policies have says nothing new.
            let everywhere =
                || results.iter().all(|other| rows(&other.outcome).iter().any(|(row, _)| *row == name));
            let wanted = measured.outcome.groups.is_empty() || everywhere();
            if wanted && name != "all" && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.push("all".into());
    // Of every row, the policies that have it.
    let mut table: Vec<(String, usize, [f64; 3])> = Vec::new();
    let mut groups = Vec::new();
    for name in &names {
        let before = table.len();
        for (i, measured) in results.iter().enumerate().take(COLOURS.len()) {
            let rows = rows(&measured.outcome);
            let Some((_, counts)) = rows.iter().find(|(row, _)| row == name) else { continue };
            let at = [0.5, 0.9, 0.99].map(|q| counts.first_token.quantile(q));
            if let [Some(p50), Some(p90), Some(p99)] = at {
                table.push((name.clone(), i, [p50, p90, p99].map(|ms| ms.max(0.1))));
            }
        }
        if table.len() > before {
            groups.push((name.clone(), before, table.len()));
        }
    }
    let least = table.iter().map(|(_, _, p)| p[0]).fold(f64::MAX, f64::min);
    let most = table.iter().map(|(_, _, p)| p[2]).fold(1.0, f64::max);
    let range = (least.min(most) * 0.6)..(most * 2.2);
    let height = TITLE + ROW * table.len() as u32 + 10 * groups.len() as u32 + 58;
    let policies: Vec<_> = results.iter().map(|measured| measured.name.clone()).collect();

    svg(height, |root| {
        let (head, body) = root.split_vertically(TITLE);
        heading(&head, title, &policies)?;
        let total = f64::from(height - TITLE - 50);
        let mut chart = ChartBuilder::on(&body)
            .margin_left(MARGIN)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(LABEL)
            .build_cartesian_2d(range.log_scale(), 0.0..total)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GUIDE)
            .label_style(font(12, INK))
            .axis_desc_style(font(13, INK))
            .y_labels(0)
            .x_labels(6)
            .x_label_formatter(&|ms| time(*ms))
            .x_desc("time to first token: ● p50, | p90, ○ p99")
            .draw()?;
        let mut y = total - 8.0;
        for (name, from, to) in groups {
            let middle = y - f64::from(ROW) * (to - from) as f64 / 2.0;
            let (left, middle) = chart.backend_coord(&(least * 0.61, middle));
            let at = (left - LABEL as i32 + 8, middle - 7);
            let label: String = name.chars().take(30).collect();
            // Positions of the chart count from the corner of the whole picture.
            root.draw_text(&label, &font(13, INK), at)?;
            for (_, policy, [p50, p90, p99]) in &table[from..to] {
                let colour = COLOURS[*policy];
                let at = y - f64::from(ROW) / 2.0;
                chart.draw_series([PathElement::new([(*p50, at), (*p99, at)], colour.stroke_width(2))])?;
                let tick = [(*p90, at - 5.0), (*p90, at + 5.0)];
                chart.draw_series([PathElement::new(tick, colour.stroke_width(2))])?;
                chart.draw_series([Circle::new((*p99, at), 5, PAPER.filled())])?;
                chart.draw_series([Circle::new((*p99, at), 5, colour.stroke_width(2))])?;
                chart.draw_series([Circle::new((*p50, at), 5, colour.filled())])?;
                let text = EmptyElement::at((*p99, at)) + Text::new(time(*p99), (10, -7), font(11, GUIDE));
                chart.draw_series([text])?;
                y -= f64::from(ROW);
            }
            y -= 10.0;
        }
        Ok(())
    })
}

/// Milliseconds as a person says them.
fn time(ms: f64) -> String {
    if ms < 1_000.0 { format!("{} ms", digits(ms)) } else { format!("{} s", digits(ms / 1_000.0)) }
}

/// How busy each worker was, the busiest first, and how much of its prompts it had cached.
pub(crate) fn workers(title: &str, outcome: &Outcome) -> Picture {
    let duration = outcome.duration.max(1) as f64;
    let mut all: Vec<_> = outcome
        .workers
        .iter()
        .map(|w| (w.work.busy as f64 / duration * 100.0, w.hits as f64 / w.prompts.max(1) as f64 * 100.0))
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    // A bar each, or one for several alike.
    let every = all.len().div_ceil(256).max(1);
    let bars: Vec<_> = all
        .chunks(every)
        .map(|some| {
            let mean = |f: fn(&(f64, f64)) -> f64| some.iter().map(f).sum::<f64>() / some.len() as f64;
            (mean(|w| w.0), mean(|w| w.1))
        })
        .collect();
    let end = all.len() as f64;
    svg(TITLE + PANEL + 26, |root| {
        let (head, area) = root.split_vertically(TITLE);
        heading(&head, title, &["busy [% of the time]".into(), "cached [% of the prompts]".into()])?;
        let panel =
            Panel { area, name: "%".into(), end, top: 104.0, x: Some("workers, the busiest first".into()) };
        let mut chart = panel.build(0.0)?;
        let step = every as f64;
        for (i, (busy, cached)) in bars.iter().enumerate() {
            let (from, to) = (i as f64 * step, ((i + 1) as f64 * step).min(end));
            let gap = (to - from) * if bars.len() > 100 { 0.0 } else { 0.08 };
            let bar = [(from + gap, 0.0), (to - gap, *busy)];
            chart.draw_series([Rectangle::new(bar, COLOURS[0].filled())])?;
            let mark = [(from + gap, *cached), (to - gap, *cached)];
            chart.draw_series([PathElement::new(mark, COLOURS[1].stroke_width(3))])?;
        }
        Ok(())
    })
}

/// A point of a trade-off.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    /// What was set.
    pub(crate) label: String,
    /// Which colour: points of one series are alike in the first setting.
    pub(crate) series: usize,
    /// The two numbers.
    pub(crate) at: (f64, f64),
    /// Whether no other point is better in one number without being worse in the other.
    pub(crate) pareto: bool,
}

/// Two numbers of many runs against each other; the points that no other beats are joined.
pub(crate) fn tradeoff(title: &str, axes: (&str, &str), series: &[String], points: &[Point]) -> Picture {
    if points.is_empty() {
        return Err("no run has both numbers, there is nothing to draw".into());
    }
    let span = |pick: fn(&Point) -> f64| {
        let values = points.iter().map(pick);
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        let room = ((high - low) * 0.08).max(high.abs() * 0.01).max(1e-6);
        (low - room).max(if low >= 0.0 { 0.0 } else { f64::MIN })..high + room
    };
    let (xs, ys) = (span(|p| p.at.0), span(|p| p.at.1));
    // Over several powers of ten only a logarithm shows anything.
    let least = points.iter().map(|p| p.at.1).fold(f64::MAX, f64::min);
    let steep = least > 0.0 && ys.end / least > 10.0;
    let shape = |y: f64| if steep { y.log10() } else { y };
    let scale = if steep { least.log10() - 0.1..ys.end.log10() + 0.1 } else { ys };
    svg(TITLE + 420, |root| {
        let (head, area) = root.split_vertically(TITLE);
        heading(&head, title, &series[..series.len().min(COLOURS.len())])?;
        let mut chart = ChartBuilder::on(&area)
            .margin_left(MARGIN)
            .margin_right(40)
            .margin_top(8)
            .x_label_area_size(44)
            .y_label_area_size(SCALE + 8)
            .build_cartesian_2d(xs.clone(), scale.clone())?;
        let mut mesh = chart.configure_mesh();
        if steep {
            mesh.disable_y_mesh().y_labels(0);
        } else {
            mesh.y_labels(8);
        }
        mesh.bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GUIDE)
            .label_style(font(12, INK))
            .axis_desc_style(font(13, INK))
            .x_labels(8)
            .x_label_formatter(&|v| digits(*v))
            .y_label_formatter(&|v| digits(*v))
            .x_desc(axes.0)
            .y_desc(axes.1)
            .draw()?;
        if steep {
            let powers = (-9..=15).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
            for value in powers.filter(|value| scale.contains(&value.log10())) {
                let at = value.log10();
                let line = [(xs.start, at), (xs.end, at)];
                chart.draw_series([PathElement::new(line, GRID.stroke_width(1))])?;
                let (left, y) = chart.backend_coord(&(xs.start, at));
                let text = digits(value);
                let (width, _) = area.estimate_text_size(&text, &font(12, INK))?;
                // Positions of the chart count from the corner of the whole picture.
                root.draw_text(&text, &font(12, INK), (left - 8 - width as i32, y - 7))?;
            }
        }
        let mut front: Vec<_> = points.iter().filter(|p| p.pareto).collect();
        front.sort_by(|a, b| a.at.0.total_cmp(&b.at.0));
        let line: Vec<_> = front.iter().map(|p| (p.at.0, shape(p.at.1))).collect();
        chart.draw_series(DashedLineSeries::new(line, 5, 4, GUIDE.stroke_width(1)))?;
        for point in points {
            let colour = COLOURS[point.series % COLOURS.len()];
            let at = (point.at.0, shape(point.at.1));
            let (size, style) =
                if point.pareto { (6, colour.filled()) } else { (4, colour.mix(0.45).filled()) };
            chart.draw_series([Circle::new(at, size, style)])?;
        }
        // Names of the best (of all, if they are one series), as far as they do not stand on each other.
        let mut taken: Vec<(i32, i32)> = Vec::new();
        let others = points.iter().filter(|point| series.is_empty() && !point.pareto);
        for point in front.into_iter().chain(others) {
            let at = (point.at.0, shape(point.at.1));
            let (x, y) = chart.backend_coord(&at);
            if taken.iter().any(|(a, b)| (a - x).abs() < 90 && (b - y).abs() < 15) {
                continue;
            }
            taken.push((x, y));
            let left = x > WIDTH as i32 - 160;
            let (width, _) = area.estimate_text_size(&point.label, &font(11, INK))?;
            let shift = if left { -(width as i32) - 9 } else { 9 };
            chart.draw_series([
                EmptyElement::at(at) + Text::new(point.label.clone(), (shift, -14), font(11, INK))
            ])?;
        }
        Ok(())
    })
}

/// The title of a policy's pictures.
pub(crate) fn title(context: &super::Context, measured: &Measured) -> String {
    let [traffic, _] = context.head();
    format!(
        "{}: {traffic}, {} workers {} busy",
        measured.name,
        context.fleet.workers,
        percent(measured.outcome.utilisation())
    )
}
