//! A backend made of another one: the methods that it does not change, written once.

/// Writes methods of a [`Backend`](distlock_core::Backend) that only call those of a field. A
/// wrapper names the field and the methods, and writes the others itself.
///
/// ```
/// use std::time::Duration;
///
/// use distlock_core::{Backend, ReleaseOptions, ReleaseOutcome, Pending, Target};
///
/// /// A store that never buries.
/// #[derive(Debug)]
/// struct Forgetful<B>(B);
///
/// impl<B: Backend> Backend for Forgetful<B> {
///     distlock_testkit::forward_backend!(
///         0: capabilities, acquire, renew, inspect, list, probe, pushes, extensions
///     );
///
///     fn release<'a>(
///         &'a self,
///         target: &'a Target,
///         how: ReleaseOptions,
///     ) -> Pending<'a, ReleaseOutcome> {
///         self.0.release(target, ReleaseOptions { bury: Duration::ZERO, ..how })
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_backend {
    ($field:tt: $($method:ident),+ $(,)?) => {
        $($crate::forward_backend!(@ $method $field);)+
    };
    (@ capabilities $field:tt) => {
        fn capabilities(&self) -> $crate::core::Capabilities {
            self.$field.capabilities()
        }
    };
    (@ acquire $field:tt) => {
        fn acquire<'a>(
            &'a self,
            ask: &'a $crate::core::Ask,
        ) -> $crate::core::Pending<'a, $crate::core::Answer> {
            self.$field.acquire(ask)
        }
    };
    (@ renew $field:tt) => {
        fn renew<'a>(
            &'a self,
            batch: &'a [$crate::core::Renewal],
        ) -> $crate::core::Streaming<
            'a,
            (usize, Result<$crate::core::Standing, $crate::core::Fault>),
        > {
            self.$field.renew(batch)
        }
    };
    (@ release $field:tt) => {
        fn release<'a>(
            &'a self,
            target: &'a $crate::core::Target,
            how: $crate::core::ReleaseOptions,
        ) -> $crate::core::Pending<'a, $crate::core::ReleaseOutcome> {
            self.$field.release(target, how)
        }
    };
    (@ inspect $field:tt) => {
        fn inspect<'a>(
            &'a self,
            key: &'a $crate::core::Key,
        ) -> $crate::core::Pending<'a, $crate::core::Snapshot> {
            self.$field.inspect(key)
        }
    };
    (@ list $field:tt) => {
        fn list<'a>(
            &'a self,
            prefix: &'a str,
            cursor: Option<&'a $crate::core::Cursor>,
        ) -> $crate::core::Pending<'a, $crate::core::Page> {
            self.$field.list(prefix, cursor)
        }
    };
    (@ probe $field:tt) => {
        fn probe(&self) -> $crate::core::Pending<'_, $crate::core::Health> {
            self.$field.probe()
        }
    };
    (@ pushes $field:tt) => {
        fn pushes(&self) -> $crate::core::Streaming<'static, $crate::core::Push> {
            self.$field.pushes()
        }
    };
    (@ extensions $field:tt) => {
        fn extensions(&self) -> $crate::core::Extensions<'_> {
            self.$field.extensions()
        }
    };
}
