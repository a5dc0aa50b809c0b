//! What is counted of a camera's stream. Each counter is declared once, here: health, metrics and the status page list
//! [`StreamCounters::ALL`].

use derive_more::{Add, AddAssign};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug)]
pub struct StreamCounter {
    /// Its key in health.
    pub key: &'static str,
    /// The metric's name without `spotter_` and `_total`.
    pub metric: &'static str,
    /// The metric's help text.
    pub help: &'static str,
    pub get: fn(&StreamCounters) -> u64,
}

macro_rules! stream_counters {
    ($($key:ident: $metric:literal, $help:literal;)+) => {
        /// Counters of one stream, or of several added together. Serialised with the keys of health.
        #[derive(
            Add, AddAssign, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize,
        )]
        #[serde(default)]
        pub struct StreamCounters {
            $(#[doc = $help] pub $key: u64,)+
        }

        impl StreamCounters {
            /// All of them, in the order of health.
            pub const ALL: &'static [StreamCounter] = &[$(StreamCounter {
                key: stringify!($key),
                metric: $metric,
                help: $help,
                get: |counters| counters.$key,
            },)+];
        }
    };
}

stream_counters! {
    rtp_lost: "ingest_rtp_packets_lost", "Lost packets of a camera";
    rtp_foreign: "ingest_rtp_packets_foreign", "Packets of other senders than the camera's";
    frames_corrupt: "ingest_frames_corrupt", "Broken frames of a camera";
    frames_late: "ingest_frames_late", "Frames of a camera that were not decoded because decoding had fallen behind";
}
