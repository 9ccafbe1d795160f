//! The command line of the comparison.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::idle::Idle;

/// Ends the help.
pub const EXIT_CODES: &str = "\
Exit code: 0 if the decisions agree and every bar is met, 1 if not or if the comparison failed, 2 if the command line
is wrong or the peer was not built in. With --quick bars are not judged.";

/// Exit code for a wrong command line, or a build without the peer.
const USAGE: u8 = 2;

/// Options of the comparison.
#[derive(Clone, Debug, clap::Args)]
#[cfg_attr(not(feature = "peer"), allow(dead_code, reason = "read by the comparison, which is not built in"))]
pub struct Args {
    /// Print one JSON document and nothing else
    #[arg(long)]
    json: bool,
    /// Where to write a bar chart of the ratios, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Only rows whose name contains this; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Pairs of measurements of each row [default: 7, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    samples: Option<u32>,
    /// Smaller backlogs and shorter samples, to see that everything works
    #[arg(long)]
    quick: bool,
    /// What our arbiter does when it has nothing to do, on the whole path
    #[arg(long, value_enum, default_value_t = Idle::Assist)]
    idle: Idle,
}

/// Says how to build the peer in.
#[cfg(not(feature = "peer"))]
pub fn main(_: &Args) -> ExitCode {
    eprintln!("the peer is not built in; it takes some minutes:");
    eprintln!("    cargo run --release -p tollgate-bench --features peer -- compare");
    ExitCode::from(USAGE)
}

/// Compares, and prints the results.
#[cfg(feature = "peer")]
pub fn main(args: &Args) -> ExitCode {
    use std::io::{self, Write};

    use super::measure::Effort;
    use super::{differences, plot, report, rows};

    let wanted = |name: &str| {
        let name = name.to_lowercase();
        args.only.is_empty() || args.only.iter().any(|only| name.contains(&only.to_lowercase()))
    };
    let rows: Vec<_> =
        rows::all(args.quick, args.idle).into_iter().filter(|row| wanted(row.name())).collect();
    if rows.is_empty() {
        eprintln!("no row has such a name; there are:");
        rows::all(args.quick, args.idle).iter().for_each(|row| eprintln!("    {}", row.name()));
        return ExitCode::from(USAGE);
    }
    let mut file = match args.plot.as_ref().map(std::fs::File::create).transpose() {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{}: {error}", args.plot.as_deref().unwrap_or("plot".as_ref()).display());
            return ExitCode::from(USAGE);
        }
    };
    let effort = Effort::new(args.quick, args.samples, args.idle);
    let mut results = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        eprintln!("[{}/{}] {}", i + 1, rows.len(), row.name());
        match row.measure(effort) {
            Ok(measured) => results.push(measured),
            Err(disagreement) => {
                eprintln!("{}: {disagreement}", row.name());
                return ExitCode::FAILURE;
            }
        }
    }
    let mut text = match args.json {
        true => format!("{:#}\n", report::json(&results, effort)),
        false => report::text(&results, effort) + &differences::text(),
    };
    if let (Some(file), Some(path)) = (&mut file, &args.plot) {
        let drawn = plot::svg(&results).and_then(|svg| Ok(file.write_all(svg.as_bytes())?));
        if let Err(error) = drawn {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
        if !args.json {
            text += &format!("\nplot: {}\n", path.display());
        }
    }
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        _ if args.quick || results.iter().all(|row| row.met()) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
