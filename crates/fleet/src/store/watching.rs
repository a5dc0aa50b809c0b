//! What a watch of all buckets reports.

use async_nats::jetstream::kv::{self, Operation};
use futures_util::{StreamExt as _, stream::SelectAll};
use spotter_core::{CameraId, NodeId};
use tokio::{sync::mpsc, time::sleep};

use super::{
    FleetStore, OwnerValue, RETRY_PAUSE, StoreError,
    buckets::{Buckets, EpochBase},
};
use crate::entries::{HeartbeatEntry, ListRevision, Ownership, StoreEvent};

impl FleetStore {
    /// Sends all values and then all changes, until the receiver is dropped. After a loss of the connection it starts again, with all values.
    /// While the store cannot be used, it reports each reason once.
    pub async fn watch(&self, events: mpsc::Sender<StoreEvent>) {
        let mut reported = None;
        while let Err(error) = self.watch_once(&events, &mut reported).await {
            let reason = error.to_string();
            if reported.as_ref() != Some(&reason) {
                reported = Some(reason.clone());
                // Without a receiver, the next attempt ends.
                _ = events.send(StoreEvent::Disconnected { reason }).await;
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Ends with an error when a watch ends, and without one when the receiver is dropped.
    async fn watch_once(
        &self,
        events: &mpsc::Sender<StoreEvent>,
        reported: &mut Option<String>,
    ) -> Result<(), StoreError> {
        if events.is_closed() {
            return Ok(());
        }
        let what = "watching the fleet";
        self.check_connection().await?;
        let mut connectivity = self.connectivity.subscribe();
        let losses = connectivity.borrow().losses;
        let Buckets {
            list,
            nodes,
            owners,
            settings,
            epochs,
        } = self.open().await?;
        let mut is_current = owners.stream.cached_info().state.messages == 0;
        let mut entries = SelectAll::new();
        for bucket in [list, nodes, owners, settings] {
            let watch = bucket.watch_with_history(">").await;
            entries.push(watch.map_err(|error| self.failed(what, error))?);
        }
        *reported = None;
        let mut seen = vec![StoreEvent::Connected];
        seen.extend(is_current.then_some(StoreEvent::Current));
        loop {
            for event in seen.drain(..) {
                _ = events.send(event).await;
            }
            let entry = tokio::select! {
                entry = entries.next() => entry,
                () = events.closed() => return Ok(()),
                _ = connectivity.wait_for(|now| now.losses != losses) => {
                    return Err(self.unreachable("the connection was lost"));
                }
            };
            let entry = entry.ok_or_else(|| self.failed(what, "a watch ended"))?;
            let entry = entry.map_err(|error| self.failed(what, error))?;
            match event_of(&entry, epochs) {
                Ok(event) => seen.extend(event),
                Err(reason) => self.report_refused(&entry, &reason),
            }
            if !is_current && entry.delta == 0 && entry.bucket.ends_with("-owners") {
                is_current = true;
                seen.push(StoreEvent::Current);
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
