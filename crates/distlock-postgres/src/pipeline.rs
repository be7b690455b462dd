//! Statements that are sent together: one round trip for all of them.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

/// A value of a statement with its type. Types are said, so that nothing has to be prepared: names
/// of prepared statements do not survive a pooler.
pub(super) type BoundValue<'a> = (Box<dyn ToSql + Sync + Send + 'a>, Type);

/// One statement on its way.
struct PipelinedStatement<'a> {
    sql: &'a str,
    /// None for control statements, of which one text may have several.
    values: Option<Vec<BoundValue<'a>>>,
}

/// Statements in sequence.
#[derive(Default)]
pub(super) struct Pipeline<'a> {
    statements: Vec<PipelinedStatement<'a>>,
}

impl<'a> Pipeline<'a> {
    /// Adds statements without values whose rows are of no interest.
    pub(super) fn control(&mut self, sql: &'a str) {
        self.statements.push(PipelinedStatement { sql, values: None });
    }

    /// Adds a statement; returns the index of its rows.
    pub(super) fn add(&mut self, sql: &'a str, values: Vec<BoundValue<'a>>) -> usize {
        self.statements.push(PipelinedStatement { sql, values: Some(values) });
        self.statements.len() - 1
    }

    /// Sends all of it and waits for the last answer. The first error counts: those after it say
    /// only that the transaction has failed.
    pub(super) async fn send(self, client: &Client) -> Result<Vec<Vec<Row>>, Error> {
        type Answer<'b> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'b>>;
        let answer = |statement: PipelinedStatement<'a>| -> Answer<'_> {
            Box::pin(async move {
                let Some(values) = statement.values else {
                    return client.batch_execute(statement.sql).await.map(|()| Vec::new());
                };
                let values: Vec<(&(dyn ToSql + Sync), Type)> =
                    values.iter().map(|(value, kind)| (&**value as _, kind.clone())).collect();
                client.query_typed(statement.sql, &values).await
            })
        };
        let mut pending: Vec<_> = self.statements.into_iter().map(answer).map(Some).collect();
        let mut answers: Vec<Option<Result<Vec<Row>, Error>>> =
            pending.iter().map(|_| None).collect();
        // A statement is sent when its future is polled for the first time, so they are polled in
        // sequence.
        poll_fn(|cx| {
            let mut ready = true;
            for (slot, answer) in pending.iter_mut().zip(&mut answers) {
                let Some(future) = slot else { continue };
                match future.as_mut().poll(cx) {
                    Poll::Ready(done) => {
                        *answer = Some(done);
                        *slot = None;
                    }
                    Poll::Pending => ready = false,
                }
            }
            if ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        answers.into_iter().flatten().collect()
    }
}

pub(super) fn bytes<'a>(value: impl Into<Option<&'a [u8]>>) -> BoundValue<'a> {
    (Box::new(value.into()), Type::BYTEA)
}

pub(super) fn text<'a>(value: impl Into<Option<&'a str>>) -> BoundValue<'a> {
    (Box::new(value.into()), Type::TEXT)
}

pub(super) fn number<'a>(value: impl Into<Option<i64>>) -> BoundValue<'a> {
    (Box::new(value.into()), Type::INT8)
}

pub(super) fn small(value: i32) -> BoundValue<'static> {
    (Box::new(value), Type::INT4)
}

pub(super) fn real(value: f64) -> BoundValue<'static> {
    (Box::new(value), Type::FLOAT8)
}

pub(super) fn many_bytes<'a, T: Into<Option<&'a [u8]>>>(
    values: impl IntoIterator<Item = T>,
) -> BoundValue<'a> {
    let values: Vec<Option<&[u8]>> = values.into_iter().map(Into::into).collect();
    (Box::new(values), Type::BYTEA_ARRAY)
}

pub(super) fn many_texts<'a, T: Into<Option<&'a str>>>(
    values: impl IntoIterator<Item = T>,
) -> BoundValue<'a> {
    let values: Vec<Option<&str>> = values.into_iter().map(Into::into).collect();
    (Box::new(values), Type::TEXT_ARRAY)
}

pub(super) fn many_numbers<'a, T: Into<Option<i64>>>(
    values: impl IntoIterator<Item = T>,
) -> BoundValue<'a> {
    let values: Vec<Option<i64>> = values.into_iter().map(Into::into).collect();
    (Box::new(values), Type::INT8_ARRAY)
}

pub(super) fn many_small(values: impl IntoIterator<Item = i32>) -> BoundValue<'static> {
    (Box::new(values.into_iter().collect::<Vec<_>>()), Type::INT4_ARRAY)
}

pub(super) fn many_flags(values: impl IntoIterator<Item = bool>) -> BoundValue<'static> {
    (Box::new(values.into_iter().collect::<Vec<_>>()), Type::BOOL_ARRAY)
}
