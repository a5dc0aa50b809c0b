//! Against a real nats-server on this machine.

use std::time::Duration;

use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{buckets::EpochBase, *};
use crate::{
    entries::{Ownership, StoreEvent},
    testing::{NatsServer, PATIENCE, node},
};

fn gate() -> CameraId {
    CameraId::new("gate").unwrap()
}

/// Runs `store.watch` beside `body`.
async fn watched<F: Future>(
    store: &FleetStore,
    body: impl FnOnce(mpsc::Receiver<StoreEvent>) -> F,
) -> F::Output {
    let (sender, events) = mpsc::channel(16);
    let (output, ()) = tokio::join!(body(events), store.watch(sender));
    output
}

async fn next(events: &mut mpsc::Receiver<StoreEvent>) -> StoreEvent {
    timeout(PATIENCE, events.recv()).await.unwrap().unwrap()
}

/// Skips events until the one that is wanted.
async fn until(events: &mut mpsc::Receiver<StoreEvent>, wanted: impl Fn(&StoreEvent) -> bool) {
    while !wanted(&next(events).await) {}
}

#[tokio::test]
async fn one_of_two_claims_of_an_epoch_succeeds() {
    let server = NatsServer::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let camera = gate();
    let claim = async |store: &FleetStore, name, expected| {
        let written = store.set_owner(&camera, Some(node(name)), expected).await;
        written.unwrap()
    };
    let first = claim(&a, "a", None).await;
    assert_eq!(claim(&b, "b", None).await, None);
    let (of_a, of_b) = tokio::join!(claim(&a, "a", first), claim(&b, "b", first));
    let won = of_a.xor(of_b);
    assert!(won > first, "{of_a:?} {of_b:?}");
    assert!(b.set_owner(&camera, None, won).await.unwrap() > won);
}

#[tokio::test]
async fn watch_reports_all_current_values_and_their_end() {
    let server = NatsServer::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let list = a.put_list("[camera.gate]", None).await.unwrap();
    let written = a.set_owner(&gate(), Some(node("a")), None).await;
    let epoch = written.unwrap().unwrap();
    watched(&b, async |mut events| {
        assert_eq!(next(&mut events).await, StoreEvent::Connected);
        let mut first = vec![];
        while first.len() < 3 {
            first.push(next(&mut events).await);
        }
        // Buckets have no common order, but owners come before the end of them.
        first.sort_by_key(|event| !matches!(event, StoreEvent::List(_)));
        let owner = Some(node("a"));
        let owned = Ownership { owner, epoch };
        let text = "[camera.gate]".to_owned();
        let current = [
            StoreEvent::List(ListRevision {
                revision: list,
                text,
            }),
            StoreEvent::Owned(gate(), owned),
            StoreEvent::Current,
        ];
        assert_eq!(first, current);
    })
    .await;
}

#[tokio::test]
async fn heartbeat_of_one_machine_refuses_another() {
    let server = NatsServer::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let of = |machine: &str| Heartbeat {
        machine: machine.into(),
        ..Heartbeat::default()
    };
    let renew = async |store: &FleetStore, machine, last| {
        let renewed = store.renew(&node("a"), &of(machine), last).await;
        renewed.unwrap()
    };
    assert_eq!(renew(&a, "one", 0).await, Renewal::Accepted(1));
    assert_eq!(renew(&b, "two", 0).await, Renewal::NameTaken("one".into()));
    // An answer was lost, or the process has started again.
    assert_eq!(renew(&a, "one", 0).await, Renewal::Accepted(2));
    a.stop(&node("a")).await.unwrap();
    assert_eq!(renew(&b, "two", 0).await, Renewal::Accepted(4));
    assert_eq!(renew(&a, "one", 2).await, Renewal::NameTaken("two".into()));
    // One that expired can be made again.
    let expired = async {
        while !a.is_absent(&node("a")).await.unwrap() {
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(PATIENCE, expired).await.unwrap();
    assert_eq!(renew(&a, "one", 2).await, Renewal::Accepted(5));
}

#[tokio::test]
async fn second_writer_of_a_list_is_refused() {
    let server = NatsServer::start();
    let store = server.connect().await;
    assert_eq!(store.list().await.unwrap(), None);
    let first = store.put_list("one", None).await.unwrap();
    let second = store.put_list("two", Some(first)).await.unwrap();
    let late = store.put_list("three", Some(first)).await;
    assert!(matches!(late, Err(StoreError::Changed)), "{late:?}");
    let list = store.list().await.unwrap().unwrap();
    assert_eq!((list.revision, list.text.as_str()), (second, "two"));
    let long = store.put_list(&"x".repeat(2 << 20), Some(second)).await;
    let long = long.unwrap_err().to_string();
    assert!(long.contains("raise max_payload"), "{long}");
}

// Faults: F14.
#[tokio::test]
async fn servers_that_cannot_be_used_are_named() {
    let mut server = NatsServer::start();
    server.end();
    let absent = FleetStore::connect(node("hall"), server.access()).await;
    let absent = absent.err().unwrap().to_string();
    let url = format!("NATS server nats://127.0.0.1:{} ", server.port());
    let expected = format!("{url}cannot be reached: ");
    assert!(absent.starts_with(&expected), "{absent}");
    let server = NatsServer::start_in(tempfile::tempdir().unwrap(), &[]);
    let without = server.connect().await.list().await.unwrap_err();
    assert!(
        matches!(without, StoreError::NoJetStream { .. }),
        "{without}"
    );
}

/// The example of the documentation.
const ACCOUNTS: &str = include_str!("../../../../configs/nats-fleet.conf");

// Faults: F14.
#[tokio::test]
async fn users_with_the_least_rights_can_do_their_part_alone() {
    let accounts = ["node", "apply", "get"]
        .iter()
        .fold(ACCOUNTS.to_owned(), |text, user| {
            let variable = format!("${}_PASSWORD", user.to_uppercase());
            assert!(text.contains(&variable), "no password in the example");
            text.replace(&variable, user)
        });
    let server = NatsServer::start_with(&accounts);
    let connect = async |user| server.connect_as(user).await.unwrap();
    let (node_store, apply) = (connect("node").await, connect("apply").await);
    let get = connect("get").await;
    assert_eq!(get.list().await.unwrap(), None);
    let revision = apply.put_list("[camera.gate]", None).await.unwrap();
    assert_eq!(get.list().await.unwrap().unwrap().revision, revision);
    let refused = get.put_list("", Some(revision)).await.unwrap_err();
    let subject = "Permissions Violation for Publish to \"$KV.spotter-hall-list.cameras\"";
    assert!(refused.to_string().contains(subject), "{refused}");

    watched(&node_store, async |mut events| {
        until(&mut events, |event| matches!(event, StoreEvent::List(_))).await;
        let (name, store) = (node("a"), &node_store);
        store.renew(&name, &Heartbeat::default(), 0).await.unwrap();
        assert!(!store.is_absent(&name).await.unwrap());
        let owner = Some(name.clone());
        let first = store.set_owner(&gate(), owner.clone(), None).await.unwrap();
        let second = store.set_owner(&gate(), owner, first).await.unwrap();
        assert!(second > first);
        let text = Some("paused = true".to_owned());
        store.set_settings(&gate(), text.clone()).await.unwrap();
        store.set_settings(&gate(), None).await.unwrap();
        let camera = gate();
        let last = StoreEvent::Settings { camera, text: None };
        until(&mut events, |event| *event == last).await;
        store.stop(&name).await.unwrap();
        until(&mut events, |event| {
            *event == StoreEvent::Stopped(node("a"))
        })
        .await;
    })
    .await;

    let rejected = server.connect_as("nobody").await.err().unwrap();
    assert!(matches!(rejected, StoreError::Login { .. }), "{rejected}");
}

// Faults: F9.
#[test]
fn epochs_of_a_bucket_made_again_are_higher() {
    let (before, after) = (
        EpochBase::made_at(1_800_000_000),
        EpochBase::made_at(1_800_000_001),
    );
    let last = before.epoch(1_000_000);
    assert!(after.epoch(1) > last && last.0 < 1 << 53);
    assert_eq!(before.revision(last), Some(1_000_000));
    assert_eq!(after.revision(last), None);
}

/// Writes a key as another program does.
async fn put(store: &FleetStore, bucket: &str, key: &str, value: &[u8]) -> u64 {
    let buckets = store.buckets().await.unwrap();
    let bucket = match bucket {
        "owners" => buckets.owners,
        "nodes" => buckets.nodes,
        _ => buckets.settings,
    };
    bucket.put(key, value.to_vec().into()).await.unwrap()
}

/// The epoch at which the watch reports the camera as released.
async fn released(store: &FleetStore) -> Epoch {
    watched(store, async |mut events| {
        loop {
            if let StoreEvent::Owned(_, Ownership { owner: None, epoch }) = next(&mut events).await
            {
                return epoch;
            }
        }
    })
    .await
}

// Faults: F11.
#[tokio::test]
async fn garbage_of_an_owner_releases_the_camera() {
    let server = NatsServer::start();
    let store = server.connect().await;
    let camera = gate();
    store
        .set_owner(&camera, Some(node("a")), None)
        .await
        .unwrap();
    let long = format!("{{\"owner\":\"b\",\"more\":\"{}\"}}", "x".repeat(2000));
    for garbage in [
        &b"{"[..],
        b"",
        b"\xff",
        b"{\"owner\":\"Not a name\"}",
        b"[1]",
        long.as_bytes(),
    ] {
        put(&store, "owners", "gate", garbage).await;
        let released = released(&store).await;
        // A node can claim it.
        let claimed = store
            .set_owner(&camera, Some(node("a")), Some(released))
            .await;
        assert!(claimed.unwrap() > Some(released), "{garbage:?}");
    }
    // Also when the key was removed.
    store
        .buckets()
        .await
        .unwrap()
        .owners
        .delete("gate")
        .await
        .unwrap();
    let removed = released(&store).await;
    let claimed = store
        .set_owner(&camera, Some(node("a")), Some(removed))
        .await;
    assert!(claimed.unwrap().is_some());
}

// Faults: F10.
#[tokio::test]
async fn values_that_break_a_rule_are_ignored() {
    let server = NatsServer::start();
    let store = server.connect().await;
    let heartbeat =
        |capacity: &str| format!("{{\"version\":\"1\",\"labels\":[],\"capacity_hz\":{capacity}}}");
    for (name, capacity) in [
        ("a", "-1"),
        ("b", "1e-320"),
        ("c", "1e300"),
        ("d", "\"30\""),
        ("e", "30"),
    ] {
        put(&store, "nodes", name, heartbeat(capacity).as_bytes()).await;
    }
    watched(&store, async |mut events| {
        loop {
            if let StoreEvent::Heartbeat(entry) = next(&mut events).await {
                assert_eq!(entry.node, node("e"));
                assert_eq!(entry.heartbeat.capacity_hz, 30.0);
                break;
            }
        }
    })
    .await;
}
