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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_is_added_listed_and_serialised() {
        let one = StreamCounters {
            rtp_lost: 1,
            rtp_foreign: 2,
            frames_corrupt: 3,
            frames_late: 4,
        };
        let mut sum = one + one;
        sum += one;
        let listed = StreamCounters::ALL.iter();
        let listed: Vec<_> = listed.map(|counter| (counter.get)(&sum)).collect();
        assert_eq!(listed, [3, 6, 9, 12]);
    }
}
