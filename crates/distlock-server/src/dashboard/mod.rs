//! The dashboard: one page inside the binary that shows who holds what and who waits.
//!
//! Its files are sent as they stand here: nothing is built, and nothing comes from elsewhere. The
//! page asks the same routes as everybody else, with the token of the client that looks at it.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use crate::auth::Caller;
use crate::problem::Problem;
use crate::state::App;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const PAGE: &str = include_str!("index.html");

/// The files of the page: their names, types and contents.
const FILES: [(&str, &str, &str); 16] = [
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("style.css", STYLE, include_str!("style.css")),
    ("detail.css", STYLE, include_str!("detail.css")),
    ("api.js", SCRIPT, include_str!("api.js")),
    ("app.js", SCRIPT, include_str!("app.js")),
    ("board.js", SCRIPT, include_str!("board.js")),
    ("breaking.js", SCRIPT, include_str!("breaking.js")),
    ("cards.js", SCRIPT, include_str!("cards.js")),
    ("detail.js", SCRIPT, include_str!("detail.js")),
    ("dom.js", SCRIPT, include_str!("dom.js")),
    ("format.js", SCRIPT, include_str!("format.js")),
    ("link.js", SCRIPT, include_str!("link.js")),
    ("table.js", SCRIPT, include_str!("table.js")),
    ("theme.js", SCRIPT, include_str!("theme.js")),
    ("timeline.js", SCRIPT, include_str!("timeline.js")),
    ("waits.js", SCRIPT, include_str!("waits.js")),
];

/// The page, its files, and what it may do for the client that looks at it.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(async || ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], PAGE)))
        .route("/dashboard/me", get(me))
        .route("/dashboard/{file}", get(file))
}

async fn file(Path(name): Path<String>) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    let (_, kind, content) = found.ok_or_else(Problem::not_found)?;
    Ok(([(header::CONTENT_TYPE, *kind)], *content).into_response())
}

/// What the page offers: it hides what would be refused.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Me {
    /// The name of the token.
    name: String,
    needs_token: bool,
    may_break: bool,
}

async fn me(caller: Caller) -> Json<Me> {
    let (needs_token, may_break) = (caller.has_token(), caller.may_break().is_ok());
    Json(Me { name: caller.name().to_owned(), needs_token, may_break })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_names_is_there_and_none_comes_from_elsewhere() {
        let texts = FILES.iter().map(|(name, _, text)| (*name, *text));
        for (name, text) in texts.chain([("index.html", PAGE)]) {
            let named = text.split(['"', '\'']).filter_map(|word| {
                word.strip_prefix("dashboard/").or_else(|| word.strip_prefix("./"))
            });
            for file in named.filter(|file| *file != "me") {
                assert!(FILES.iter().any(|(known, ..)| *known == file), "{name} names {file}");
            }
            let renewed_ttls = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!renewed_ttls.contains("://"), "{name} names another place");
        }
    }

    #[test]
    fn nothing_in_the_page_turns_text_into_markup() {
        let turns = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("];
        for (name, _, text) in FILES.iter().filter(|(name, ..)| *name != "dom.js") {
            for word in turns {
                assert!(!text.contains(word), "{name} has {word}");
            }
        }
        for inline in ["<script>", "<style", " style=", " onclick="] {
            assert!(!PAGE.contains(inline), "the page has {inline}: its policy forbids that");
        }
    }
}
