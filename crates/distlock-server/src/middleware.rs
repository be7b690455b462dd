//! The door: every request comes in here, and every answer goes out.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;
use crate::state::App;

/// What every answer says about itself: it may run nothing that is not ours, it may be framed by
/// no client, and it is to be kept nowhere.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Checks that the request is meant for us, and counts it.
pub(crate) async fn check_host_and_origin(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let mut response = match check(&app, request.headers(), request.uri()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    app.metrics.answered(response.status().as_u16(), begun.elapsed());
    response
}

fn check(app: &App, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let host = uri.host().or_else(|| text(headers, header::HOST));
    let Some(host) = host.map(str::to_owned) else {
        return Err(Problem::bad_request("the request names no host"));
    };
    let config = &app.config;
    if app.tokens.load().is_empty() || !config.hosts.is_empty() {
        let name = without_port(&host);
        let named = config.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
        if !is_loopback(name) && !named {
            let problem = Problem::new(StatusCode::FORBIDDEN, "host", "Host not allowed");
            return Err(problem.detail("this service is not known under that name (--host)"));
        }
    }
    // Pages of others have no business here: there is no CORS, and nothing is done for them.
    let origin = text(headers, header::ORIGIN);
    let foreign = origin.is_some_and(|origin| {
        origin.split_once("://").is_none_or(|(_, from)| !from.eq_ignore_ascii_case(&host))
    });
    let cross_site = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    if foreign || cross_site {
        return Err(Problem::new(StatusCode::FORBIDDEN, "origin", "Origin not allowed"));
    }
    Ok(())
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_loopback(name: &str) -> bool {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_loopback() {
        for good in ["localhost", "LOCALHOST:80", "127.0.0.1:3009", "127.8.8.8", "[::1]:3009"] {
            assert!(is_loopback(without_port(good)), "{good}");
        }
        for bad in ["example.org", "localhost.example.org", "10.0.0.1:3009", "", "127.0.0.1.nip.io"]
        {
            assert!(!is_loopback(without_port(bad)), "{bad}");
        }
    }
}
