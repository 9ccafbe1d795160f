//! An OpenAI-compatible HTTP router around the engine.
//!
//! ```text
//! cargo run --release --example router -- --mock-workers 1 --policy bench/policies/premium_4x.yaml
//! cargo run --release --example router -- --worker http://10.0.0.1:8000 --worker http://10.0.0.2:8000 --policy policy.yaml
//! ```
//!
//! `docs/router.md` has the headers, the endpoints, what counts as a token, and what becomes of every fault. The way of a
//! request by file: `app/server` (connections) → `app/api` (the endpoint) → `app/ask` (what it asks for) → `app/pool`
//! (the engine of its model) → `app/forward` (to the worker and back).

mod app;

use std::process::ExitCode;

use app::{Options, Router};
use clap::Parser;
use mimalloc::MiMalloc;
use tokio::signal::unix::{SignalKind, signal};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let options = Options::parse();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = options.threads {
        runtime.worker_threads(threads);
    }
    let served = match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(options)),
        Err(error) => Err(error.into()),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until a signal ends it: SIGTERM and SIGINT drain, SIGHUP reads the policy again.
async fn serve(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let mut reload = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let router = Router::start(options).await?;
    eprintln!("listening on http://{}", router.addr());
    loop {
        tokio::select! {
            _ = reload.recv() => match router.reload() {
                Ok(reloaded) => eprintln!("policy read again: {reloaded}"),
                Err(error) => eprintln!("the policy stays as it was:\n{error}"),
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    eprintln!("draining");
    // A second signal does not wait.
    tokio::select! {
        () = router.drain() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
