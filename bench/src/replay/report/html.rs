//! The results as one page that needs nothing else: tables and pictures, light and dark.

use std::error::Error;
use std::fmt::Write;

use super::super::stats::Outcome;
use super::compare::{Verdict, differences};
use super::text::{conservation, service, times};
use super::{Context, Measured, chart, digits, percent, span, whole};

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #22262a; --paper: #ffffff; --soft: #6a7179; --line: #e2e5e8; --good: #00795a;
  --bad: #b34a00; --card: #f6f7f8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e6ea; --paper: #16191d; --soft: #9aa1a9; --line: #33383f;
  --good: #3ec99b; --bad: #ee7b2c; --card: #1d2126 } }
body { margin: 2.5rem auto; max-width: 62rem; padding: 0 1.25rem; color: var(--ink); background: var(--paper);
  font: 15px/1.55 system-ui, sans-serif }
h1 { font-size: 1.6rem; margin: 0 0 .3rem } h2 { font-size: 1.2rem; margin: 3rem 0 .4rem; border-top: 1px solid
  var(--line); padding-top: 1.4rem } p { margin: .3rem 0 } .soft { color: var(--soft) }
.cards { display: flex; flex-wrap: wrap; gap: .7rem; margin: 1rem 0 }
.card { background: var(--card); border-radius: .5rem; padding: .6rem .95rem; min-width: 7rem }
.card b { display: block; font-size: 1.3rem; font-weight: 600 } .card span { color: var(--soft); font-size: .82rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; margin: .9rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .22rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th { font-weight: 500; color: var(--soft); font-size: .82rem; vertical-align: bottom } th:first-child, td:first-child
  { text-align: left; padding-left: 0 } tr:last-child td { border-bottom: 0 }
.better { color: var(--good) } .worse { color: var(--bad) } svg { max-width: 100%; height: auto; display: block;
  margin: 1rem 0 }";

/// The page.
///
/// # Errors
/// A picture could not be drawn.
pub fn html(context: &Context, results: &[Measured]) -> Result<String, Box<dyn Error>> {
    let [traffic, workers] = context.head();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>What if: {title}</title>\n<style>\n{STYLE}\n</style>\n\
         <h1>What if: {title}</h1>\n<p class=\"soft\">{workers}</p>\n",
        title = escape(&traffic),
        workers = escape(&workers),
    );
    let title = "Time to first token";
    page += &inline(&chart::spread(title, results)?);
    if let [first, others @ ..] = results
        && !others.is_empty()
    {
        compared(&mut page, first, others)?;
    }
    for measured in results {
        let Measured { name, outcome } = measured;
        writeln!(page, "<h2>{}</h2>", escape(name))?;
        cards(&mut page, outcome)?;
        page += &inline(&chart::timeline(&chart::title(context, measured), outcome)?);
        table(&mut page, &service(outcome))?;
        table(&mut page, &times(outcome))?;
        writeln!(page, "<p class=\"soft\">{}.</p>", escape(&conservation(outcome)))?;
        page += &inline(&chart::workers(&format!("{name}: the workers"), outcome)?);
    }
    page += &words();
    Ok(page)
}

fn cards(page: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let all = &outcome.all;
    let optional = |ms: Option<f64>| ms.map_or("–".into(), |ms| format!("{} ms", digits(ms)));
    let cards = [
        (whole(all.arrived), "requests"),
        (span(outcome.duration), "until the last one is finished"),
        (percent(outcome.utilisation()), "workers busy"),
        (percent(outcome.hit_rate()), "of the prompts cached"),
        (optional(all.first_token.quantile(0.5)), "first token, p50"),
        (optional(all.first_token.quantile(0.99)), "first token, p99"),
        (whole(all.refused() + all.missed() + all.failed), "refused, late or failed"),
    ];
    page.push_str("<div class=\"cards\">");
    for (value, name) in cards {
        write!(page, "<div class=\"card\"><b>{value}</b><span>{name}</span></div>")?;
    }
    page.push_str("</div>\n");
    Ok(())
}

fn table(page: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    page.push_str("<div class=\"scroll\"><table>\n");
    for (i, row) in rows.iter().enumerate() {
        let tag = if i == 0 { "th" } else { "td" };
        page.push_str("<tr>");
        for cell in row {
            write!(page, "<{tag}>{}</{tag}>", escape(cell))?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
    Ok(())
}

fn compared(page: &mut String, first: &Measured, others: &[Measured]) -> std::fmt::Result {
    page.push_str("<h2>Differences</h2>\n<div class=\"scroll\"><table>\n<tr><th></th>");
    for name in std::iter::once(&first.name).chain(others.iter().map(|other| &other.name)) {
        write!(page, "<th>{}</th>", escape(name))?;
    }
    page.push_str("</tr>\n");
    let all: Vec<_> = others.iter().map(|other| differences(&first.outcome, &other.outcome)).collect();
    for row in &all[0] {
        let same = |list: &&Vec<super::Difference>| {
            let found = list.iter().find(|d| d.row == row.row && d.metric == row.metric);
            found.is_none_or(|d| d.verdict() == Verdict::Same)
        };
        if all.iter().filter(same).count() == all.len() {
            continue;
        }
        write!(page, "<tr><td>{} {}</td><td>{}</td>", escape(&row.row), row.metric, digits(row.before))?;
        for list in &all {
            match list.iter().find(|d| d.row == row.row && d.metric == row.metric) {
                None => page.push_str("<td>–</td>"),
                Some(difference) => {
                    let class = match difference.verdict() {
                        Verdict::Same => "soft",
                        Verdict::Better => "better",
                        Verdict::Worse => "worse",
                    };
                    write!(page, "<td class=\"{class}\">{}</td>", escape(&difference.text()))?;
                }
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
    Ok(())
}

/// What the columns mean.
fn words() -> String {
    "<h2>Words</h2>\n<p class=\"soft\"><b>tokens</b>: uncached prompt tokens at arrival, what deficit round robin charges. \
     <b>of its due</b>: what a class was served while it had a backlog, in percent of what its quantum entitled it to among \
     the classes that had one too. <b>waited</b>: arrival to dispatch. <b>late</b>: ended by a deadline, of the request or of \
     its class. <b>queue, most</b>: requests waiting, on average and at most. Times are virtual: the same seed gives the same \
     page.</p>\n"
        .into()
}

/// A picture inside a page: without the declaration that only a file may have.
fn inline(svg: &str) -> String {
    let start = svg.find("<svg").unwrap_or(0);
    svg[start..].trim_end().to_owned() + "\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
