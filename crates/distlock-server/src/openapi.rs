//! The description of the API, made from the handlers themselves.

use axum::Json;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

use crate::compat::{dapr, terraform_state};
use crate::{
    events, health, leader, leases, list, many_leases, metrics, own_lease, patterns, summary,
};

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
        many_leases::create,
        own_lease::renew,
        own_lease::release,
        list::list,
        list::one,
        list::history,
        leader::leader,
        list::break_hold,
        events::events,
        summary::summary,
        health::health,
        health::livez,
        health::readyz,
        metrics::metrics,
        document,
        terraform_state::read,
        terraform_state::write,
        terraform_state::delete,
        dapr::lock,
        dapr::unlock,
        dapr::metadata,
    ),
    modifiers(&TokenScheme, &TerraformLocks),
    security(("bearer" = []), ("basic" = []), ())
)]
struct Document;

/// How a token is presented.
struct TokenScheme;

impl utoipa::Modify for TokenScheme {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for (name, scheme) in [("bearer", HttpAuthScheme::Bearer), ("basic", HttpAuthScheme::Basic)]
        {
            components.add_security_scheme(name, SecurityScheme::Http(Http::new(scheme)));
        }
    }
}

/// Methods that OpenAPI 3.1 has no place for, described as OpenAPI 3.2 does.
struct TerraformLocks;

impl utoipa::Modify for TerraformLocks {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let Some(item) = document.paths.paths.get_mut(crate::paths::TERRAFORM_PATH) else { return };
        item.extensions = Some([("x-additionalOperations", operations())].into_iter().collect());
    }
}

fn operations() -> Value {
    let body = |description: &str| {
        let content = json!({ "application/json": {} });
        json!({ "description": description, "content": content })
    };
    let parameters = [
        ("wait", "how long LOCK waits, such as 20s; at most 20s"),
        ("ttl", "how long the lock lasts without an UNLOCK, such as 2h; at most 24h"),
    ]
    .map(|(name, description)| {
        json!({
            "name": name, "in": "query", "description": description, "schema": { "type": "string" },
        })
    });
    json!({
        "LOCK": {
            "tags": ["terraform"],
            "summary": "Locks a Terraform state. Needs the scope `lock:<prefix>`.",
            "parameters": parameters,
            "requestBody": body("Terraform's LockInfo; its `ID` names the lock"),
            "responses": {
                "200": body("locked, or locked under this ID before"),
                "423": body("the LockInfo of the holder"),
            },
        },
        "UNLOCK": {
            "tags": ["terraform"],
            "summary": "Unlocks a Terraform state. An empty body is a force-unlock, which needs \
                        the scope `admin`.",
            "requestBody": body("Terraform's LockInfo, or nothing"),
            "responses": {
                "200": { "description": "unlocked" },
                "423": body("the LockInfo of the holder"),
            },
        },
    })
}

/// The OpenAPI document.
#[utoipa::path(get, path = crate::paths::OPENAPI_PATH, tag = "health",
    responses((status = 200, description = "this document", body = serde_json::Value)))]
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
