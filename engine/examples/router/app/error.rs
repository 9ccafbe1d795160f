//! What a client hears when it is not served: the JSON of OpenAI's API.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tollgate::{Reason, Retry};

/// An answer that is an error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The field or header that is wrong.
    pub(crate) param: Option<String>,
    /// What a program may want to know, beside OpenAI's fields.
    pub(crate) details: Option<Value>,
    /// Seconds after which asking again can help.
    pub(crate) retry_after: Option<u32>,
}

impl ApiError {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), param: None, details: None, retry_after: None }
    }

    /// A request that makes no sense, for `param`.
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(400, "invalid_request", message) }
    }

    /// The rejection of the engine.
    pub(crate) fn rejected(reason: &Reason) -> Self {
        let details = match reason {
            Reason::QueueLimit(limit) => Some(json!({
                "class": &*limit.class,
                "kind": limit.kind.to_string(),
                "current": limit.current,
                "limit": limit.limit,
            })),
            Reason::IngressFull { class, capacity } => Some(json!({ "class": &**class, "limit": capacity })),
            Reason::DeadlineExceeded { waited, .. } => {
                Some(json!({ "waited_ms": waited.as_millis() as u64 }))
            }
            _ => None,
        };
        Self {
            details,
            // A second is long for a queue, and short for a client.
            retry_after: (reason.retry() == Retry::Later).then_some(1),
            ..Self::new(reason.http_status(), reason.code(), reason.to_string())
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let kind = match self.status {
            404 => "not_found_error",
            400..500 => "invalid_request_error",
            529 => "overloaded_error",
            503 => "service_unavailable_error",
            504 => "timeout_error",
            _ => "server_error",
        };
        let mut error =
            json!({ "message": self.message, "type": kind, "param": self.param, "code": self.code });
        if let Some(details) = &self.details {
            error["details"] = details.clone();
        }
        json!({ "error": error })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).expect("the codes are written here");
        let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let mut response = (status, json, self.to_json().to_string()).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
