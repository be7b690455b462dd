//! The description of the API, made from the handlers themselves.

use axum::Json;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

use crate::{events, health, leases, list, metrics, patterns, summary};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "distlock",
        description = "Distributed locks: fenced, fair, renewable leases.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        patterns::run,
        leases::create,
        leases::renew,
        leases::release,
        list::list,
        list::one,
        list::history,
        list::break_hold,
        events::events,
        summary::summary,
        health::health,
        health::livez,
        health::readyz,
        metrics::metrics,
    ),
    modifiers(&Tokens),
    security(("bearer" = []), ("basic" = []), ())
)]
struct Document;

/// How a token is presented.
struct Tokens;

impl utoipa::Modify for Tokens {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for (name, scheme) in [("bearer", HttpAuthScheme::Bearer), ("basic", HttpAuthScheme::Basic)]
        {
            components.add_security_scheme(name, SecurityScheme::Http(Http::new(scheme)));
        }
    }
}

/// The OpenAPI document.
pub(crate) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

/// A page that shows it, and what the page needs.
pub(crate) async fn reader() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], include_str!("assets/docs.html"))
}

pub(crate) async fn reader_script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("assets/docs.js"))
}

pub(crate) async fn reader_style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("assets/docs.css"))
}
