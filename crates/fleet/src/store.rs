//! The store of a fleet in NATS JetStream: the list of cameras, heartbeats, owners.
//!
//! ```text
//!   bucket                    storage                       keys
//!   spotter-FLEET-list        file, the last 16 revisions   cameras: the list, in the syntax of the configuration
//!   spotter-FLEET-nodes       memory, lifetime 10 s         a node: its heartbeat
//!   spotter-FLEET-owners      file                          a camera: its owner; the revision is the epoch
//! ```
//!
//! It uses what nats-server 2.9 (Debian 12) has. Keys do not expire one by one there, and watches do not report a key that expired.
//! After a restart of a single server, buckets in memory are gone; [`FleetStore::watch`] makes them again.

use std::{
    fmt,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::{
    Client, ConnectOptions, Event,
    jetstream::{
        self,
        context::CreateStreamErrorKind,
        kv::{self, Operation},
        stream::{self, DiscardPolicy, StorageType},
    },
};
use futures_util::{StreamExt as _, stream::SelectAll};
use serde::{Deserialize, Serialize};
use spotter_core::{CameraId, Epoch, NodeId, config::Secret};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use crate::{
    claims::HEARTBEAT_LIFETIME,
    entries::{Heartbeat, HeartbeatEntry, ListRevision, Ownership, StoreEvent},
};

const LIST_KEY: &str = "cameras";
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const REQUEST_LIMIT: Duration = Duration::from_secs(3);
/// A server that does not answer two of them has failed.
const PING_PERIOD: Duration = Duration::from_secs(2);
/// The longest pause between two attempts to connect, and the pause before watches start again. It is shorter than a heartbeat's lifetime.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Where the store is and how to log in.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// `nats://HOST:PORT` or `tls://…`; several servers of a cluster.
    pub urls: Vec<String>,
    pub fleet: NodeId,
    /// Copies of each bucket in a cluster; 1 to 5.
    pub replicas: usize,
    pub login: StoreLogin,
    /// Certificate authorities, PEM; `None`: those of the machine.
    pub ca: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub enum StoreLogin {
    None,
    Password {
        user: String,
        password: Secret,
    },
    /// A `.creds` file of `nsc`.
    Credentials(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("NATS server {url} cannot be reached: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("{path}: cannot be read: {reason}; name a .creds file of this fleet's account")]
    Credentials { path: PathBuf, reason: String },
    #[error(
        "NATS server {url} has no JetStream for this account; start it with `nats-server -js -sd DIRECTORY`, or enable JetStream for the account"
    )]
    NoJetStream { url: String },
    #[error("{what} in NATS failed: {reason}")]
    Failed { what: &'static str, reason: String },
    #[error(
        "the list has {bytes} bytes, the NATS server accepts {most}; raise max_payload in its configuration"
    )]
    TooLarge { bytes: usize, most: usize },
    #[error("another list was written meanwhile; read it with `spotter fleet get` and apply again")]
    Changed,
}

fn failed<E: fmt::Display>(what: &'static str) -> impl FnOnce(E) -> StoreError {
    move |error| StoreError::Failed {
        what,
        reason: error.to_string(),
    }
}

#[derive(Serialize, Deserialize)]
struct OwnerValue {
    owner: Option<NodeId>,
}

/// A connection to the store of one fleet. It reconnects by itself.
pub struct FleetStore {
    settings: StoreSettings,
    client: Client,
    /// How often the connection was lost.
    losses: watch::Receiver<u64>,
    /// Opened once a connection: opening asks the server.
    opened: Mutex<Option<Buckets>>,
}

#[derive(Clone)]
struct Buckets {
    list: kv::Store,
    nodes: kv::Store,
    owners: kv::Store,
}

impl FleetStore {
    /// Connects within some seconds, or says why that is impossible.
    pub async fn connect(settings: StoreSettings) -> Result<Self, StoreError> {
        let url = settings.urls.join(",");
        let (sender, losses) = watch::channel(0);
        let options = match &settings.login {
            StoreLogin::None => ConnectOptions::new(),
            StoreLogin::Password { user, password } => {
                ConnectOptions::with_user_and_password(user.clone(), password.reveal().to_owned())
            }
            StoreLogin::Credentials(path) => {
                let options = ConnectOptions::with_credentials_file(path).await;
                options.map_err(|error| StoreError::Credentials {
                    path: path.clone(),
                    reason: error.to_string(),
                })?
            }
        };
        let options = match &settings.ca {
            Some(ca) => options.add_root_certificates(ca.clone()),
            None => options,
        };
        let options = options
            .name(format!("spotter {}", settings.fleet))
            .connection_timeout(CONNECT_LIMIT)
            .request_timeout(Some(REQUEST_LIMIT))
            .ping_interval(PING_PERIOD)
            .reconnect_delay_callback(|attempts| {
                RETRY_PAUSE.min(Duration::from_millis(50 * attempts as u64))
            })
            .event_callback(move |event| {
                if matches!(event, Event::Disconnected) {
                    sender.send_modify(|losses| *losses += 1);
                }
                std::future::ready(())
            });
        let client = options.connect(&settings.urls[..]).await;
        let client = client.map_err(|error| StoreError::Unreachable {
            url,
            reason: error.to_string(),
        })?;
        Ok(Self {
            settings,
            client,
            losses,
            opened: Mutex::default(),
        })
    }

    /// The newest list; `None` before the first one.
    pub async fn list(&self) -> Result<Option<ListRevision>, StoreError> {
        let entry = self.buckets().await?.list.entry(LIST_KEY).await;
        let entry = entry.map_err(failed("reading the list of cameras"))?;
        Ok(entry.map(|entry| ListRevision {
            revision: entry.revision,
            text: String::from_utf8_lossy(&entry.value).into_owned(),
        }))
    }

    /// Writes a list if the newest one is still `before`. Returns its revision.
    pub async fn put_list(&self, text: &str, before: Option<u64>) -> Result<u64, StoreError> {
        let most = self.client.server_info().max_payload;
        if text.len() > most {
            let bytes = text.len();
            return Err(StoreError::TooLarge { bytes, most });
        }
        let list = self.buckets().await?.list;
        let what = "writing the list of cameras";
        let written = swap(&list, LIST_KEY, text.to_owned().into(), before, what).await?;
        written.ok_or(StoreError::Changed)
    }

    /// Writes this node's heartbeat; it lives for [`HEARTBEAT_LIFETIME`].
    pub async fn renew(&self, node: &NodeId, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        let what = "renewing the heartbeat";
        let value = serde_json::to_vec(heartbeat).map_err(failed(what))?;
        let nodes = self.buckets().await?.nodes;
        let put = nodes.put(node.as_str(), value.into()).await;
        put.map(drop).map_err(failed(what))
    }

    /// Removes this node's heartbeat, when it stops.
    pub async fn stop(&self, node: &NodeId) -> Result<(), StoreError> {
        let nodes = self.buckets().await?.nodes;
        let deleted = nodes.delete(node.as_str()).await;
        deleted.map_err(failed("removing the heartbeat"))
    }

    /// True when the store has no heartbeat of that node.
    pub async fn is_absent(&self, node: &NodeId) -> Result<bool, StoreError> {
        let nodes = self.buckets().await?.nodes;
        let value = nodes.get(node.as_str()).await;
        value
            .map(|value| value.is_none())
            .map_err(failed("reading a heartbeat"))
    }

    /// Makes `owner` the owner of a camera (`None`: no node) if the key's revision is still `expected`. Returns the new epoch; `None` when it was not.
    /// After an error it is unknown whether it was written; [`FleetStore::watch`] reports it if so.
    pub async fn set_owner(
        &self,
        camera: &CameraId,
        owner: Option<NodeId>,
        expected: Option<Epoch>,
    ) -> Result<Option<Epoch>, StoreError> {
        let what = "writing the owner of a camera";
        let value = serde_json::to_vec(&OwnerValue { owner }).map_err(failed(what))?;
        let owners = self.buckets().await?.owners;
        let expected = expected.map(|epoch| epoch.0);
        let revision = swap(&owners, camera.as_str(), value.into(), expected, what).await?;
        Ok(revision.map(Epoch))
    }

    /// Sends all values and then all changes, until the receiver is dropped. After a loss of the connection it starts again, with all values.
    pub async fn watch(&self, events: mpsc::Sender<StoreEvent>) {
        let mut losses = self.losses.clone();
        while !events.is_closed() {
            losses.mark_unchanged();
            let reason = match self.watch_once(&events, &mut losses).await {
                Ok(()) => return,
                Err(error) => error.to_string(),
            };
            if events
                .send(StoreEvent::Disconnected { reason })
                .await
                .is_err()
            {
                return;
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Ends with an error when a watch ends, and without one when the receiver is dropped.
    async fn watch_once(
        &self,
        events: &mpsc::Sender<StoreEvent>,
        losses: &mut watch::Receiver<u64>,
    ) -> Result<(), StoreError> {
        let what = "watching the fleet";
        let Buckets {
            list,
            nodes,
            owners,
        } = self.open().await?;
        let mut entries = SelectAll::new();
        for bucket in [list, nodes, owners] {
            let watch = bucket.watch_with_history(">").await;
            entries.push(watch.map_err(failed(what))?);
        }
        if events.send(StoreEvent::Connected).await.is_err() {
            return Ok(());
        }
        loop {
            let entry = tokio::select! {
                entry = entries.next() => entry,
                () = events.closed() => return Ok(()),
                _ = losses.changed() => return Err(failed(what)("the connection was lost")),
            };
            let entry = entry.ok_or_else(|| failed(what)("a watch ended"))?;
            let entry = entry.map_err(failed(what))?;
            if let Some(event) = event_of(&entry)
                && events.send(event).await.is_err()
            {
                return Ok(());
            }
        }
    }

    async fn buckets(&self) -> Result<Buckets, StoreError> {
        let opened = self.opened().clone();
        match opened {
            Some(buckets) => Ok(buckets),
            None => self.open().await,
        }
    }

    async fn open(&self) -> Result<Buckets, StoreError> {
        let buckets = Buckets {
            list: self.bucket(LIST).await?,
            nodes: self.bucket(NODES).await?,
            owners: self.bucket(OWNERS).await?,
        };
        *self.opened() = Some(buckets.clone());
        Ok(buckets)
    }

    fn opened(&self) -> MutexGuard<'_, Option<Buckets>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bucket, made if the server does not have it.
    async fn bucket(&self, settings: BucketSettings) -> Result<kv::Store, StoreError> {
        let context = jetstream::new(self.client.clone());
        let name = format!("spotter-{}-{}", self.settings.fleet, settings.name);
        if let Ok(bucket) = context.get_key_value(&name).await {
            return Ok(bucket);
        }
        let stream = settings.stream(&name, self.settings.replicas);
        let made = context.create_stream(stream).await;
        made.map_err(|error| match error.kind() {
            CreateStreamErrorKind::JetStreamUnavailable => StoreError::NoJetStream {
                url: self.settings.urls.join(","),
            },
            _ => failed("making a bucket")(error),
        })?;
        let bucket = context.get_key_value(&name).await;
        bucket.map_err(failed("opening a bucket"))
    }
}

struct BucketSettings {
    name: &'static str,
    storage: StorageType,
    /// Zero: values do not expire.
    lifetime: Duration,
    /// Values of a key that are kept.
    history: i64,
}

const LIST: BucketSettings = BucketSettings {
    name: "list",
    storage: StorageType::File,
    lifetime: Duration::ZERO,
    history: 16,
};
const NODES: BucketSettings = BucketSettings {
    name: "nodes",
    storage: StorageType::Memory,
    lifetime: HEARTBEAT_LIFETIME,
    history: 1,
};
const OWNERS: BucketSettings = BucketSettings {
    name: "owners",
    storage: StorageType::File,
    lifetime: Duration::ZERO,
    history: 1,
};

impl BucketSettings {
    /// The stream that is a bucket, as NATS' ADR-8 describes it. async-nats makes buckets itself, but first reads figures of the account that
    /// nats-server 2.9 does not send.
    fn stream(&self, bucket: &str, replicas: usize) -> stream::Config {
        stream::Config {
            name: format!("KV_{bucket}"),
            subjects: vec![format!("$KV.{bucket}.>")],
            storage: self.storage,
            max_age: self.lifetime,
            max_messages_per_subject: self.history,
            num_replicas: replicas,
            discard: DiscardPolicy::New,
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            ..stream::Config::default()
        }
    }
}

/// Writes a key if its revision is still `expected` (`None`: if there is none). Returns its new revision.
async fn swap(
    bucket: &kv::Store,
    key: &str,
    value: bytes::Bytes,
    expected: Option<u64>,
    what: &'static str,
) -> Result<Option<u64>, StoreError> {
    let Some(expected) = expected else {
        return match bucket.create(key, value).await {
            Ok(revision) => Ok(Some(revision)),
            Err(error) if error.kind() == kv::CreateErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(failed(what)(error)),
        };
    };
    match bucket.update(key, value, expected).await {
        Ok(revision) => Ok(Some(revision)),
        Err(error) if error.kind() == kv::UpdateErrorKind::WrongLastRevision => Ok(None),
        Err(error) => Err(failed(what)(error)),
    }
}

/// Keys and values that no version of Spotter wrote are ignored.
fn event_of(entry: &kv::Entry) -> Option<StoreEvent> {
    let bucket = entry.bucket.rsplit('-').next()?;
    let is_put = entry.operation == Operation::Put;
    match bucket {
        "list" if is_put => Some(StoreEvent::List(ListRevision {
            revision: entry.revision,
            text: String::from_utf8_lossy(&entry.value).into_owned(),
        })),
        "nodes" => {
            let node = NodeId::new(&entry.key).ok()?;
            match is_put {
                true => {
                    let heartbeat = serde_json::from_slice(&entry.value).ok()?;
                    let revision = entry.revision;
                    Some(StoreEvent::Heartbeat(HeartbeatEntry {
                        node,
                        heartbeat,
                        revision,
                    }))
                }
                false => Some(StoreEvent::Stopped(node)),
            }
        }
        "owners" if is_put => {
            let camera = CameraId::new(&entry.key).ok()?;
            let value: OwnerValue = serde_json::from_slice(&entry.value).ok()?;
            let epoch = Epoch(entry.revision);
            let owner = value.owner;
            Some(StoreEvent::Owned(camera, Ownership { owner, epoch }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
