//! What a server says over a connection without being asked.

use std::collections::VecDeque;

use distlock_core::Push;
use redis::{PushInfo, PushKind};

use super::codec;

/// Forgets the channels that are no longer listened to; true if one of them went with its slot.
/// What a broken connection listened to is asked for anew: its node may have been replaced.
pub(super) fn has_moved(info: &PushInfo, channels: &mut VecDeque<String>) -> bool {
    let before = channels.len();
    match (&info.kind, info.data.first().map(codec::as_str)) {
        (PushKind::Disconnection, _) => channels.clear(),
        (PushKind::SUnsubscribe, Some(Ok(channel))) => {
            channels.retain(|known| **known != *channel);
            return channels.len() < before;
        }
        _ => {}
    }
    false
}

/// What is left of a message that others than the scripts may have published: a reason to ask the
/// server.
pub(super) fn unverified(push: Push) -> Push {
    match push {
        Push::Granted { id, .. } | Push::Broken { id } => Push::Check { id },
        other => other,
    }
}

/// A message on a channel of this client; the name of every channel ends in its id.
pub(super) fn read_push(info: &PushInfo, client: &str) -> Option<Push> {
    match (&info.kind, info.data.as_slice()) {
        (PushKind::Message | PushKind::SMessage, [channel, message])
            if codec::as_str(channel).ok()?.ends_with(client) =>
        {
            codec::push(&codec::as_str(message).ok()?)
        }
        (PushKind::Disconnection, _) => Some(Push::Interrupted),
        _ => None,
    }
}
