//! The time of a step from measured steps: least squares over `prefill_tokens,decoding,step_ms`.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::trace::TraceError;
use super::trace::table::rows;
use super::worker::StepTime;

const COLUMNS: [&str; 3] = ["prefill_tokens", "decoding", "step_ms"];

/// Reads measured steps and fits a [`StepTime`] to them.
///
/// # Errors
/// The file cannot be read, a row is no step, or the steps do not tell the three parts apart.
pub fn calibrate(path: &Path) -> Result<StepTime, TraceError> {
    let path: Arc<Path> = path.into();
    let fault = |line, fault| TraceError { path: path.clone(), line, fault };
    let file = File::open(&path).map_err(|error| fault(None, error.to_string()))?;
    let mut steps = Vec::new();
    for row in rows(path.clone(), file, COLUMNS)? {
        let (line, texts) = row?;
        let mut values = [0.0; 3];
        for ((value, text), name) in values.iter_mut().zip(&texts).zip(COLUMNS) {
            let number = text.parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0);
            *value =
                number.ok_or_else(|| fault(Some(line), format!("{name}: {text:?} is no such number")))?;
        }
        steps.push(values);
    }
    fit(&steps).map_err(|text| fault(None, text))
}

/// Least squares by the normal equations, with the inputs scaled to about 1.
fn fit(steps: &[[f64; 3]]) -> Result<StepTime, String> {
    let scale = |i: usize| steps.iter().map(|s| s[i]).fold(0.0, f64::max);
    let (prefill, decode, time) = (scale(0), scale(1), scale(2));
    if prefill == 0.0 || decode == 0.0 || time == 0.0 {
        return Err("needed are steps with prompt tokens, steps with decoding requests, and times".into());
    }
    // Three equations in three unknowns, the right side last.
    let mut m = [[0.0; 4]; 3];
    for &[p, d, ms] in steps {
        let x = [1.0, p / prefill, d / decode];
        for (i, row) in m.iter_mut().enumerate() {
            for (j, cell) in row[..3].iter_mut().enumerate() {
                *cell += x[i] * x[j];
            }
            row[3] += x[i] * ms / time;
        }
    }
    let size = steps.len() as f64;
    for i in 0..3 {
        let pivot = (i..3).max_by(|&a, &b| m[a][i].abs().total_cmp(&m[b][i].abs())).expect("not empty");
        m.swap(i, pivot);
        if m[i][i].abs() < 1e-9 * size.max(1.0) {
            return Err("the steps do not tell base, prompt and decoding apart: vary both numbers".into());
        }
        let row = m[i];
        for (_, other) in m.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let factor = other[i] / row[i];
            other.iter_mut().zip(row).for_each(|(cell, above)| *cell -= factor * above);
        }
    }
    let [base, per_prompt, per_decode] = [0, 1, 2].map(|i| m[i][3] / m[i][i] * time * 1e6);
    let fitted = StepTime { base, prefill: per_prompt / prefill, decode: per_decode / decode };
    // A small negative part is noise around 0; a large one says that the model does not fit.
    let tolerance = -0.02 * time * 1e6;
    if base < tolerance || per_prompt < tolerance || per_decode < tolerance {
        return Err(format!("no such worker: the best fit has a negative part, {fitted:?} in ns"));
    }
    Ok(StepTime {
        base: fitted.base.max(0.0),
        prefill: fitted.prefill.max(0.0),
        decode: fitted.decode.max(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_measurements_give_the_parts_back() {
        let steps: Vec<_> = [(0.0, 1.0), (0.0, 64.0), (512.0, 3.0), (8192.0, 0.0), (4096.0, 32.0)]
            .map(|(p, d)| [p, d, 7.5 + 0.05 * p + 0.1 * d])
            .to_vec();
        let time = fit(&steps).unwrap();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        assert!(near(time.base, 7.5e6) && near(time.prefill, 0.05e6) && near(time.decode, 0.1e6), "{time:?}");
    }

    #[test]
    fn steps_that_do_not_tell_the_parts_apart_are_refused() {
        assert!(fit(&[]).unwrap_err().contains("needed"));
        assert!(fit(&[[10.0, 1.0, 2.0], [20.0, 2.0, 4.0], [30.0, 3.0, 6.0]]).unwrap_err().contains("apart"));
        let falling = [[0.0, 1.0, 50.0], [100.0, 2.0, 10.0], [200.0, 5.0, 1.0], [10.0, 9.0, 60.0]];
        assert!(fit(&falling).unwrap_err().contains("negative"));
    }
}
