//! "We cannot tell what happened": the third outcome beside yes and no.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::Key;

/// A call whose outcome is unknown, or that the backend cannot serve.
///
/// Busy and gone are answers, never faults. A fault says what was tried, at which key and store,
/// what came back and what to do next; [`Fault::kind`] says whether another attempt can help.
///
/// The text of a fault contains the text of its [`cause`](Self::cause). So
/// [`source`](Error::source) is the first error below it that the text does not contain, and a
/// report that prints the whole chain repeats nothing. Two faults are equal if they say the same.
#[derive(Clone, Debug)]
pub struct Fault {
    kind: FaultKind,
    action: &'static str,
    /// Behind a pointer, so that answers stay small: faults are rare.
    context: Option<Arc<Context>>,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

/// Where a fault happened, and what to do about it.
#[derive(Clone, Debug, Default)]
struct Context {
    store: Option<String>,
    key: Option<Key>,
    advice: Option<Cow<'static, str>>,
    unsent: bool,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// A time-out, a broken connection, a server that starts up or fails over: try again.
    Transient,
    /// A key of another type, a certificate that is not trusted: it fails again until an operator
    /// corrects it.
    Permanent,
    /// A wrong password, a command or a file that this user may not use: it fails again until the
    /// user or its permissions change.
    Denied,
    /// The backend does not have this capability and never will.
    Unsupported,
}

impl Fault {
    /// A fault after which the same call may succeed. `action` completes "could not …".
    pub fn transient(action: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultKind::Transient, action, Some(cause.into()))
    }

    /// A fault that repeats until its cause is corrected. `action` completes "could not …".
    pub fn permanent(action: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultKind::Permanent, action, Some(cause.into()))
    }

    /// The store does not let this user in, or not do this. `action` completes "could not …".
    pub fn denied(action: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultKind::Denied, action, Some(cause.into()))
    }

    /// The backend does not offer this. `what` names the capability.
    pub fn unsupported(what: &'static str) -> Self {
        Self::new(FaultKind::Unsupported, what, None)
    }

    fn new(
        kind: FaultKind,
        action: &'static str,
        cause: Option<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, action, context: None, cause: cause.map(Arc::from) }
    }

    /// The same fault, which names the store where it happened: a host and port, or a path, without
    /// secrets. A fault that names a store already keeps it.
    #[must_use]
    pub fn at_store(self, store: &str) -> Self {
        self.with(|context| {
            context.store.get_or_insert_with(|| store.to_owned());
        })
    }

    /// The same fault, which names the key that it is about. A fault that names one already keeps
    /// it.
    #[must_use]
    pub fn at_key(self, key: &Key) -> Self {
        self.with(|context| {
            context.key.get_or_insert_with(|| key.clone());
        })
    }

    /// The same fault of another call, which failed for the same reason: where calls share one
    /// message to the store, they share its fate.
    #[must_use]
    pub fn during(mut self, action: &'static str) -> Self {
        if self.kind != FaultKind::Unsupported {
            self.action = action;
        }
        self
    }

    /// The same fault, which says what to do next.
    #[must_use]
    pub fn advise(self, advice: impl Into<Cow<'static, str>>) -> Self {
        self.with(|context| context.advice = Some(advice.into()))
    }

    /// The same fault of a call that was never sent: the store refused the connection.
    #[must_use]
    pub fn unsent(self) -> Self {
        self.with(|context| context.unsent = true)
    }

    fn with(mut self, change: impl FnOnce(&mut Context)) -> Self {
        if self.kind != FaultKind::Unsupported {
            change(Arc::make_mut(self.context.get_or_insert_default()));
        }
        self
    }

    /// Whether trying again can help.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// True if the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        self.kind == FaultKind::Transient
    }

    /// What was tried; for an unsupported capability, its name.
    pub fn action(&self) -> &'static str {
        self.action
    }

    /// The store where it happened, if the driver told: a host and port, or a path.
    pub fn store(&self) -> Option<&str> {
        self.context.as_ref()?.store.as_deref()
    }

    /// The key that it is about, if it is about one.
    pub fn key(&self) -> Option<&Key> {
        self.context.as_ref()?.key.as_ref()
    }

    /// What to do next, if the driver knows.
    pub fn advice(&self) -> Option<&str> {
        self.context.as_ref()?.advice.as_deref()
    }

    /// True if the driver knows that the call was never sent, so nothing of it is at the store.
    pub fn is_unsent(&self) -> bool {
        self.context.as_ref().is_some_and(|context| context.unsent)
    }

    /// What came back. Its text is a part of the text of this fault.
    pub fn cause(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }
}

impl PartialEq for Fault {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.to_string() == other.to_string()
    }
}

impl Eq for Fault {}

/// Too few nodes of a store could be reached to decide: the source of a [`Fault`].
///
/// A minority of them may have executed the call all the same.
#[derive(Clone, Debug)]
pub struct NoQuorum {
    /// How many nodes make a majority.
    pub needed: usize,
    /// How many said yes.
    pub granted: usize,
    /// What those said that could not answer, by the names of the nodes.
    pub faults: Vec<(String, Fault)>,
    /// The names of the other nodes.
    pub others: Vec<String>,
}

impl NoQuorum {
    /// The one behind a fault, if there is one.
    pub fn of(fault: &Fault) -> Option<&Self> {
        fault.cause()?.downcast_ref()
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no quorum, {} of {} nodes agreed", self.granted, self.needed)?;
        self.faults.iter().try_for_each(|(node, fault)| write!(f, "; {node}: {fault}"))
    }
}

impl Error for NoQuorum {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == FaultKind::Unsupported {
            return write!(f, "the backend does not support {}", self.action);
        }
        write!(f, "could not {}", self.action)?;
        if let Some(key) = self.key() {
            // An action of one word takes the key as its object.
            let link = if self.action.contains(' ') { " for key" } else { "" };
            write!(f, "{link} {key:?}")?;
        }
        if let Some(store) = self.store() {
            write!(f, " at {store}")?;
        }
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
        }
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let told = self.to_string();
        let mut below = self.cause()?.source();
        while let Some(error) = below
            && told.contains(&error.to_string())
        {
            below = error.source();
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Self>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|layer| layer as _)
        }
    }

    #[test]
    fn a_fault_names_operation_key_store_cause_and_what_to_do() {
        let (store, key) = ("redis://h:6379", Key::new("jobs").unwrap());
        let fault = Fault::transient("acquire", "connection refused");
        assert_eq!(fault.to_string(), "could not acquire: connection refused");
        let fault = fault.at_store(store).at_key(&key).advise("start the server");
        let text = "could not acquire \"jobs\" at redis://h:6379: connection refused; start the \
                    server";
        assert_eq!(fault.to_string(), text);
        let again = fault.clone().at_store("elsewhere").at_key(&Key::new("other").unwrap());
        assert_eq!(again, fault, "the first who names them knows best");
    }

    #[test]
    fn a_chain_of_sources_repeats_nothing() {
        let deepest = Layer("deepest", None);
        let repeats = Layer("refused", Some(Box::new(deepest)));
        let fault = Fault::transient("acquire", Layer("io: refused", Some(Box::new(repeats))));
        assert_eq!(fault.to_string(), "could not acquire: io: refused");
        assert_eq!(fault.source().unwrap().to_string(), "deepest");
        assert!(Fault::transient("acquire", "refused").source().is_none());
    }
}
