//! What every backend promises, one async fn per promise.
//!
//! A driver proves itself with one line and a [`Subject`] that leads to its store:
//!
//! ```ignore
//! distlock_testkit::conformance!(memory, MemorySubject::new());
//! ```
//!
//! That makes one test of every promise, named `memory::conformance::<promise>`. A promise that
//! needs something which the backend does not [declare](distlock_core::Capabilities) is not
//! skipped: the backend must refuse to be asked for it. So a driver cannot pass by omission.
//!
//! The promises use keys of their own, so they can share a server, run at once and run in any
//! sequence. None of them sleeps: time passes only through [`Subject::pass`].

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::Backend;
#[doc(hidden)]
pub use distlock_core::Order;

pub mod attempts;
pub mod breaking;
pub mod dead;
pub mod downgrade;
pub mod expiry;
pub mod fences;
pub mod groups;
pub mod inspect;
pub mod limits;
pub mod list;
pub mod many;
pub mod mutex;
mod need;
pub mod orders;
mod promises;
pub mod push;
pub mod queue;
pub mod readers;
pub mod reentry;
pub mod release;
pub mod semaphore;
mod support;
pub mod waiting;
pub mod witness;

pub use need::Need;

/// A store under test.
pub trait Subject: Send + Sync {
    /// Another client of the same store.
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>>;

    /// Lets this much time pass at the store, without sleeping if the store's clock can be moved.
    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Runs one promise if the backend declares what it needs, and otherwise checks that the backend
/// refuses what it does not declare.
///
/// # Panics
///
/// If the promise is broken.
pub async fn run(promise: impl AsyncFnOnce(&dyn Subject), needs: &[Need], subject: &dyn Subject) {
    let offered = subject.client().await.capabilities();
    let mut lacking = needs.iter().filter(|need| !need.is_met_by(&offered)).peekable();
    if lacking.peek().is_none() {
        return promise(subject).await;
    }
    for need in lacking {
        need.is_refused(subject).await;
    }
}

/// Makes one test of every promise: `conformance!(name, subject)`, where `subject` is an
/// expression for a fresh [`Subject`](crate::conformance::Subject); it may await.
///
/// The tests are `name::conformance::<promise>`. The calling crate needs `tokio` with its macros.
#[macro_export]
macro_rules! conformance {
    ($name:ident, $subject:expr) => {
        mod $name {
            use super::*;
            mod conformance {
                use super::*;
                $crate::for_each_promise! { $crate::conformance_tests; $subject }
            }
        }
    };
}

/// The tests of [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr; $($module:ident::$promise:ident
        [$($need:ident $(($order:ident))?),*],)*) => {
        $(
            #[tokio::test]
            async fn $promise() {
                use $crate::conformance::{$module, run};
                let needs =
                    [$($crate::conformance::Need::$need
                        $(($crate::conformance::Order::$order))?),*];
                let subject = $subject;
                run($module::$promise, &needs, &subject).await;
            }
        )*
    };
}

/// Makes one test of all promises, one after the other on one subject: for stores that take long
/// to start. It is `name::conformance::every_promise`, and prints each promise before it is tried.
#[macro_export]
macro_rules! conformance_in_a_row {
    ($name:ident, $subject:expr) => {
        mod $name {
            use super::*;
            mod conformance {
                use super::*;
                $crate::for_each_promise! { $crate::conformance_test_in_a_row; $subject }
            }
        }
    };
}

/// The test of [`conformance_in_a_row!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test_in_a_row {
    ($subject:expr; $($module:ident::$promise:ident
        [$($need:ident $(($order:ident))?),*],)*) => {
        #[tokio::test]
        async fn every_promise() {
            use $crate::conformance::run;
            let subject = $subject;
            $(
                println!(stringify!($promise));
                let needs: &[$crate::conformance::Need] =
                    &[$($crate::conformance::Need::$need
                        $(($crate::conformance::Order::$order))?),*];
                // Boxed, so that the test is not one future as large as all of them.
                let promise = $crate::conformance::$module::$promise;
                Box::pin(run(promise, needs, &subject)).await;
            )*
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    macro_rules! names_of {
        (; $($module:ident::$promise:ident $needs:tt,)*) => {
            const NAMES: &[&str] = &[$(stringify!($promise)),*];
        };
    }

    crate::for_each_promise! { names_of; }

    #[test]
    fn the_kit_keeps_its_size() {
        assert!(NAMES.len() >= 180, "only {} promises", NAMES.len());
        let distinct: BTreeSet<_> = NAMES.iter().collect();
        assert_eq!(distinct.len(), NAMES.len(), "two promises share a name");
    }
}
