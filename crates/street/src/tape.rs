//! A street recorded once as H.264, so that many cameras can show it at almost no cost. [`rtsp`](super::rtsp) sends it.

use std::sync::Arc;

use super::{
    Street, draw_i420,
    h264::{self, CodecError, Encoding},
};
use spotter_core::WallTime;

/// Access units with their rate, from a key frame to before a key frame. Clones share them.
#[derive(Clone, Debug)]
pub struct StreetTape {
    encoding: Encoding,
    units: Arc<Vec<Vec<u8>>>,
}

impl StreetTape {
    /// Records a street from `start` on for `pairs` times two seconds; each pair begins with a key frame. Blocks: tens of milliseconds
    /// a picture of 1280x720.
    pub fn record(
        street: Street,
        start: WallTime,
        encoding: Encoding,
        pairs: u32,
    ) -> Result<Self, CodecError> {
        let size = (encoding.width as u32, encoding.height as u32);
        let fps = i64::from(encoding.fps);
        let frames = (0..2 * fps * i64::from(pairs)).map(move |number| {
            let since_ns = number * 1_000_000_000 / fps;
            let moment = WallTime::from_unix_nanos(start.unix_nanos() + since_ns);
            draw_i420(&street.at(moment), size.0, size.1)
        });
        let units = Arc::new(h264::encoded(encoding, frames)?);
        Ok(Self { encoding, units })
    }

    /// The units one after the other, from the `pair`-th key frame on, for ever.
    pub fn player(&self, pair: usize) -> impl FnMut() -> Vec<u8> + Send + use<> {
        let units = Arc::clone(&self.units);
        let mut next = pair * 2 * self.encoding.fps as usize % units.len().max(1);
        move || {
            let unit = units.get(next).cloned().unwrap_or_default();
            next = (next + 1) % units.len().max(1);
            unit
        }
    }

    /// Decodes the tape `times` times with one thread of libav, at full speed; returns the number of pictures. Blocks.
    pub fn decode(&self, times: usize) -> Result<usize, CodecError> {
        let units = Arc::clone(&self.units);
        let all = (0..times).flat_map(move |_| {
            let units = Arc::clone(&units);
            (0..units.len()).map(move |at| units[at].clone())
        });
        h264::decode(self.encoding, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tape() -> StreetTape {
        let encoding = Encoding {
            width: 128,
            height: 72,
            fps: 5,
            kbit_per_s: 200,
        };
        let start = WallTime::from_unix_millis(1_787_393_730_123);
        StreetTape::record(Street::new(7), start, encoding, 2).expect("x264")
    }

    #[test]
    fn a_tape_repeats_from_any_key_frame_and_decodes() {
        let tape = tape();
        assert_eq!(tape.units.len(), 20, "four seconds");
        let mut first = tape.player(0);
        let round: Vec<_> = (0..20).map(|_| first()).collect();
        assert_eq!(first(), round[0], "from the start again");
        assert_eq!(tape.player(1)(), round[10]);
        assert_eq!(tape.player(2)(), round[0]);
        assert_eq!(tape.decode(2).expect("libav"), 40);
    }
}
