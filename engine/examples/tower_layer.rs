//! The tower layer in front of any HTTP service: class and tokens come from headers, refusals become responses, and the
//! permit ends with the response body.
//!
//! `cargo run -p tollgate --example tower_layer`; the feature is `tower`.

use std::convert::Infallible;
use std::error::Error;

use http::{Request, Response, StatusCode};
use tollgate::policy::{ClassSpec, PolicySpec, Profile};
use tollgate::tower::{HeldPermit, PermitLayer, status};
use tollgate::{Engine, Rejected, Worker, WorkerSnapshot};
use tower::{ServiceBuilder, ServiceExt, service_fn};

/// What the engine is asked for, or the answer to a request that does not say how long its prompt is.
fn ask(request: &Request<String>) -> Result<tollgate::Request, Response<String>> {
    let header = |name| request.headers().get(name)?.to_str().ok();
    let number = |name| header(name)?.parse::<u64>().ok();
    let Some(tokens) = number("x-prompt-tokens") else {
        let bad = Response::builder().status(StatusCode::BAD_REQUEST);
        return Err(bad.body("x-prompt-tokens: must be a number".into()).expect("valid"));
    };
    let asked = tollgate::Request::new(tokens, number("x-cached-tokens").unwrap_or(0));
    Ok(match header("x-class") {
        Some(class) => asked.with_class(class),
        None => asked,
    })
}

/// The answer to a request that the engine refuses.
fn refuse(Rejected { reason, .. }: Rejected) -> Response<String> {
    Response::builder().status(status(&reason)).body(format!("{}: {reason}", reason.code())).expect("valid")
}

/// Any service: this one says where it would send the request.
async fn upstream(request: Request<String>) -> Result<Response<String>, Infallible> {
    let permit = request.extensions().get::<HeldPermit>().expect("the layer puts it there");
    Ok(Response::new(format!("{} tokens on endpoint {}", permit.cost(), permit.endpoint())))
}

/// Sends three requests; returns status and body of each answer.
#[tokio::main]
pub async fn run() -> Result<Vec<(u16, String)>, Box<dyn Error + Send + Sync>> {
    let classes = vec![ClassSpec::explicit("premium", 512), ClassSpec::explicit("regular", 128)];
    let engine = Engine::builder(Profile::new(PolicySpec { classes, ..PolicySpec::default() })?)
        .workers(WorkerSnapshot::new(1, vec![Worker::new(3)])?)
        .start()?;
    let service = ServiceBuilder::new()
        .layer(PermitLayer::new(engine.clone(), ask, refuse))
        .service(service_fn(upstream));

    let mut answers = Vec::new();
    let mut send = async |request: Request<String>| {
        let response = service.clone().oneshot(request).await?;
        answers.push((response.status().as_u16(), response.body().get_ref().clone()));
        Ok::<_, Infallible>(())
    };
    let long = Request::builder().header("x-class", "premium").header("x-prompt-tokens", "12000");
    send(long.header("x-cached-tokens", "8192").body(String::new())?).await?;
    send(Request::new(String::new())).await?;
    engine.close();
    send(Request::builder().header("x-prompt-tokens", "1").body(String::new())?).await?;
    Ok(answers)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    for (status, body) in run()? {
        println!("{status} {body}");
    }
    Ok(())
}
