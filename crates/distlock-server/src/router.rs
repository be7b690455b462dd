//! Which path leads where.
//!
//! The content security policy of [`door`](crate::door) allows nothing inline and nothing from
//! elsewhere, so the scripts and styles of pages are files of their own.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post, put};

use crate::compat::{dapr, terraform, terraform_state};
use crate::problem::Problem;
use crate::state::App;
use crate::{
    dashboard, events, health, leader, leases, list, many_leases, metrics, middleware, openapi,
    own_lease, paths, patterns, summary,
};

/// All routes.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let api = api().into_iter();
    api.fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .route(paths::DOCS_PATH, get(openapi::reader))
        .route(paths::DOCS_SCRIPT_PATH, get(openapi::reader_script))
        .route(paths::DOCS_STYLE_PATH, get(openapi::reader_style))
        .merge(dashboard::routes())
        .fallback(async || Problem::not_found())
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "Method not allowed")
        })
        .layer(from_fn_with_state(Arc::clone(app), middleware::check_host_and_origin))
        .with_state(Arc::clone(app))
}

/// The routes for programs: all of them are in the OpenAPI document.
fn api() -> [(&'static str, MethodRouter<Arc<App>>); 20] {
    [
        (paths::HEALTH_PATH, get(health::health)),
        (paths::LIVEZ_PATH, get(health::livez)),
        (paths::READYZ_PATH, get(health::readyz)),
        (paths::METRICS_PATH, get(metrics::metrics)),
        (paths::PATTERN_PATH, post(patterns::run)),
        (paths::LOCKS_PATH, get(list::list)),
        (paths::LOCK_PATH, get(list::one)),
        (paths::LEASES_PATH, post(leases::create)),
        (paths::LEADER_PATH, get(leader::leader)),
        (paths::MANY_LEASES_PATH, post(many_leases::create)),
        (paths::LEASE_PATH, put(own_lease::renew).delete(own_lease::release)),
        (paths::HISTORY_PATH, get(list::history)),
        (paths::BREAK_PATH, post(list::break_hold)),
        (paths::EVENTS_PATH, get(events::events)),
        (paths::SUMMARY_PATH, get(summary::summary)),
        (paths::OPENAPI_PATH, get(openapi::document)),
        (paths::TERRAFORM_PATH, {
            let state = get(terraform_state::read).post(terraform_state::write);
            state.delete(terraform_state::delete).fallback(terraform::terraform)
        }),
        (paths::DAPR_LOCK_PATH, post(dapr::lock)),
        (paths::DAPR_UNLOCK_PATH, post(dapr::unlock)),
        (paths::DAPR_METADATA_PATH, get(dapr::metadata)),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::body::Body;
    use axum::http::{Request, header};
    use distlock::Locks;
    use tower::ServiceExt;

    use super::*;
    use crate::ServerConfig;
    use crate::delivery::Transit;
    use crate::state::Peer;

    /// The methods that a path answers to, as it says itself when it is asked for another one.
    async fn methods(app: &Arc<App>, path: &str) -> BTreeSet<String> {
        let mut request = Request::builder().method("PROPFIND").uri(path.replace(['{', '}'], ""));
        if let Some(extensions) = request.extensions_mut() {
            extensions.insert(Peer("127.0.0.1:1".parse().unwrap()));
            extensions.insert(Arc::new(Transit::new(false)));
        }
        let request = request.header(header::HOST, "localhost").body(Body::empty()).unwrap();
        let answer = router(app).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allowed = answer.headers().get(header::ALLOW).unwrap().to_str().unwrap();
        let words = allowed.split(',').map(|word| word.trim().to_lowercase());
        // GET answers to it, and the document says nothing more of it.
        words.filter(|word| word != "head").collect()
    }

    #[tokio::test]
    async fn the_document_lists_every_route_and_no_other() {
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let app = Arc::new(App::new(config, Locks::memory()));
        let document = serde_json::to_value(openapi::document().await.0).unwrap();
        let described = document["paths"].as_object().unwrap();
        let routed: BTreeSet<_> = api().iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(described.keys().cloned().collect::<BTreeSet<_>>(), routed);
        for (path, item) in described {
            let item = item.as_object().unwrap();
            let mut words: BTreeSet<_> =
                item.keys().filter(|word| !word.starts_with("x-")).cloned().collect();
            if let Some(more) = item.get("x-additionalOperations") {
                words.extend(more.as_object().unwrap().keys().map(|word| word.to_lowercase()));
            }
            assert_eq!(words, methods(&app, path).await, "{path}");
        }
    }
}
