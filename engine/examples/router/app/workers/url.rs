//! Where a worker is.

use std::fmt;
use std::str::FromStr;

use axum::http::Uri;
use axum::http::uri::{Authority, PathAndQuery, Scheme};

/// `http://HOST:PORT`, with a path in front of the API's own if there is one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkerUrl {
    authority: String,
    prefix: String,
}

impl WorkerUrl {
    /// The address of `path` on this worker.
    pub(crate) fn join(&self, path: &PathAndQuery) -> Uri {
        let path = match self.prefix.as_str() {
            "" => path.clone(),
            prefix => format!("{prefix}{path}").parse().expect("both parts are valid"),
        };
        let authority: Authority = self.authority.parse().expect("checked when it was read");
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(authority).path_and_query(path);
        uri.build().expect("all parts are there")
    }
}

impl FromStr for WorkerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{text:?} is not a URL: {error}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(format!("{text:?}: workers are spoken to by http, not https")),
            _ => return Err(format!("{text:?} is not a URL of the form http://HOST:PORT")),
        }
        let authority = uri.authority().map(Authority::as_str).filter(|authority| !authority.contains('@'));
        let authority =
            authority.ok_or_else(|| format!("{text:?} is not a URL of the form http://HOST:PORT"))?;
        if uri.query().is_some() {
            return Err(format!("{text:?}: the URL of a worker has no query"));
        }
        Ok(Self { authority: authority.into(), prefix: uri.path().trim_end_matches('/').into() })
    }
}

impl fmt::Display for WorkerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}
