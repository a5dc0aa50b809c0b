//! Against a real nats-server on this machine.

use std::time::Duration;

use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{buckets::EpochBase, *};
use crate::{
    entries::{HeartbeatEntry, Ownership, StoreEvent},
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
    let first = a
        .set_owner(&gate(), Some(node("a")), None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        b.set_owner(&gate(), Some(node("b")), None).await.unwrap(),
        None
    );
    let camera = gate();
    let claims = tokio::join!(
        a.set_owner(&camera, Some(node("a")), Some(first)),
        b.set_owner(&camera, Some(node("b")), Some(first)),
    );
    let won: Vec<Epoch> = [claims.0.unwrap(), claims.1.unwrap()]
        .into_iter()
        .flatten()
        .collect();
    assert!(matches!(won[..], [epoch] if epoch > first), "{won:?}");
    let released = b.set_owner(&gate(), None, Some(won[0])).await.unwrap();
    assert!(released > Some(won[0]));
}

#[tokio::test]
async fn watch_reports_current_values_then_changes() {
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
        let heartbeat = Heartbeat {
            capacity_hz: 7.5,
            ..Heartbeat::default()
        };
        a.renew(&node("a"), &heartbeat, 0).await.unwrap();
        assert_eq!(
            next(&mut events).await,
            StoreEvent::Heartbeat(HeartbeatEntry {
                node: node("a"),
                heartbeat,
                revision: 1
            })
        );
        assert!(!b.is_absent(&node("a")).await.unwrap());
        a.stop(&node("a")).await.unwrap();
        assert_eq!(next(&mut events).await, StoreEvent::Stopped(node("a")));
        assert!(b.is_absent(&node("a")).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn heartbeat_that_is_not_renewed_is_absent() {
    let server = NatsServer::start();
    let store = server.connect().await;
    let renew = async |last| {
        store
            .renew(&node("a"), &Heartbeat::default(), last)
            .await
            .unwrap()
    };
    assert_eq!(renew(0).await, Renewal::Accepted(1));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !store.is_absent(&node("a")).await.unwrap() {
        assert!(tokio::time::Instant::now() < deadline);
        sleep(Duration::from_millis(200)).await;
    }
    // A key that expired can be made again.
    assert_eq!(renew(1).await, Renewal::Accepted(2));
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
}

#[tokio::test]
async fn restarted_server_keeps_owners_and_takes_heartbeats_again() {
    let mut server = NatsServer::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let epoch = a
        .set_owner(&gate(), Some(node("a")), None)
        .await
        .unwrap()
        .unwrap();
    watched(&b, async |mut events| {
        until(&mut events, |event| matches!(event, StoreEvent::Owned(..))).await;
        server.restart();
        until(&mut events, |event| {
            matches!(event, StoreEvent::Disconnected { .. })
        })
        .await;
        let owner = Some(node("a"));
        let same = StoreEvent::Owned(gate(), Ownership { owner, epoch });
        until(&mut events, |event| *event == same).await;
        b.renew(&node("b"), &Heartbeat::default(), 7).await.unwrap();
        until(
            &mut events,
            |event| matches!(event, StoreEvent::Heartbeat(entry) if entry.node == node("b")),
        )
        .await;
    })
    .await;
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
    let long = store
        .put_list(&"x".repeat(2 << 20), Some(second))
        .await
        .unwrap_err();
    assert_eq!(
        long.to_string(),
        "the list has 2097152 bytes, the NATS server accepts 1048576; raise max_payload in its configuration"
    );
}

// Faults: F14.
#[tokio::test]
async fn servers_that_cannot_be_used_are_named() {
    let mut server = NatsServer::start();
    server.end();
    let absent = FleetStore::connect(server.settings())
        .await
        .err()
        .unwrap()
        .to_string();
    let url = format!("NATS server nats://127.0.0.1:{} ", server.port());
    assert!(
        absent.starts_with(&format!("{url}cannot be reached: ")),
        "{absent}"
    );
    server.begin(&[]);
    let without = server.connect().await.list().await.unwrap_err().to_string();
    assert!(
        without.starts_with(&format!("{url}has no JetStream")),
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
    let connect = async |user| FleetStore::connect(server.settings_of(user)).await;
    let (node_store, apply) = (
        connect("node").await.unwrap(),
        connect("apply").await.unwrap(),
    );
    let get = connect("get").await.unwrap();
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

    let mut stranger = server.settings_of("node");
    stranger.access.login = server.settings_of("nobody").access.login;
    let rejected = FleetStore::connect(stranger).await.err().unwrap();
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
