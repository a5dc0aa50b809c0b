use super::*;
use spotter_core::WallTime;

/// Reads a record as the trainer does.
struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        head
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes(4).try_into().expect("four bytes"))
    }

    fn f32(&mut self) -> f32 {
        f32::from_bits(self.u32())
    }
}

#[test]
fn a_record_reads_back_as_its_scene() {
    let (width, height) = (64, 36);
    for seed in [1 << 40, (1 << 40) + 1, 2, 3] {
        let scene = random(seed);
        let truth = truth::truth(&scene);
        let bytes = record(seed, width, height);
        assert_eq!(bytes.len(), record_bytes(width, height));
        let mut reader = RecordReader(&bytes);
        assert_eq!(reader.bytes(8), seed.to_le_bytes());
        assert_eq!(reader.u32() as usize, truth.seen.len());
        for i in 0..MAX_OBJECTS {
            let names = reader.bytes(4);
            let numbers: [f32; 5] = std::array::from_fn(|_| reader.f32());
            let Some(seen) = truth.seen.get(i) else {
                assert_eq!((names, numbers), (&[0; 4][..], [0.0; 5]));
                continue;
            };
            assert_eq!(Class::ALL[usize::from(names[0])], seen.class);
            assert_eq!(Colour::ALL.get(usize::from(names[1])).copied(), seen.colour);
            let b = seen.box_in_frame;
            let corners = [b.x0, b.y0, b.x1, b.y1].map(|side| side as f32);
            assert_eq!((&numbers[..4], numbers[4]), (&corners[..], seen.visible));
        }
        for caption in words::captions(&truth) {
            let field = reader.bytes(CAPTION_BYTES);
            let zero = field.iter().position(|&b| b == 0);
            let end = zero.expect("a zero at the end");
            assert_eq!(std::str::from_utf8(&field[..end]), Ok(caption.as_str()));
            assert!(field[end..].iter().all(|&b| b == 0));
        }
        assert_eq!(reader.0, draw_i420(&scene, width, height));
    }
}

#[test]
fn the_header_is_one_line_of_json() {
    let mut out = Vec::new();
    write_header(&mut out, 640, 360).expect("writing to memory");
    let text = String::from_utf8(out).expect("text");
    assert_eq!(text.find('\n'), Some(text.len() - 1));
    let header: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(header["v"], 1);
    assert_eq!(header["classes"][10]["name"], "traffic light");
    assert_eq!(header["colours"][7], "black");
    assert_eq!(header["max_objects"], 32);
}

/// The embedded model was trained with these pictures and texts.
#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "sines and powers have other last bits"
)]
fn pictures_and_records_are_those_of_the_training() {
    let mut all = Vec::new();
    for seed in 0..60 {
        all.extend(record(seed, 160, 90));
        for question in questions::questions(&truth::truth(&random(seed)), seed) {
            all.extend(format!("{question:?}").into_bytes());
        }
        all.extend(crate::draw(&random(seed), 161, 91));
        let moment = WallTime::from_unix_millis(1_787_393_730_123 + seed as i64 * 97_003);
        let street = crate::Street::new(seed % 7).at(moment);
        all.extend(format!("{street:?} {:?}", truth::truth(&street)).into_bytes());
        all.extend(draw_i420(&street, 160, 90));
    }
    assert_eq!(xxhash_rust::xxh3::xxh3_64(&all), 119_729_596_213_878_196);
}
