//! Rows that another program wrote into the file: each is the fault of its own key.

use std::time::Duration;

use distlock::Locks;
use distlock_core::{Backend, Key};

use crate::support::{Place, ask, granted};

#[tokio::test]
async fn a_row_that_makes_no_sense_is_the_fault_of_its_key_alone() {
    let (place, mut store) = (Place::new(), None);
    let changes = ["queueing = 'garbage'", "owner = x'ff'", "claim = x'01'", "weight = 'x'"];
    for (number, change) in changes.iter().enumerate() {
        let store = store.get_or_insert_with(|| place.client());
        let (good, bad) = (format!("good{number}"), format!("bad{number}"));
        granted(store, &ask(&good)).await;
        granted(store, &ask(&bad)).await;
        let sql = format!("UPDATE holders SET {change} WHERE key = ?1");
        assert_eq!(place.shell().execute(&sql, [&bad]).unwrap(), 1);
        let page = store.list("", None).await.unwrap();
        let names: Vec<_> = page.locks.iter().map(|lock| lock.key.to_string()).collect();
        let expected: Vec<_> = (0..=number).map(|number| format!("good{number}")).collect();
        assert_eq!(names, expected, "{change}");
        let fault = store.inspect(&Key::new(bad).unwrap()).await.unwrap_err();
        assert!(!fault.is_transient(), "{change}: {fault}");
    }
}

#[tokio::test]
async fn a_bad_entry_of_the_journal_hides_no_other() {
    let place = Place::new();
    let url = format!("sqlite:{}?journal=on", place.file.display());
    let locks = Locks::connect(&url).unwrap();
    for _ in 0..3 {
        locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    }
    locks.close().await.unwrap();
    let whole = entries(&place).await;
    assert!(whole >= 6, "{whole} entries");
    for change in ["owner = x'ff'", "at_ms = 'never'"] {
        let sql = format!("UPDATE journal SET {change} WHERE id = 3");
        assert_eq!(place.shell().execute(&sql, []).unwrap(), 1);
        assert_eq!(entries(&place).await, whole - 1, "{change}");
    }
}

/// How many entries of the journal can be read.
async fn entries(place: &Place) -> usize {
    use distlock_core::Journal;
    let store = place.client();
    let page = tokio::time::timeout(Duration::from_secs(10), store.page(None, 100));
    page.await.unwrap().unwrap().entries.len()
}
