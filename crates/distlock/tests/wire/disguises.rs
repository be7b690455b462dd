//! Values that a foreign client may have put there, whatever they look like.

use distlock::{Error, HoldEnd};

use crate::kinds::Kind;
use crate::stage::{Stage, assert_all_end, is_held, is_timeout, ms};

const HEX: &str = "0123456789abcdef0123456789abcdef";

/// Whatever is wrong with how we treat a foreign value.
async fn wrong_with(stage: &Stage, value: &str, ends: bool) -> Vec<String> {
    let key = "jobs";
    let mut wrong = Vec::new();
    let put = || {
        let mut words = vec!["SET", key, value];
        words.extend(ends.then_some(["PX", "60000"]).into_iter().flatten());
        stage.server.command(&words);
    };
    put();
    let before = stage.value(key);
    let mut note = |what: &str, is_right: bool, got: String| {
        let is_there = stage.value(key) == before && stage.ttl(key).is_some() == ends;
        if !is_right || !is_there {
            let gone = if is_there { "" } else { ", and the value is gone" };
            wrong.push(format!("{what} at {value:?}: {got}{gone}"));
        }
        if !is_there {
            put();
        }
    };
    for kind in Kind::ALL {
        let got = kind.try_take(&stage.locks, key).await;
        note(&format!("try {kind:?}"), is_held(&got), format!("{got:?}"));
        if let Ok(hold) = got {
            hold.release().await;
            note("release", true, String::new());
        }
    }
    let got = Kind::Mutex.wait(&stage.locks, key, ms(50)).await;
    note("wait", is_timeout(&got), format!("{got:?}"));
    drop(got);
    let got = stage.locks.inspect(key).await;
    let is_right = got.as_ref().is_ok_and(|seen| seen.holders_total == 1);
    note("inspect", is_right, format!("{got:?}"));
    for fence in [0, 1, 12] {
        let got = stage.locks.break_hold(key, fence).await;
        let is_right = matches!(got, Err(Error::NotHeld { .. }));
        note(&format!("break {fence}"), is_right, format!("{got:?}"));
    }
    stage.server.command(&["DEL", key]);
    match Kind::Mutex.try_take(&stage.locks, key).await {
        Ok(hold) => assert_eq!(hold.release().await, HoldEnd::Released),
        Err(error) => wrong.push(format!("lock after {value:?}: {error}")),
    }
    // The first few tell it all.
    wrong.truncate(3);
    wrong
}

async fn assert_foreign(values: &[&str]) {
    let stage = Stage::bare();
    let mut wrong = Vec::new();
    for value in values {
        for ends in [true, false] {
            wrong.extend(wrong_with(&stage, value, ends).await);
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    stage.finish().await;
}

#[tokio::test]
async fn any_text_that_is_not_ours_is_a_foreign_hold() {
    let long = "x ".repeat(50_000);
    assert_foreign(&[
        HEX,
        "",
        " ",
        "1",
        "hello world",
        "deadbeef 12 somebody",
        &format!("{HEX} 12 somebody"),
        &format!("kept:{HEX} 12 somebody"),
        &format!("{HEX} 12 somebody\n\n0"),
        "{\"owner\": \"me\", \"fence\": 12}",
        "a\nb\nc\nd\ne\nf\ng\nh",
        "~shared",
        "~sharedx",
        "ключ от всех дверей",
        &long,
    ])
    .await;
}

#[tokio::test]
async fn a_text_that_begins_like_our_readers_is_a_foreign_hold() {
    assert_foreign(&["~shared ", "~shared x", "~shared \n1", "~shared \n0", "~shared a b c"]).await;
}

#[tokio::test]
async fn a_text_with_as_many_lines_as_ours_is_a_foreign_hold() {
    let lines = "\n\n\n\n\n\n\n";
    assert_foreign(&[
        &format!("ab 12 x{lines}"),
        &format!("{HEX} 12 {lines}"),
        &format!("{HEX} 12 x\n\n7\n\n\n\nnow\n-1"),
        &format!("{HEX} 99999999999999999999999999 x\n\n0\n\n\n\n0\n1"),
        &format!("{HEX} 12 x\n\n0\nc\n\n\n1\n12"),
        &format!("{HEX} 12 x\n\n0\nc\n\n\n1\n1234567890123456789"),
    ])
    .await;
}

/// Not as a hold, which it does not look like, but as something that needs a repair.
#[tokio::test]
async fn a_value_of_another_type_is_not_ours_to_take() {
    let stage = Stage::bare();
    for put in [["HSET", "jobs", "a", "1"].as_slice(), &["RPUSH", "jobs", "a"]] {
        stage.server.command(put);
        for kind in Kind::ALL {
            let got = kind.try_take(&stage.locks, "jobs").await;
            let told = got.as_ref().is_err_and(|error| match error {
                Error::Backend(_) => {
                    !error.is_transient() && error.to_string().contains("WRONGTYPE")
                }
                _ => is_held(&got),
            });
            assert!(told, "{kind:?} at {put:?}: {got:?}");
        }
        stage.delete("jobs");
        Kind::Mutex.try_take(&stage.locks, "jobs").await.unwrap().release().await;
    }
    // A claim whose ask was never understood is buried for a while.
    stage.locks.close().await.unwrap();
    assert_all_end(&stage.server);
}

#[tokio::test]
async fn a_value_of_another_type_costs_no_other_hold() {
    let stage = Stage::bare();
    let locks = stage.locks.configure(|o| o.ttl(ms(1_500))).unwrap();
    let taken = Kind::Mutex.try_take(&locks, "taken").await.unwrap();
    let mut others = Vec::new();
    for kind in Kind::ALL {
        others.push((kind, kind.try_take(&locks, &format!("{kind:?}")).await.unwrap()));
    }
    stage.delete("taken");
    stage.server.command(&["HSET", "taken", "a", "1"]);
    tokio::time::sleep(ms(3_000)).await;
    assert!(!taken.guard().is_held());
    for (kind, hold) in &others {
        assert!(hold.guard().is_held(), "{kind:?} was lost: {:?}", hold.guard().loss());
    }
    stage.delete("taken");
    drop((taken, others));
    stage.locks.close().await.unwrap();
    assert_all_end(&stage.server);
}

#[tokio::test]
async fn a_copy_of_our_own_value_holds_for_whom_it_names() {
    let stage = Stage::bare();
    let hold = Kind::Mutex.try_take(&stage.locks, "jobs").await.unwrap();
    let reply = stage.value("jobs");
    let (_, copy) = reply.trim_end().split_once("\r\n").unwrap();
    stage.server.command(&["SET", "copy", copy]);
    for kind in Kind::ALL {
        let got = kind.try_take(&stage.locks, "copy").await;
        let is_right = is_held(&got) || matches!(got, Err(Error::Conflict { .. }));
        assert!(is_right, "{kind:?}: {got:?}");
    }
    let seen = stage.locks.inspect("copy").await.unwrap();
    assert_eq!(seen.holders[0].fence, hold.guard().fence());
    assert_eq!(seen.holders[0].expires_in, None);
    stage.delete("copy");
    hold.release().await;
    stage.finish().await;
}
