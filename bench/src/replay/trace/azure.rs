//! The Azure LLM inference traces of 2023 and 2024: `TIMESTAMP,ContextTokens,GeneratedTokens`.
//!
//! Patel et al., "Splitwise: Efficient Generative LLM Inference Using Phase Splitting", ISCA 2024.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::table::{rows, tokens};
use super::{Arrival, Checked, TraceError};

/// Columns by name, in any order; others are ignored.
const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

pub(super) fn read(
    path: Arc<Path>,
    reader: impl Read + Send + 'static,
) -> Result<impl Iterator<Item = Result<Arrival, TraceError>> + Send, TraceError> {
    let mut checked = Checked::new(path.clone());
    let rows = rows(path, reader, COLUMNS)?;
    Ok(rows.map(move |row| {
        let (line, [time, input, output]) = row?;
        let at = timestamp(&time).ok_or_else(|| {
            checked.fault(line, format!("TIMESTAMP: {time:?} is no time like 2023-11-16 18:17:03.9799600"))
        })?;
        let input = tokens(&input, COLUMNS[1]).map_err(|fault| checked.fault(line, fault))?;
        let output = tokens(&output, COLUMNS[2]).map_err(|fault| checked.fault(line, fault))?;
        checked.arrival(line, COLUMNS[0], at, Arrival { input, output, ..Arrival::default() })
    }))
}

/// `2023-11-16 18:17:03.9799600`, with an optional offset such as `+00:00`, as \[ns since 1970\].
fn timestamp(text: &str) -> Option<i128> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    if date.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (time, offset) = match time.find(['+', '-', 'Z']) {
        Some(at) => (&time[..at], offset_minutes(&time[at..])?),
        None => (time, 0),
    };
    let mut time = time.split(':');
    let (hour, minute) = (time.next()?.parse::<i64>().ok()?, time.next()?.parse::<i64>().ok()?);
    let second = time.next()?;
    let (second, fraction) = second.split_once('.').unwrap_or((second, ""));
    let second = second.parse::<i64>().ok()?;
    let in_range = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    if time.next().is_some() || !in_range || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = fraction.get(..fraction.len().min(9))?;
    let scale = 10i128.pow(9 - digits.len() as u32);
    let fraction = if digits.is_empty() { 0 } else { digits.parse::<i128>().ok()? * scale };
    let seconds = days(year, month, day) * 86_400 + (hour * 60 + minute - offset) * 60 + second;
    Some(i128::from(seconds) * 1_000_000_000 + fraction)
}

fn offset_minutes(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
    Some(if text.starts_with('-') { -minutes } else { minutes })
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_nanoseconds_of_the_calendar() {
        assert_eq!(timestamp("1970-01-01 00:00:00.0"), Some(0));
        assert_eq!(timestamp("2000-03-01 00:00:00.5"), Some(951_868_800_500_000_000));
        assert_eq!(timestamp("2023-11-16 18:17:03.9799600"), Some(1_700_158_623_979_960_000));
        assert_eq!(timestamp("2024-05-10T02:00:00.009930+02:00"), Some(1_715_299_200_009_930_000));
        assert_eq!(timestamp("2024-05-10 00:00:00.009930Z"), timestamp("2024-05-09 23:00:00.009930-01:00"));
        for wrong in
            ["", "5", "2023-13-01 00:00:00.0", "2023-01-01 24:00:00.0", "2023-01-01 1:2:3.x", "-- ::."]
        {
            assert_eq!(timestamp(wrong), None, "{wrong}");
        }
    }
}
