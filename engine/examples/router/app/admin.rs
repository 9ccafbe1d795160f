//! What an operator looks at.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tollgate::policy::PolicyFileError;

use super::Shared;
use super::error::ApiError;
use super::picture;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(|| async { Html(include_str!("page.html")) }))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/debug/scheduler", get(scheduler))
        .route("/admin/reload", post(reload))
}

/// Whether requests can be served.
async fn health(State(shared): State<Arc<Shared>>) -> (StatusCode, Json<Value>) {
    let workers = shared.workers();
    let up = workers.iter().filter(|worker| worker.state.lock().up).count();
    let (status, word) = match (shared.is_draining(), up) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, 0) => (StatusCode::SERVICE_UNAVAILABLE, "no worker is up"),
        (false, _) => (StatusCode::OK, "ok"),
    };
    (status, Json(json!({ "status": word, "workers": workers.len(), "workers_up": up })))
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    let encode = move || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &shared.registry).map(|()| text)
    };
    // The engines are asked, and asking blocks until their next turn.
    match tokio::task::spawn_blocking(encode).await {
        Ok(Ok(text)) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
        }
        Ok(Err(error)) => Err(ApiError::new(500, "metrics", error.to_string())),
        Err(error) => Err(ApiError::new(500, "metrics", error.to_string())),
    }
}

async fn scheduler(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ApiError> {
    // The engines are asked, and asking blocks until their next turn.
    let picture = tokio::task::spawn_blocking(move || picture::of(&shared)).await;
    picture.map(Json).map_err(|error| ApiError::new(500, "picture", error.to_string()))
}

async fn reload(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, ApiError> {
    if shared.options.policy.is_none() {
        return Err(ApiError::new(400, "no_policy_file", "the router runs without a policy file"));
    }
    // Reads a file.
    let reloaded = tokio::task::spawn_blocking(move || shared.reload()).await;
    match reloaded.map_err(|error| ApiError::new(500, "reload", error.to_string()))? {
        Ok(reloaded) => Ok(Json(json!({ "models": reloaded.models, "warnings": reloaded.warnings }))),
        Err(error) => {
            let faults = match &error {
                PolicyFileError::Invalid { errors, .. } => {
                    errors.faults().iter().map(ToString::to_string).collect()
                }
                _ => Vec::new(),
            };
            let details = Some(json!({ "faults": faults }));
            Err(ApiError { details, ..ApiError::new(400, "policy_file", error.to_string()) })
        }
    }
}
