//! The words that a test and its peers speak: the types of the seam as JSON.

use std::time::Duration;

use distlock_core::{
    Answer, Ask, AttemptId, Busy, Claim, Fault, FaultKind, Holder, Key, Label, Order, Page, Push,
    QueuePosition, ReleaseOptions, ReleaseOutcome, Renewal, Snapshot, Standing, Target, Wait,
    Waiter,
};
use serde_json::{Value, json};

pub(crate) const ORDERS: [Order; 3] = [Order::Fifo, Order::PreferWriters, Order::PreferReaders];

fn nanos(duration: Duration) -> Value {
    json!(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

fn span(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_nanos)
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap().try_into().unwrap()
}

fn order(value: &Value) -> Option<Order> {
    ORDERS.into_iter().find(|order| value.as_str() == Some(&order.to_string()))
}

fn text(label: Option<&Label>) -> Value {
    json!(label.map(Label::as_str))
}

fn label(value: &Value) -> Option<Label> {
    value.as_str().map(|text| Label::new("label", text).unwrap())
}

fn claim(value: &Value) -> Claim {
    let id = value["id"].as_str().unwrap().parse().unwrap();
    Claim::new(Key::new(value["key"].as_str().unwrap()).unwrap(), id)
}

pub(crate) fn ask_out(ask: &Ask) -> Value {
    json!({
        "key": ask.claim.key.as_str(), "id": ask.claim.id.reveal(),
        "attempt": ask.attempt.map(|id| id.reveal()),
        "owner": ask.owner.as_str(), "reason": text(ask.reason.as_ref()),
        "weight": ask.weight, "capacity": ask.capacity, "order": ask.order.to_string(),
        "group": text(ask.group.as_ref()), "reentry": ask.reentry.map(|id| id.reveal()),
        "ttl": nanos(ask.ttl), "floor": ask.fence_floor,
        "place": ask.wait.map(|wait| nanos(wait.place)),
        "waiters_max": ask.wait.map(|wait| wait.waiters_max),
    })
}

pub(crate) fn ask_in(value: &Value) -> Ask {
    let wait = |place| Wait { place, waiters_max: number(&value["waiters_max"]) };
    Ask {
        reason: label(&value["reason"]),
        attempt: attempt(value),
        weight: number(&value["weight"]),
        capacity: number(&value["capacity"]),
        order: order(&value["order"]).unwrap(),
        group: label(&value["group"]),
        reentry: value["reentry"].as_str().map(|id| id.parse().unwrap()),
        fence_floor: value["floor"].as_u64(),
        wait: span(&value["place"]).map(wait),
        ..Ask::new(claim(value), label(&value["owner"]).unwrap(), span(&value["ttl"]).unwrap())
    }
}

pub(crate) fn renewal_out(renewal: &Renewal) -> Value {
    json!({
        "key": renewal.claim.key.as_str(), "id": renewal.claim.id.reveal(),
        "span": nanos(renewal.span), "ticket": renewal.ticket, "weight": renewal.weight,
        "floor": renewal.fence_floor,
    })
}

pub(crate) fn renewal_in(value: &Value) -> Renewal {
    Renewal {
        ticket: value["ticket"].as_u64(),
        weight: value["weight"].as_u64().map(|weight| weight.try_into().unwrap()),
        fence_floor: value["floor"].as_u64(),
        ..Renewal::hold(claim(value), span(&value["span"]).unwrap())
    }
}

pub(crate) fn release_out(target: &Target, how: ReleaseOptions) -> Value {
    let (id, attempt, fence) = match target {
        Target::Claim(claim) => (Some(claim.id.reveal()), None, None),
        Target::Attempt { claim, attempt } => {
            (Some(claim.id.reveal()), Some(attempt.reveal()), None)
        }
        Target::Fence { fence, .. } => (None, None, Some(fence)),
        _ => unreachable!("there are no others"),
    };
    let (keep, bury) = (nanos(how.keep), nanos(how.bury));
    json!({
        "key": target.key().as_str(), "id": id, "attempt": attempt, "fence": fence, "keep": keep,
        "bury": bury,
    })
}

fn attempt(value: &Value) -> Option<AttemptId> {
    value["attempt"].as_str().map(|id| id.parse().unwrap())
}

pub(crate) fn release_in(value: &Value) -> (Target, ReleaseOptions) {
    let key = || Key::new(value["key"].as_str().unwrap()).unwrap();
    let target = match (value["fence"].as_u64(), attempt(value)) {
        (Some(fence), _) => Target::Fence { key: key(), fence },
        (None, Some(attempt)) => Target::Attempt { claim: claim(value), attempt },
        (None, None) => Target::Claim(claim(value)),
    };
    (
        target,
        ReleaseOptions { keep: span(&value["keep"]).unwrap(), bury: span(&value["bury"]).unwrap() },
    )
}

pub(crate) fn answer_out(answer: &Answer) -> Value {
    match answer {
        Answer::Granted { fence } => json!({"granted": fence}),
        Answer::Busy(busy) => json!({"busy": {
            "ticket": busy.ticket, "ahead": busy.ahead,
            "retry_after": busy.retry_after.map(nanos),
            "holder": busy.holder.as_ref().map(holder_out),
        }}),
        Answer::Conflict => json!("conflict"),
        Answer::Full => json!("full"),
        Answer::Dead => json!("dead"),
        other => unreachable!("a file never says {other:?}"),
    }
}

pub(crate) fn answer_in(value: &Value) -> Answer {
    if let Some(fence) = value["granted"].as_u64() {
        return Answer::Granted { fence };
    }
    match value.as_str() {
        Some("conflict") => return Answer::Conflict,
        Some("full") => return Answer::Full,
        Some("dead") => return Answer::Dead,
        _ => {}
    }
    let busy = &value["busy"];
    Answer::Busy(Busy {
        ticket: busy["ticket"].as_u64(),
        ahead: busy["ahead"].as_u64().unwrap(),
        retry_after: span(&busy["retry_after"]),
        holder: busy["holder"].as_object().map(|_| holder_in(&busy["holder"])),
    })
}

fn holder_out(holder: &Holder) -> Value {
    json!({
        "owner": holder.owner.as_str(), "reason": text(holder.reason.as_ref()),
        "fence": holder.fence, "weight": holder.weight, "capacity": holder.capacity,
        "exclusive": holder.exclusive,
        "group": text(holder.group.as_ref()), "held_for": nanos(holder.held_for),
        "expires_in": holder.expires_in.map(nanos),
    })
}

fn holder_in(value: &Value) -> Holder {
    Holder {
        owner: label(&value["owner"]).unwrap(),
        reason: label(&value["reason"]),
        fence: value["fence"].as_u64().unwrap(),
        weight: number(&value["weight"]),
        capacity: value["capacity"].as_u64().map(|capacity| capacity.try_into().unwrap()),
        exclusive: value["exclusive"].as_bool().unwrap(),
        group: label(&value["group"]),
        held_for: span(&value["held_for"]).unwrap(),
        expires_in: span(&value["expires_in"]),
    }
}

pub(crate) fn standing_out(standing: &Standing) -> Value {
    match standing {
        Standing::Held { fence } => json!({"held": fence}),
        Standing::Waiting(waiting) => json!({"waiting": {
            "ticket": waiting.ticket, "ahead": waiting.ahead,
            "retry_after": waiting.retry_after.map(nanos),
        }}),
        _ => json!("gone"),
    }
}

pub(crate) fn standing_in(value: &Value) -> Standing {
    if let Some(fence) = value["held"].as_u64() {
        return Standing::Held { fence };
    }
    let waiting = &value["waiting"];
    match waiting["ticket"].as_u64() {
        Some(ticket) => Standing::Waiting(QueuePosition {
            ticket,
            ahead: waiting["ahead"].as_u64().unwrap(),
            retry_after: span(&waiting["retry_after"]),
        }),
        None => Standing::Gone,
    }
}

pub(crate) fn outcome_out(outcome: ReleaseOutcome) -> Value {
    json!(format!("{outcome:?}"))
}

pub(crate) fn outcome_in(value: &Value) -> ReleaseOutcome {
    let all = [ReleaseOutcome::WasHeld, ReleaseOutcome::WasWaiting, ReleaseOutcome::Gone];
    all.into_iter().find(|one| value.as_str() == Some(&format!("{one:?}"))).unwrap()
}

pub(crate) fn snapshot_out(seen: &Snapshot) -> Value {
    let waiter = |waiter: &Waiter| {
        json!({
            "owner": waiter.owner.as_str(), "reason": text(waiter.reason.as_ref()),
            "weight": waiter.weight, "exclusive": waiter.exclusive,
            "group": text(waiter.group.as_ref()), "waited": nanos(waiter.waited),
        })
    };
    json!({
        "key": seen.key.as_str(), "order": seen.order.map(|order| order.to_string()),
        "holders": seen.holders.iter().map(holder_out).collect::<Vec<_>>(),
        "holders_total": seen.holders_total,
        "waiters": seen.waiters.iter().map(waiter).collect::<Vec<_>>(),
        "waiters_total": seen.waiters_total,
    })
}

pub(crate) fn snapshot_in(value: &Value) -> Snapshot {
    let waiter = |value: &Value| Waiter {
        owner: label(&value["owner"]).unwrap(),
        reason: label(&value["reason"]),
        weight: number(&value["weight"]),
        exclusive: value["exclusive"].as_bool().unwrap(),
        group: label(&value["group"]),
        waited: span(&value["waited"]).unwrap(),
    };
    Snapshot {
        key: Key::new(value["key"].as_str().unwrap()).unwrap(),
        order: order(&value["order"]),
        holders: value["holders"].as_array().unwrap().iter().map(holder_in).collect(),
        holders_total: value["holders_total"].as_u64().unwrap(),
        waiters: value["waiters"].as_array().unwrap().iter().map(waiter).collect(),
        waiters_total: value["waiters_total"].as_u64().unwrap(),
    }
}

pub(crate) fn page_out(page: &Page) -> Value {
    let locks: Vec<_> = page.locks.iter().map(snapshot_out).collect();
    json!({"locks": locks, "next": page.next.as_ref().map(|next| next.0.clone())})
}

pub(crate) fn page_in(value: &Value) -> Page {
    Page {
        locks: value["locks"].as_array().unwrap().iter().map(snapshot_in).collect(),
        next: value["next"].as_str().map(|next| distlock_core::Cursor(next.to_owned())),
    }
}

pub(crate) fn push_out(push: Push) -> Value {
    match push {
        Push::Granted { id, ticket, fence } => {
            json!({"id": id.reveal(), "ticket": ticket, "fence": fence})
        }
        Push::Broken { id } => json!({"id": id.reveal()}),
        _ => json!({}),
    }
}

pub(crate) fn push_in(value: &Value) -> Push {
    let id = value["id"].as_str().map(|id| id.parse().unwrap());
    match (id, value["ticket"].as_u64(), value["fence"].as_u64()) {
        (Some(id), Some(ticket), Some(fence)) => Push::Granted { id, ticket, fence },
        (Some(id), ..) => Push::Broken { id },
        _ => Push::Interrupted,
    }
}

pub(crate) fn fault_out(fault: &Fault) -> Value {
    json!({"kind": format!("{:?}", fault.kind()), "text": fault.to_string()})
}

pub(crate) fn fault_in(value: &Value) -> Fault {
    let text = value["text"].as_str().unwrap().to_owned();
    match value["kind"].as_str().unwrap() {
        kind if kind == format!("{:?}", FaultKind::Transient) => Fault::transient("(peer)", text),
        kind if kind == format!("{:?}", FaultKind::Permanent) => Fault::permanent("(peer)", text),
        _ => Fault::unsupported("(peer)"),
    }
}
