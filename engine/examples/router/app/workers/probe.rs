//! Looks at a worker again and again.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use serde::Deserialize;
use tokio::time::{sleep, timeout};
use tollgate::WorkerId;

use super::{Event, Fault, Reports, Settings, Spec};

/// Speaks to workers; keeps connections.
pub(crate) type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// Largest list of models that is read \[bytes\].
const MODELS_BYTES: usize = 1 << 20;

/// Workers are left in peace for at least so long.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);

/// Answer of `GET /v1/models`.
#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: Arc<str>,
}

/// Looks at the worker until the task is aborted.
pub(super) async fn probe(
    worker: WorkerId,
    spec: Spec,
    settings: Settings,
    client: HttpClient,
    reports: Reports,
) {
    loop {
        reports.send(match look(&spec, &settings, &client).await {
            Ok(models) => Event::Well { worker, models },
            Err(fault) => Event::Ill { worker, fault },
        });
        sleep(settings.interval.max(LEAST_INTERVAL)).await;
    }
}

/// Whether it is well, and what it serves.
async fn look(spec: &Spec, settings: &Settings, client: &HttpClient) -> Result<BTreeSet<Arc<str>>, Fault> {
    let path = |path: &str| {
        path.parse::<PathAndQuery>()
            .map(|path| spec.url.join(&path))
            .map_err(|error| Fault { message: format!("{path}: {error}").into(), refused: false })
    };
    get(client, path(&settings.health_path)?, settings.timeout).await?;
    if let Some(models) = &spec.models {
        return Ok(models.clone());
    }
    let body = get(client, path("/v1/models")?, settings.timeout).await?;
    let models: Models = serde_json::from_slice(&body)
        .map_err(|error| Fault { message: format!("/v1/models: {error}").into(), refused: false })?;
    Ok(models.data.into_iter().map(|model| model.id).collect())
}

async fn get(client: &HttpClient, uri: Uri, limit: Duration) -> Result<Bytes, Fault> {
    let path = uri.path().to_owned();
    let fault = |message: String| Fault { message: format!("{path}: {message}").into(), refused: false };
    let answer = async {
        let response = client.get(uri.clone()).await.map_err(|error| Fault::of(&error))?;
        if !response.status().is_success() {
            return Err(fault(response.status().to_string()));
        }
        let body = Limited::new(response.into_body(), MODELS_BYTES).collect().await;
        body.map(|body| body.to_bytes()).map_err(|error| fault(error.to_string()))
    };
    match timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(fault(format!("no answer within {limit:?}"))),
    }
}

impl Fault {
    /// What a client's error says about the worker.
    pub(crate) fn of(error: &hyper_util::client::legacy::Error) -> Self {
        let mut causes = Vec::new();
        let mut refused = false;
        let mut cause: Option<&dyn Error> = Some(error);
        while let Some(error) = cause {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            refused |= kind == Some(io::ErrorKind::ConnectionRefused);
            let message = error.to_string();
            if causes.last() != Some(&message) {
                causes.push(message);
            }
            cause = error.source();
        }
        Self { message: causes.join(": ").into(), refused }
    }
}
