//! A street recorded once as H.264, so that many cameras can show it at almost no cost. A tape can be written to another
//! process; [`rtsp`](super::rtsp) sends it.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use super::{
    Street, draw_i420,
    h264::{self, CodecError, Encoding},
};
use spotter_core::WallTime;

/// Input with a larger unit is no tape.
const UNIT_BYTES_MAX: u32 = 1 << 24;
const UNITS_MAX: u32 = 1 << 16;

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

    /// How it was encoded.
    pub fn encoding(&self) -> Encoding {
        self.encoding
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

    /// Writes it for [`StreetTape::read`].
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let Encoding {
            width,
            height,
            fps,
            kbit_per_s,
        } = self.encoding;
        let head = [width as u32, height as u32, fps, kbit_per_s];
        for number in head.into_iter().chain([self.units.len() as u32]) {
            to.write_all(&number.to_le_bytes())?;
        }
        for unit in self.units.iter() {
            to.write_all(&(unit.len() as u32).to_le_bytes())?;
            to.write_all(unit)?;
        }
        to.flush()
    }

    /// Reads exactly what [`StreetTape::write`] wrote.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let width = number(from)? as usize;
        let height = number(from)? as usize;
        let encoding = Encoding {
            width,
            height,
            fps: number(from)?.max(1),
            kbit_per_s: number(from)?,
        };
        let count = number(from)?;
        if count > UNITS_MAX {
            return Err(wrong("too many units for a tape"));
        }
        let mut units = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let bytes = number(from)?;
            if bytes > UNIT_BYTES_MAX {
                return Err(wrong("too many bytes for a unit"));
            }
            let mut unit = vec![0; bytes as usize];
            from.read_exact(&mut unit)?;
            units.push(unit);
        }
        let units = Arc::new(units);
        Ok(Self { encoding, units })
    }
}

fn number(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
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

    #[test]
    fn a_tape_is_read_as_written_and_other_input_is_rejected() {
        let tape = tape();
        let mut bytes = Vec::new();
        tape.write(&mut bytes).unwrap();
        bytes.push(99);
        let mut from = bytes.as_slice();
        let copy = StreetTape::read(&mut from).unwrap();
        assert_eq!(from, [99], "the rest stays");
        assert_eq!(copy.units, tape.units);
        assert!(StreetTape::read(&mut &bytes[..bytes.len() / 2]).is_err());
        assert!(StreetTape::read(&mut [0xff; 100].as_slice()).is_err());
    }
}
