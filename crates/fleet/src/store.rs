//! The store of a fleet in NATS JetStream: the list of cameras, heartbeats, owners.
//!
//! ```text
//!   bucket                    storage                       keys
//!   spotter-FLEET-list        file, the last 16 revisions   cameras: the list, in the syntax of the configuration
//!   spotter-FLEET-nodes       memory, lifetime 10 s         a node: its heartbeat
//!   spotter-FLEET-owners      file                          a camera: its owner; the epoch is the revision, and when the bucket was made
//!   spotter-FLEET-settings    file                          a camera: what commands have changed
//! ```
//!
//! Reading makes no bucket: a login that may only read is enough for it.
//!
//! It uses what nats-server 2.9 (Debian 12) has. Keys do not expire one by one there, and watches do not report a key that expired.
//! After a restart of a single server, buckets in memory are gone; [`FleetStore::watch`] makes them again.

mod buckets;
mod watching;

use std::{
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_nats::{
    Client, ClientError, ConnectError, ConnectErrorKind, ConnectOptions, Event,
    connection::State,
    jetstream::{
        kv,
        message::StreamMessage,
        stream::{LastRawMessageError, LastRawMessageErrorKind},
    },
};
use serde::{Deserialize, Serialize};
use spotter_config::{NatsAccess, NatsLogin};
use spotter_core::{CameraId, Epoch, NodeId, plain_line};
use tokio::sync::{OnceCell, watch};

use self::buckets::{Buckets, LIST, SETTINGS};
use crate::entries::{Heartbeat, ListRevision, Renewal};

const LIST_KEY: &str = "cameras";
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const REQUEST_LIMIT: Duration = Duration::from_secs(3);
/// A server that does not answer two of them has failed.
const PING_PERIOD: Duration = Duration::from_secs(2);
/// The longest pause between two attempts to connect, and the pause before watches start again. It is shorter than a heartbeat's lifetime.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Keys of ignored values that are remembered; further ones are not logged.
const REFUSED_MAX: usize = 1000;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("NATS server {url} cannot be reached: {reason}")]
    Unreachable { url: String, reason: String },
    #[error(
        "NATS server {url} rejected the login: {reason}; check user and password, or the credentials file"
    )]
    Login { url: String, reason: String },
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

#[derive(Default, Serialize, Deserialize)]
struct OwnerValue {
    owner: Option<NodeId>,
}

impl OwnerValue {
    /// A value that no node wrote, or a removed key: the camera has no owner since that revision, so that a node can claim it.
    fn of_json(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }
}

/// What the client reports beside answers.
#[derive(Clone, Debug, Default)]
struct Connectivity {
    /// How often the connection was lost.
    losses: u64,
    /// The last error since the connection was made: of an attempt to connect, or what the server does not permit.
    problem: Option<String>,
}

impl Connectivity {
    fn note(&mut self, event: Event) {
        match event {
            Event::Connected => self.problem = None,
            Event::Disconnected => self.losses += 1,
            Event::ServerError(error) => self.problem = Some(plain_line(&error.to_string())),
            Event::ClientError(ClientError::Other(text)) => self.problem = Some(plain_line(&text)),
            _ => {}
        }
    }
}

/// A connection to the store of one fleet. It reconnects by itself.
pub struct FleetStore {
    fleet: NodeId,
    access: NatsAccess,
    /// Connected once.
    client: OnceCell<Client>,
    connectivity: watch::Sender<Connectivity>,
    /// Opened once a connection: opening asks the server.
    opened: Mutex<Option<Buckets>>,
    /// Keys of values that are ignored, each logged once.
    refused: Mutex<BTreeSet<String>>,
}

impl FleetStore {
    /// A store that connects when it is used.
    pub fn new(fleet: NodeId, access: NatsAccess) -> Self {
        Self {
            fleet,
            access,
            client: OnceCell::new(),
            connectivity: watch::Sender::default(),
            opened: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Connects within some seconds, or says why that is impossible.
    pub async fn connect(fleet: NodeId, access: NatsAccess) -> Result<Self, StoreError> {
        let store = Self::new(fleet, access);
        store.client().await?;
        Ok(store)
    }

    async fn client(&self) -> Result<&Client, StoreError> {
        self.client.get_or_try_init(|| self.connect_client()).await
    }

    async fn connect_client(&self) -> Result<Client, StoreError> {
        let access = &self.access;
        let connectivity = self.connectivity.clone();
        let options = match &access.login {
            NatsLogin::None => ConnectOptions::new(),
            NatsLogin::Password { user, password } => {
                ConnectOptions::with_user_and_password(user.clone(), password.reveal().to_owned())
            }
            NatsLogin::Credentials(path) => ConnectOptions::with_credentials_file(path)
                .await
                .map_err(|error| StoreError::Credentials {
                    path: path.clone(),
                    reason: error.to_string(),
                })?,
        };
        let options = match &access.ca {
            Some(ca) => options.add_root_certificates(ca.clone()),
            None => options,
        };
        // An `INFO` comes before TLS, so anyone between can write it: it neither switches TLS off nor names other servers.
        let is_encrypted = access.urls.iter().any(|url| url.starts_with("tls:"));
        let options = options
            .require_tls(is_encrypted)
            .ignore_discovered_servers()
            .name(format!("spotter {}", self.fleet))
            .connection_timeout(CONNECT_LIMIT)
            .request_timeout(Some(REQUEST_LIMIT))
            .ping_interval(PING_PERIOD)
            .reconnect_delay_callback(|attempts| {
                RETRY_PAUSE.min(Duration::from_millis(50 * attempts as u64))
            })
            .event_callback(move |event| {
                connectivity.send_modify(|connectivity| connectivity.note(event));
                std::future::ready(())
            });
        let client = options.connect(&access.urls[..]).await;
        client.map_err(|error| self.not_connected(error))
    }

    fn not_connected(&self, error: ConnectError) -> StoreError {
        let url = self.url();
        match error.kind() {
            kind
            @ (ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication) => {
                let reason = kind.to_string();
                StoreError::Login { url, reason }
            }
            _ => {
                let reason = plain_line(&error.to_string());
                StoreError::Unreachable { url, reason }
            }
        }
    }

    async fn check_connection(&self) -> Result<(), StoreError> {
        let state = self.client().await?.connection_state();
        if state == State::Connected {
            return Ok(());
        }
        let problem = self.connectivity.borrow().problem.clone();
        Err(self.unreachable(problem.as_deref().unwrap_or("the connection was lost")))
    }

    fn unreachable(&self, reason: &str) -> StoreError {
        StoreError::Unreachable {
            url: self.url(),
            reason: reason.to_owned(),
        }
    }

    fn url(&self) -> String {
        self.access.urls.join(",")
    }

    /// The newest list; `None` before the first one. Makes no bucket.
    pub async fn list(&self) -> Result<Option<ListRevision>, StoreError> {
        let Some(list) = self.existing(&LIST).await? else {
            return Ok(None);
        };
        let entry = list.entry(LIST_KEY).await;
        let entry = entry.map_err(|error| self.failed("reading the list of cameras", error))?;
        Ok(entry.map(|entry| ListRevision {
            revision: entry.revision,
            text: String::from_utf8_lossy(&entry.value).into_owned(),
        }))
    }

    /// Writes a list if the newest one is still `before`. Returns its revision.
    pub async fn put_list(&self, text: &str, before: Option<u64>) -> Result<u64, StoreError> {
        let most = self.client().await?.server_info().max_payload;
        if text.len() > most {
            let bytes = text.len();
            return Err(StoreError::TooLarge { bytes, most });
        }
        let list = self.made(&LIST).await?;
        let written = swap(&list, LIST_KEY, text.into(), before).await;
        let written = written.map_err(|error| self.failed("writing the list of cameras", error))?;
        written.ok_or(StoreError::Changed)
    }

    /// Writes this node's heartbeat, which lives for [`HEARTBEAT_LIFETIME`](crate::entries::HEARTBEAT_LIFETIME), if it is this machine's: `last`
    /// is the revision of its last one, or 0.
    pub async fn renew(
        &self,
        node: &NodeId,
        heartbeat: &Heartbeat,
        last: u64,
    ) -> Result<Renewal, StoreError> {
        let failed = |error: &dyn fmt::Display| self.failed("renewing the heartbeat", error);
        // The client would keep it, and send it when it is connected again.
        self.check_connection().await?;
        let value = serde_json::to_vec(heartbeat).map_err(|error| failed(&error))?;
        let nodes = self.buckets().await?.nodes;
        let write = |expected| swap(&nodes, node.as_str(), value.clone(), Some(expected));
        let written = write(last).await.map_err(|error| failed(&error))?;
        if let Some(revision) = written {
            return Ok(Renewal::Accepted(revision));
        }
        // An answer was lost, the process has started again, the key has expired, or another machine has the name.
        let known = newest(&nodes, node.as_str()).await;
        let known = known.map_err(|error| failed(&error))?;
        let revision = known.as_ref().map_or(0, |known| known.sequence);
        let other = known.and_then(|known| serde_json::from_slice(&known.payload).ok());
        let other = other.map(|other: Heartbeat| other.machine);
        if let Some(machine) = other.filter(|other| *other != heartbeat.machine) {
            return Ok(Renewal::NameTaken(machine));
        }
        let written = write(revision).await.map_err(|error| failed(&error))?;
        let written = written.ok_or_else(|| failed(&"another machine renews it"))?;
        Ok(Renewal::Accepted(written))
    }

    /// Removes this node's heartbeat, when it stops.
    pub async fn stop(&self, node: &NodeId) -> Result<(), StoreError> {
        let nodes = self.buckets().await?.nodes;
        let deleted = nodes.delete(node.as_str()).await;
        deleted.map_err(|error| self.failed("removing the heartbeat", error))
    }

    /// True when the store has no heartbeat of that node.
    pub async fn is_absent(&self, node: &NodeId) -> Result<bool, StoreError> {
        let nodes = self.buckets().await?.nodes;
        let message = newest(&nodes, node.as_str()).await;
        let message = message.map_err(|error| self.failed("reading a heartbeat", error))?;
        // An empty value is that of a removed key.
        Ok(message.is_none_or(|message| message.payload.is_empty()))
    }

    /// Keeps what commands have changed at a camera; `None`: nothing any more.
    pub async fn set_settings(
        &self,
        camera: &CameraId,
        text: Option<String>,
    ) -> Result<(), StoreError> {
        let failed = |error: &dyn fmt::Display| self.failed("writing settings of a camera", error);
        let settings = self.made(&SETTINGS).await?;
        match text {
            Some(text) => {
                let put = settings.put(camera.as_str(), text.into()).await;
                put.map(drop).map_err(|error| failed(&error))
            }
            None => {
                let deleted = settings.delete(camera.as_str()).await;
                deleted.map_err(|error| failed(&error))
            }
        }
    }

    /// Makes `owner` the owner of a camera (`None`: no node) if the key's revision is still `expected`. Returns the new epoch; `None` when it was not.
    /// After an error it is unknown whether it was written; [`FleetStore::watch`] reports it if so.
    pub async fn set_owner(
        &self,
        camera: &CameraId,
        owner: Option<NodeId>,
        expected: Option<Epoch>,
    ) -> Result<Option<Epoch>, StoreError> {
        let failed = |error: &dyn fmt::Display| self.failed("writing the owner of a camera", error);
        let value = serde_json::to_vec(&OwnerValue { owner }).map_err(|error| failed(&error))?;
        let Buckets { owners, epochs, .. } = self.buckets().await?;
        let expected = match expected.map(|epoch| epochs.revision(epoch)) {
            // Of a bucket that is lost.
            Some(None) => return Ok(None),
            expected => expected.flatten(),
        };
        let written = swap(&owners, camera.as_str(), value, expected).await;
        let revision = written.map_err(|error| failed(&error))?;
        Ok(revision.map(|revision| epochs.epoch(revision)))
    }

    fn report_refused(&self, entry: &kv::Entry, reason: &str) {
        let (bucket, key) = (&entry.bucket, plain_line(&entry.key));
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < REFUSED_MAX && refused.insert(format!("{bucket}/{key}")) {
            let reason = plain_line(reason);
            tracing::warn!(bucket, key, reason, "value in NATS ignored");
        }
    }

    /// An error of a request; with what the server or the connection reported meanwhile, which is more exact.
    fn failed(&self, what: &'static str, error: impl fmt::Display) -> StoreError {
        let mut problem = None;
        self.connectivity.send_if_modified(|connectivity| {
            problem = connectivity.problem.take();
            false
        });
        let error = plain_line(&error.to_string());
        let reason = match problem {
            Some(problem) => format!("{error}; {problem}"),
            None => error,
        };
        StoreError::Failed { what, reason }
    }
}

/// Asks the server that decides: another one of a cluster may not have the newest values yet.
async fn newest(
    bucket: &kv::Store,
    key: &str,
) -> Result<Option<StreamMessage>, LastRawMessageError> {
    let subject = format!("{}{key}", bucket.prefix);
    let message = bucket.stream.get_last_raw_message_by_subject(&subject);
    match message.await {
        Ok(message) => Ok(Some(message)),
        Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a key if its revision is still `expected` (`None`: if there is none). Returns its new revision; `None` when it had another one.
async fn swap(
    bucket: &kv::Store,
    key: &str,
    value: Vec<u8>,
    expected: Option<u64>,
) -> Result<Option<u64>, kv::UpdateError> {
    let written = bucket.update(key, value.into(), expected.unwrap_or(0));
    match written.await {
        Ok(revision) => Ok(Some(revision)),
        Err(error) if error.kind() == kv::UpdateErrorKind::WrongLastRevision => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
