//! What a scripted verb replies, and when.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{
    Answer, Ask, Fault, Health, Key, Page, ReleaseOutcome, Renewal, Snapshot, Standing, Target,
};
use tokio::sync::watch;
use tokio::time::sleep;

/// A prepared reply to a request of type `Q` with an answer of type `A`.
///
/// Made from an answer (`ScriptedReply::from(Answer::Full)`), from a [`Fault`], from a function of
/// the request ([`ScriptedReply::with`]), or [never](ScriptedReply::never) coming.
/// [`ScriptedReply::after`] delays it and [`ScriptedReply::gated`] holds it back until the test
/// opens a [`ReplyGate`].
pub struct ScriptedReply<Q, A> {
    steps: Vec<ReplyStep>,
    end: ReplyEnd<Q, A>,
}

/// What happens before the reply is given.
#[derive(Clone)]
enum ReplyStep {
    Sleep(Duration),
    Gate(Arc<GateState>),
}

type Function<Q, A> = Arc<dyn Fn(&Q) -> Result<A, Fault> + Send + Sync>;

enum ReplyEnd<Q, A> {
    Fixed(Result<A, Fault>),
    With(Function<Q, A>),
    Never,
}

impl<Q, A> ScriptedReply<Q, A> {
    /// This answer.
    pub fn answer(answer: A) -> Self {
        Self::end(ReplyEnd::Fixed(Ok(answer)))
    }

    /// This fault.
    pub fn fault(fault: Fault) -> Self {
        Self::end(ReplyEnd::Fixed(Err(fault)))
    }

    /// A fault after which trying again may help.
    pub fn transient() -> Self {
        Self::fault(Fault::transient("reach the scripted store", "the script says so"))
    }

    /// A fault that stays.
    pub fn permanent() -> Self {
        Self::fault(Fault::permanent("use the scripted store", "the script says so"))
    }

    /// Whatever this function makes of the request, computed when the reply is due.
    pub fn with(function: impl Fn(&Q) -> Result<A, Fault> + Send + Sync + 'static) -> Self {
        Self::end(ReplyEnd::With(Arc::new(function)))
    }

    /// No reply: the call hangs until it is dropped.
    pub fn never() -> Self {
        Self::end(ReplyEnd::Never)
    }

    /// The same reply, but only after this long.
    #[must_use]
    pub fn after(mut self, while_: Duration) -> Self {
        self.steps.insert(0, ReplyStep::Sleep(while_));
        self
    }

    /// The same reply, held back until the gate is opened.
    #[must_use]
    pub fn gated(mut self) -> (ReplyGate, Self) {
        let latch = Arc::new(GateState {
            open: watch::Sender::new(false),
            reached: watch::Sender::new(false),
        });
        self.steps.insert(0, ReplyStep::Gate(Arc::clone(&latch)));
        (ReplyGate(latch), self)
    }

    fn end(end: ReplyEnd<Q, A>) -> Self {
        Self { steps: Vec::new(), end }
    }

    /// Waits as told, then replies.
    pub(super) async fn play(self, request: &Q) -> Result<A, Fault> {
        for step in self.steps {
            match step {
                ReplyStep::Sleep(while_) => sleep(while_).await,
                ReplyStep::Gate(latch) => latch.pass().await,
            }
        }
        match self.end {
            ReplyEnd::Fixed(result) => result,
            ReplyEnd::With(function) => function(request),
            ReplyEnd::Never => pending().await,
        }
    }
}

impl<Q, A: Clone> Clone for ScriptedReply<Q, A> {
    fn clone(&self) -> Self {
        let end = match &self.end {
            ReplyEnd::Fixed(result) => ReplyEnd::Fixed(result.clone()),
            ReplyEnd::With(function) => ReplyEnd::With(Arc::clone(function)),
            ReplyEnd::Never => ReplyEnd::Never,
        };
        Self { steps: self.steps.clone(), end }
    }
}

impl<Q, A: fmt::Debug> fmt::Debug for ScriptedReply<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            ReplyEnd::Fixed(result) => f.debug_tuple("Reply").field(result).finish(),
            ReplyEnd::With(_) => f.write_str("Reply::with(…)"),
            ReplyEnd::Never => f.write_str("Reply::never()"),
        }
    }
}

impl<Q, A> From<Fault> for ScriptedReply<Q, A> {
    fn from(fault: Fault) -> Self {
        Self::fault(fault)
    }
}

macro_rules! from_answer {
    ($($ask:ty => $answer:ty),*) => {
        $(impl From<$answer> for ScriptedReply<$ask, $answer> {
            fn from(answer: $answer) -> Self {
                Self::answer(answer)
            }
        })*
    };
}

from_answer! {
    Ask => Answer, Renewal => Standing, Target => ReleaseOutcome, Key => Snapshot, String => Page,
    () => Health
}

/// Holds one reply back until a test opens it.
#[derive(Debug)]
pub struct ReplyGate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    open: watch::Sender<bool>,
    reached: watch::Sender<bool>,
}

impl ReplyGate {
    /// Lets the reply go.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// Waits until a call has come to the gate, so that it is known to be under way.
    pub async fn reached(&self) {
        until_true(&self.0.reached).await;
    }
}

impl GateState {
    async fn pass(&self) {
        self.reached.send_replace(true);
        until_true(&self.open).await;
    }
}

async fn until_true(flag: &watch::Sender<bool>) {
    // The sender is borrowed here, so it cannot close while we wait.
    let _ = flag.subscribe().wait_for(|set| *set).await;
}
