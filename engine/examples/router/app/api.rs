//! OpenAI's endpoints.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Shared;
use super::ask::{Ask, Endpoint};
use super::error::ApiError;
use super::forward::forward;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    let mut routes = Router::new().route("/v1/models", get(models)).route("/v1/models/{*id}", get(model));
    for endpoint in [Endpoint::Completions, Endpoint::Chat, Endpoint::Embeddings] {
        let serve = move |State(shared): State<Arc<Shared>>, request: Request| async move {
            let response =
                serve(&shared, endpoint, request).await.unwrap_or_else(IntoResponse::into_response);
            shared.metrics.answered(endpoint, response.status());
            response
        };
        routes = routes.route(endpoint.path(), post(serve));
    }
    routes
}

/// Serves one request. Whatever a client takes its time for is done before it waits for a worker.
async fn serve(shared: &Arc<Shared>, endpoint: Endpoint, request: Request) -> Result<Response, ApiError> {
    let in_flight = shared.metrics.enter();
    let (head, body) = request.into_parts();
    let body = read(shared, &head.headers, body).await?;
    let ask = Ask::read(endpoint, &head.headers, &body, &shared.options.requests, &shared.measure)?;
    let pool = shared.pool(&ask.model)?;
    forward(shared, &pool, ask, head, body, in_flight).await
}

/// Reads the whole body, within the limits.
async fn read(shared: &Shared, headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    let limits = &shared.options.limits;
    let limit = limits.max_body_bytes;
    let too_large = || ApiError::new(413, "body_too_large", format!("the body is larger than {limit} bytes"));
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| length > limit as u64) {
        return Err(too_large());
    }
    match timeout(limits.body_timeout, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => {
            Err(ApiError::new(400, "invalid_request", format!("the body cannot be read: {error}")))
        }
        Err(_) => {
            let message = format!("the body did not come within {:?}", limits.body_timeout);
            Err(ApiError::new(408, "body_timeout", message))
        }
    }
}

fn described(model: &str) -> Value {
    json!({ "id": model, "object": "model", "created": 0, "owned_by": "tollgate" })
}

async fn models(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let models: Vec<_> = shared.models().iter().map(|model| described(model)).collect();
    Json(json!({ "object": "list", "data": models }))
}

async fn model(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    shared.pool(&id).map(|pool| Json(described(&pool.model)))
}

/// What is not there.
pub(crate) async fn not_found(request: Request) -> ApiError {
    let message = format!("there is no {} {}", request.method(), request.uri().path());
    ApiError::new(StatusCode::NOT_FOUND.as_u16(), "not_found", message)
}

/// What is there, but not like this.
pub(crate) async fn not_allowed(request: Request) -> ApiError {
    let message = format!("{} cannot be asked for by {}", request.uri().path(), request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED.as_u16(), "method_not_allowed", message)
}
