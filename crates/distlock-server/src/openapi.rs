//! The description of the API, made from the handlers themselves.

use axum::Json;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

use crate::{health, leases, list, metrics, patterns, summary};

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
        list::break_hold,
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
