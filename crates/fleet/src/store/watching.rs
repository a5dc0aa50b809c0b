//! What a watch of all buckets reports.

use async_nats::jetstream::kv::{self, Operation};
use futures_util::{StreamExt as _, stream::SelectAll};
use spotter_core::{CameraId, NodeId};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use super::{Connectivity, FleetStore, OwnerValue, RETRY_PAUSE, StoreError, buckets::EpochBase};
use crate::entries::{HeartbeatEntry, ListRevision, Ownership, StoreEvent};

impl FleetStore {
    /// Sends all values and then all changes, until the receiver is dropped. After a loss of the connection it starts again, with all values.
    /// While the store cannot be used, it reports each reason once.
    pub async fn watch(&self, events: mpsc::Sender<StoreEvent>) {
        let mut reported = None;
        while !events.is_closed() {
            let mut watch = StoreWatch {
                store: self,
                events: &events,
                connectivity: self.connectivity.subscribe(),
                is_connected: false,
            };
            let Err(error) = watch.run().await else {
                return;
            };
            if watch.is_connected {
                reported = None;
            }
            let reason = error.to_string();
            if reported.as_ref() != Some(&reason) {
                reported = Some(reason.clone());
                let event = StoreEvent::Disconnected { reason };
                if events.send(event).await.is_err() {
                    return;
                }
            }
            sleep(RETRY_PAUSE).await;
        }
    }
}

/// One watch of all buckets.
struct StoreWatch<'a> {
    store: &'a FleetStore,
    events: &'a mpsc::Sender<StoreEvent>,
    connectivity: watch::Receiver<Connectivity>,
    is_connected: bool,
}

impl StoreWatch<'_> {
    /// Ends with an error when a watch ends, and without one when the receiver is dropped.
    async fn run(&mut self) -> Result<(), StoreError> {
        let what = "watching the fleet";
        self.store.check_connection().await?;
        let mut connectivity = self.connectivity.clone();
        let losses = connectivity.borrow().losses;
        let buckets = self.store.open().await?;
        let owners = &buckets.owners;
        let mut is_current = owners.stream.cached_info().state.messages == 0;
        let mut entries = SelectAll::new();
        let all = [
            buckets.list,
            buckets.nodes,
            buckets.owners,
            buckets.settings,
        ];
        for bucket in all {
            let watch = bucket.watch_with_history(">").await;
            entries.push(watch.map_err(|error| self.store.failed(what, error))?);
        }
        self.is_connected = true;
        let mut first = vec![StoreEvent::Connected];
        first.extend(is_current.then_some(StoreEvent::Current));
        for event in first {
            if self.events.send(event).await.is_err() {
                return Ok(());
            }
        }
        loop {
            let entry = tokio::select! {
                entry = entries.next() => entry,
                () = self.events.closed() => return Ok(()),
                _ = connectivity.wait_for(|now| now.losses != losses) => {
                    return Err(self.store.unreachable("the connection was lost"));
                }
            };
            let entry = entry.ok_or_else(|| self.store.failed(what, "a watch ended"))?;
            let entry = entry.map_err(|error| self.store.failed(what, error))?;
            let seen = event_of(&entry, buckets.epochs).unwrap_or_else(|reason| {
                self.store.report_refused(&entry, &reason);
                None
            });
            let mut seen: Vec<StoreEvent> = seen.into_iter().collect();
            if !is_current && entry.delta == 0 && entry.bucket.ends_with("-owners") {
                is_current = true;
                seen.push(StoreEvent::Current);
            }
            for event in seen {
                if self.events.send(event).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// A value of a bucket may have at most this many bytes: the list as much as a configuration file, a heartbeat some thousand refused cameras.
fn most_bytes(bucket: &str) -> usize {
    match bucket {
        "list" => 4 << 20,
        "owners" => 1 << 10,
        _ => 1 << 20,
    }
}

/// What a value reports. Keys that no version of Spotter writes are ignored; an error says why a value is.
fn event_of(entry: &kv::Entry, epochs: EpochBase) -> Result<Option<StoreEvent>, String> {
    let bucket = entry.bucket.rsplit('-').next().unwrap_or_default();
    let is_put = entry.operation == Operation::Put;
    let (bytes, most) = (entry.value.len(), most_bytes(bucket));
    let camera = || CameraId::new(&entry.key).ok();
    if bucket == "owners" {
        let value = Some(&entry.value).filter(|_| bytes <= most);
        let owner = value.and_then(|value| OwnerValue::of_json(value).owner);
        let epoch = epochs.epoch(entry.revision);
        let ownership = Ownership { owner, epoch };
        return Ok(camera().map(|camera| StoreEvent::Owned(camera, ownership)));
    }
    if bytes > most {
        return Err(format!("{bytes} bytes, limit {most}"));
    }
    let text = || String::from_utf8_lossy(&entry.value).into_owned();
    let revision = entry.revision;
    Ok(match (bucket, NodeId::new(&entry.key)) {
        ("list", _) => is_put.then(|| {
            let text = text();
            StoreEvent::List(ListRevision { revision, text })
        }),
        ("nodes", Ok(node)) if is_put => {
            let heartbeat = serde_json::from_slice(&entry.value);
            Some(StoreEvent::Heartbeat(HeartbeatEntry {
                node,
                heartbeat: heartbeat.map_err(|error| error.to_string())?,
                revision,
            }))
        }
        ("nodes", Ok(node)) => Some(StoreEvent::Stopped(node)),
        ("settings", _) => camera().map(|camera| {
            let text = is_put.then(text);
            StoreEvent::Settings { camera, text }
        }),
        _ => None,
    })
}
