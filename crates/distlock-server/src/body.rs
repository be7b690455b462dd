//! Reading what a client sent: bounded in size and time, and refused in one way.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Buf;
use distlock::Key;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::limits::{BODY_MAX, BODY_TIME_MAX};
use crate::problem::Problem;
use crate::state::App;

/// A JSON body. An empty one is that of a request with nothing to say.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, Problem> {
        let is_json = is_json(request.headers());
        let bytes = collect(request, BODY_MAX).await?;
        if bytes.is_empty() {
            return parse(b"{}").map(Self);
        }
        // A web page can send any text anywhere, but not under this type without asking first.
        if !is_json {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::new(status, "not-json", "The body must be application/json"));
        }
        parse(&bytes).map(Self)
    }
}

/// A body as it is.
pub(crate) async fn collect(request: Request, max: usize) -> Result<Bytes, Problem> {
    let body = Limited::new(request.into_body(), max);
    match tokio::time::timeout(BODY_TIME_MAX, body.collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large");
            Err(problem.detail(format!("the body must be at most {max} bytes")))
        }
        Ok(Err(_)) => Err(Problem::bad_request("the body ended before its time")),
        Err(_) => {
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "The body took too long"))
        }
    }
}

/// Reads JSON. What is wrong with it is told by place and kind, without repeating values.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // A list of values would pass for an object with its members in their order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::bad_request("the body is not a JSON object"));
    }
    serde_json::from_reader(bytes.reader()).map_err(|error| {
        let text = error.to_string();
        let secret = text.contains("invalid value") || text.contains("invalid type");
        let at = format!(" at line {} column {}", error.line(), error.column());
        let what = match secret {
            true => "a value of the wrong type or out of range",
            // The text ends with the position where there is one.
            false => text.strip_suffix(&at).unwrap_or(&text),
        };
        Problem::bad_request(format!("the body is not what was expected: {what}{at}"))
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The key in the path.
#[derive(Debug)]
pub(crate) struct KeyPath(pub(crate) Key);

impl FromRequestParts<Arc<App>> for KeyPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Path(key) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|_| Problem::bad_request("the key in the path is not UTF-8"))?;
        Ok(Self(self::key(&key)?))
    }
}

/// Validates a key.
pub(crate) fn key(name: &str) -> Result<Key, Problem> {
    Key::new(name).map_err(|invalid| Problem::invalid(invalid.to_string()))
}

/// The query of a URL.
#[derive(Debug)]
pub(crate) struct QueryOf<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for QueryOf<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, app).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(_) => Err(Problem::bad_request("the query has an unknown or unreadable option")),
        }
    }
}
