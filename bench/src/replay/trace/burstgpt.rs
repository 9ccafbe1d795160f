//! BurstGPT: `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`, times in seconds.
//!
//! Wang et al., "BurstGPT: A Real-World Workload Dataset to Optimize LLM Serving Systems", KDD 2025. Rows without response
//! tokens are requests that failed; their prompts still came, so they are replayed. The model is their label.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::table::{rows, tokens};
use super::{Arrival, Checked, TraceError, nanos};

const COLUMNS: [&str; 4] = ["Timestamp", "Model", "Request tokens", "Response tokens"];

pub(super) fn read(
    path: Arc<Path>,
    reader: impl Read + Send + 'static,
) -> Result<impl Iterator<Item = Result<Arrival, TraceError>> + Send, TraceError> {
    let mut checked = Checked::new(path.clone());
    // There are few models: a label is shared by all that have it.
    let mut labels: Vec<Arc<str>> = Vec::new();
    let rows = rows(path, reader, COLUMNS)?;
    Ok(rows.map(move |row| {
        let (line, [time, model, input, output]) = row?;
        let at = time
            .parse()
            .ok()
            .and_then(nanos)
            .ok_or_else(|| checked.fault(line, format!("Timestamp: {time:?} is no number of seconds")))?;
        let input = tokens(&input, COLUMNS[2]).map_err(|fault| checked.fault(line, fault))?;
        let output = tokens(&output, COLUMNS[3]).map_err(|fault| checked.fault(line, fault))?;
        let label = labels.iter().find(|label| ***label == *model).cloned().unwrap_or_else(|| {
            let label: Arc<str> = model.as_str().into();
            if labels.len() < 64 {
                labels.push(label.clone());
            }
            label
        });
        let arrival = Arrival { input, output, label: Some(label), ..Arrival::default() };
        checked.arrival(line, COLUMNS[0], at, arrival)
    }))
}
