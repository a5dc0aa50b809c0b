//! NAL units of H.264 and H.265, as far as their first bytes say what they are (H.264 section 7.3.1, H.265 section 7.3.1.2). Pure.

/// A codec that consists of NAL units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NalCodec {
    H264,
    H265,
}

/// What separates NAL units in an encoded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NalFraming {
    /// `00 00 01` before each unit (Annex B).
    StartCodes,
    /// A length of four bytes before each unit, as RTP depayloaders write it.
    Lengths,
}

/// How an encoded frame is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NalLayout {
    pub codec: NalCodec,
    pub framing: NalFraming,
}

impl NalCodec {
    /// The codec's name in messages.
    pub fn label(self) -> &'static str {
        match self {
            Self::H264 => "H.264",
            Self::H265 => "H.265",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::H264 => Self::H265,
            Self::H265 => Self::H264,
        }
    }

    /// Whether a slice is the first of its picture: `first_mb_in_slice` is 0, or `first_slice_segment_in_pic_flag` is set. Both
    /// are the first bit behind the unit's header. `None` for a unit that is no slice of the picture itself.
    fn is_first_slice(self, unit: &[u8]) -> Option<bool> {
        let (is_slice, header) = match (self, unit) {
            (Self::H264, [first, ..]) => (matches!(first & 0x1f, 1 | 2 | 5), 1),
            // Layer 0: other layers add to its picture.
            (Self::H265, [first, second, ..]) => {
                let layer = (first & 1) << 5 | second >> 3;
                (first >> 1 & 0x3f <= 31 && layer == 0, 2)
            }
            _ => return None,
        };
        let behind = unit.get(header).filter(|_| is_slice)?;
        Some(behind & 0x80 != 0)
    }

    /// The payload of an RTP packet can be one of this codec, of the kinds that cameras send (RFC 6184 section 5.2, RFC 7798
    /// section 4.4).
    fn allows(self, payload: &[u8]) -> bool {
        match (self, payload) {
            (Self::H264, [first, ..]) => {
                first & 0x80 == 0 && matches!(first & 0x1f, 1 | 5..=9 | 12 | 14 | 20 | 24 | 28)
            }
            (Self::H265, [first, second, ..]) => {
                let (layer, temporal) = ((first & 1) << 5 | second >> 3, second & 7);
                let is_known = matches!(first >> 1, 0..=9 | 16..=21 | 32..=40 | 48 | 49);
                is_known && layer == 0 && temporal > 0
            }
            _ => false,
        }
    }
}

impl NalLayout {
    /// The first slice of the encoded frame begins at the picture's first block. False when what is before it is missing: a decoder
    /// invents that part, and does not report it. `None` when there is no slice in it.
    pub fn is_begun(self, frame: &[u8]) -> Option<bool> {
        let mut rest = frame;
        while let Some((unit, behind)) = self.next_unit(rest) {
            if let Some(is_first) = self.codec.is_first_slice(unit) {
                return Some(is_first);
            }
            rest = behind;
        }
        None
    }

    /// The next unit, and what is behind it. With start codes the unit is not cut at its end: only its first bytes count.
    fn next_unit(self, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        match self.framing {
            NalFraming::StartCodes => {
                let start = bytes.windows(3).position(|three| three == [0, 0, 1])? + 3;
                Some((&bytes[start..], &bytes[start..]))
            }
            NalFraming::Lengths => {
                let (length, rest) = bytes.split_first_chunk()?;
                rest.split_at_checked(u32::from_be_bytes(*length) as usize)
            }
        }
    }
}

/// This number of packets in a row that are none of the announced codec is no accident.
const MISFITS: u32 = 10;

/// Notices a camera that announces one of the codecs and sends the other.
#[derive(Clone, Copy, Debug)]
pub struct CodecCheck {
    announced: NalCodec,
    misfits: u32,
}

impl CodecCheck {
    pub fn new(announced: NalCodec) -> Self {
        Self {
            announced,
            misfits: 0,
        }
    }

    /// The announced codec and the one that the camera seems to send, when the last packets were of that. Enough where the depayloader
    /// found fault with a packet too.
    pub fn suspected(&self) -> Option<(NalCodec, NalCodec)> {
        (self.misfits > 0).then_some((self.announced, self.announced.other()))
    }

    /// A packet came with this payload. As [`Self::suspected`], once it is certain.
    pub fn packet(&mut self, payload: &[u8]) -> Option<(NalCodec, NalCodec)> {
        let sent = self.announced.other();
        match (self.announced.allows(payload), sent.allows(payload)) {
            (true, false) => self.misfits = 0,
            (false, true) => {
                self.misfits = self.misfits.saturating_add(1);
                return self.suspected().filter(|_| self.misfits == MISFITS);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Units of each codec: parameter sets, a message, and a slice that is the first of its picture or not.
    fn units(codec: NalCodec, is_first: bool) -> Vec<Vec<u8>> {
        let slice = if is_first { 0x88 } else { 0x07 };
        let units: &[&[u8]] = match codec {
            NalCodec::H264 => &[
                &[0x67, 0x4d, 0, 1],
                &[0x68, 0xeb],
                &[6, 5, 0xff, 0, 0, 3, 1],
            ],
            NalCodec::H265 => &[
                &[0x40, 1, 0x0c],
                &[0x42, 1, 1],
                &[0x44, 1, 0xc1],
                &[0x4e, 1, 5],
            ],
        };
        let header: &[u8] = match codec {
            NalCodec::H264 => &[0x65],
            NalCodec::H265 => &[0x28, 1],
        };
        let mut units: Vec<Vec<u8>> = units.iter().map(|unit| unit.to_vec()).collect();
        units.push([header, &[slice, 1, 2, 3]].concat());
        units
    }

    fn framed(framing: NalFraming, units: &[Vec<u8>]) -> Vec<u8> {
        let framed = units.iter().enumerate().map(|(at, unit)| match framing {
            // Start codes of four and of three bytes.
            NalFraming::StartCodes => [&[0, 0, 0, 1][at % 2..], unit].concat(),
            NalFraming::Lengths => [&(unit.len() as u32).to_be_bytes()[..], unit].concat(),
        });
        framed.collect::<Vec<_>>().concat()
    }

    fn layouts() -> impl Iterator<Item = NalLayout> {
        let framings = [NalFraming::StartCodes, NalFraming::Lengths].into_iter();
        let layouts =
            |framing| [NalCodec::H264, NalCodec::H265].map(|codec| NalLayout { codec, framing });
        framings.flat_map(layouts)
    }

    #[test]
    fn first_slice_says_whether_a_frame_has_its_beginning() {
        for layout in layouts() {
            for is_first in [true, false] {
                let mut all = units(layout.codec, is_first);
                // Slices behind the first one are not asked.
                all.push(units(layout.codec, false).pop().unwrap());
                let frame = framed(layout.framing, &all);
                assert_eq!(layout.is_begun(&frame), Some(is_first), "{layout:?}");
                all.truncate(all.len() - 2);
                let without = framed(layout.framing, &all);
                assert_eq!(layout.is_begun(&without), None, "{layout:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for layout in layouts() {
                let _ = layout.is_begun(&bytes);
            }
        }
    }

    #[test]
    fn other_codec_is_noticed_and_the_announced_one_is_not() {
        for announced in [NalCodec::H264, NalCodec::H265] {
            let sent = |codec| {
                let mut check = CodecCheck::new(announced);
                let packets = (0..20).flat_map(|_| units(codec, true));
                let found = packets.map(|packet| check.packet(&packet));
                found.flatten().next()
            };
            assert_eq!(sent(announced), None);
            let other = announced.other();
            assert_eq!(sent(other), Some((announced, other)));
        }
        // Fragments, as RTP cuts large units.
        let mut check = CodecCheck::new(NalCodec::H265);
        let fragments = [[0x7c, 0x85], [0x7c, 0x05], [0x7c, 0x45], [0x5c, 0x81]];
        let found: Vec<_> = (0..12).map(|n| check.packet(&fragments[n % 4])).collect();
        assert_eq!(
            (found[8], found[9]),
            (None, Some((NalCodec::H265, NalCodec::H264)))
        );
        let mut check = CodecCheck::new(NalCodec::H264);
        let fragments = [[0x62, 1], [0x02, 1], [0x60, 1]];
        let found = (0..12).filter_map(|n| check.packet(&fragments[n % 3]));
        assert_eq!(found.count(), 1, "it is reported once");
    }
}
