//! The buckets of a fleet: how they are made, and opened.

use std::{
    error::Error,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::jetstream::{
    Context, ErrorCode,
    context::{
        ContextBuilder, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind, RequestError,
        RequestErrorKind,
    },
    kv,
    stream::{self, DiscardPolicy, StorageType},
};

use super::{FleetStore, REQUEST_LIMIT, StoreError};
use crate::entries::HEARTBEAT_LIFETIME;
use spotter_core::Epoch;

#[derive(Clone)]
pub(super) struct Buckets {
    pub(super) list: kv::Store,
    pub(super) nodes: kv::Store,
    pub(super) owners: kv::Store,
    pub(super) epochs: EpochBase,
    pub(super) settings: kv::Store,
}

/// Where the epochs of a bucket of owners begin. A server that lost its data counts revisions from 1 again; consumers and nodes that saw higher
/// epochs would ignore them. So epochs begin at the time at which the bucket was made, by the server's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochBase(u64);

impl EpochBase {
    /// 2026-01-01, as a Unix time.
    const FIRST_S: i64 = 1_767_225_600;
    /// Revisions that a bucket may have for each second of its age. Epochs stay below 2^53, which JSON readers represent exactly, for 270 years.
    const REVISIONS_PER_S: u64 = 1 << 20;

    pub(super) fn made_at(unix_s: i64) -> Self {
        let age_s = unix_s.saturating_sub(Self::FIRST_S).max(0);
        Self(age_s.unsigned_abs().saturating_mul(Self::REVISIONS_PER_S))
    }

    pub(super) fn epoch(self, revision: u64) -> Epoch {
        Epoch(self.0.saturating_add(revision))
    }

    /// `None`: of an earlier bucket.
    pub(super) fn revision(self, epoch: Epoch) -> Option<u64> {
        epoch.0.checked_sub(self.0)
    }
}

pub(super) struct BucketSettings {
    name: &'static str,
    storage: StorageType,
    /// Zero: values do not expire.
    lifetime: Duration,
    /// Values of a key that are kept.
    history: i64,
}

pub(super) const LIST: BucketSettings = BucketSettings {
    history: 16,
    ..BucketSettings::file("list")
};
const NODES: BucketSettings = BucketSettings {
    storage: StorageType::Memory,
    lifetime: HEARTBEAT_LIFETIME,
    ..BucketSettings::file("nodes")
};
const OWNERS: BucketSettings = BucketSettings::file("owners");
pub(super) const SETTINGS: BucketSettings = BucketSettings::file("settings");

impl BucketSettings {
    /// The newest value of each key, on disk.
    const fn file(name: &'static str) -> Self {
        Self {
            name,
            storage: StorageType::File,
            lifetime: Duration::ZERO,
            history: 1,
        }
    }

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

impl FleetStore {
    pub(super) async fn buckets(&self) -> Result<Buckets, StoreError> {
        let opened = self.opened().clone();
        match opened {
            Some(buckets) => Ok(buckets),
            None => self.open().await,
        }
    }

    pub(super) async fn open(&self) -> Result<Buckets, StoreError> {
        let owners = self.made(&OWNERS).await?;
        let made_at = owners.stream.cached_info().created.unix_timestamp();
        let buckets = Buckets {
            list: self.made(&LIST).await?,
            nodes: self.made(&NODES).await?,
            owners,
            epochs: EpochBase::made_at(made_at),
            settings: self.made(&SETTINGS).await?,
        };
        *self.opened() = Some(buckets.clone());
        Ok(buckets)
    }

    fn opened(&self) -> MutexGuard<'_, Option<Buckets>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn context(&self) -> Result<Context, StoreError> {
        let client = self.client().await?.clone();
        Ok(ContextBuilder::new().timeout(REQUEST_LIMIT).build(client))
    }

    /// The bucket; `None` if the server does not have it.
    pub(super) async fn existing(
        &self,
        settings: &BucketSettings,
    ) -> Result<Option<kv::Store>, StoreError> {
        let context = self.context().await?;
        let bucket = context.get_key_value(self.bucket_name(settings)).await;
        bucket.map_or_else(|error| self.not_opened(&error), |bucket| Ok(Some(bucket)))
    }

    /// `None`: the server does not have the bucket. The last of an error's sources says most.
    fn not_opened(&self, error: &(dyn Error + 'static)) -> Result<Option<kv::Store>, StoreError> {
        let of_stream = error.downcast_ref::<GetStreamError>();
        let code = match of_stream.map(GetStreamError::kind) {
            Some(GetStreamErrorKind::JetStream(error)) => Some(error.error_code()),
            _ => None,
        };
        let of_request = error.downcast_ref::<RequestError>();
        let is_silent =
            of_request.is_some_and(|error| error.kind() == RequestErrorKind::NoResponders);
        match (code, error.source()) {
            (Some(ErrorCode::STREAM_NOT_FOUND), _) => Ok(None),
            (
                Some(
                    ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
                ),
                _,
            ) => Err(StoreError::NoJetStream { url: self.url() }),
            _ if is_silent => Err(StoreError::NoJetStream { url: self.url() }),
            (None, Some(source)) => self.not_opened(source),
            _ => Err(self.failed("opening a bucket", error)),
        }
    }

    /// The bucket, made if the server does not have it.
    pub(super) async fn made(&self, settings: &BucketSettings) -> Result<kv::Store, StoreError> {
        if let Some(bucket) = self.existing(settings).await? {
            return Ok(bucket);
        }
        let context = self.context().await?;
        let name = self.bucket_name(settings);
        let stream = settings.stream(&name, self.access.replicas);
        let made = context.create_stream(stream).await;
        made.map_err(|error| match error.kind() {
            CreateStreamErrorKind::JetStreamUnavailable => {
                StoreError::NoJetStream { url: self.url() }
            }
            _ => self.failed("making a bucket", error),
        })?;
        let bucket = self.existing(settings).await?;
        bucket.ok_or_else(|| self.failed("making a bucket", "the server does not have it"))
    }

    fn bucket_name(&self, settings: &BucketSettings) -> String {
        format!("spotter-{}-{}", self.fleet, settings.name)
    }
}
