//! The stream of scenes that the trainer of the embedded model reads: one line of JSON, then records of fixed size,
//! little endian, without padding.

use std::io::{self, Write};

use serde_json::json;

use super::{
    draw_i420, questions, random,
    scene::{Class, Colour},
    truth::{self, HEIGHT_MIN, IGNORE_BELOW, Truth, VISIBLE_MIN, WIDTH_MIN},
    words,
};

/// Places for objects in a record; no scene has more objects.
pub const MAX_OBJECTS: usize = 32;
/// Bytes of one caption in a record, padded with zeros; at least one zero follows the text.
pub const CAPTION_BYTES: usize = words::CAPTION_BYTES_MAX + 1;
/// Bytes of one object: class, colour, two zeros, box of four `f32`, visible share.
pub const OBJECT_BYTES: usize = 24;
pub const NO_COLOUR: u8 = 255;

/// Bytes of one record: seed, number of objects, objects, three captions, the picture as I420.
pub const fn record_bytes(width: u32, height: u32) -> usize {
    let (width, height) = (width as usize, height as usize);
    12 + MAX_OBJECTS * OBJECT_BYTES
        + 3 * CAPTION_BYTES
        + width * height
        + 2 * width.div_ceil(2) * height.div_ceil(2)
}

/// Writes the first line: sizes, names, rules and the exact forms of the questions.
pub fn write_header(out: &mut impl Write, width: u32, height: u32) -> io::Result<()> {
    let class =
        |c: &Class| json!({ "name": c.name(), "plural": c.plural(), "coloured": c.is_coloured() });
    let header = json!({
        "v": 1,
        "width": width,
        "height": height,
        "max_objects": MAX_OBJECTS,
        "classes": Class::ALL.iter().map(class).collect::<Vec<_>>(),
        "colours": Colour::ALL.iter().map(|colour| colour.name()).collect::<Vec<_>>(),
        "visible_min": VISIBLE_MIN,
        "ignore_below": IGNORE_BELOW,
        "min_width": WIDTH_MIN,
        "min_height": HEIGHT_MIN,
        "phrases": questions::phrases(),
    });
    writeln!(out, "{header}")
}

/// The record of random scene `seed`.
pub fn record(seed: u64, width: u32, height: u32) -> Vec<u8> {
    let scene = random(seed);
    let truth = truth::truth(&scene);
    let mut bytes = Vec::with_capacity(record_bytes(width, height));
    bytes.extend(seed.to_le_bytes());
    put_objects(&mut bytes, &truth);
    for caption in words::captions(&truth) {
        bytes.extend(caption.as_bytes());
        bytes.resize(bytes.len() + CAPTION_BYTES - caption.len(), 0);
    }
    bytes.extend(draw_i420(&scene, width, height));
    bytes
}

fn put_objects(bytes: &mut Vec<u8>, truth: &Truth) {
    let seen = &truth.seen[..truth.seen.len().min(MAX_OBJECTS)];
    bytes.extend((seen.len() as u32).to_le_bytes());
    for one in seen {
        let colour = one.colour.map_or(NO_COLOUR, |colour| colour.index() as u8);
        bytes.extend([one.class.index() as u8, colour, 0, 0]);
        let b = one.box_in_frame;
        for side in [b.x0, b.y0, b.x1, b.y1] {
            bytes.extend((side as f32).to_le_bytes());
        }
        bytes.extend(one.visible.to_le_bytes());
    }
    bytes.resize(bytes.len() + (MAX_OBJECTS - seen.len()) * OBJECT_BYTES, 0);
}

#[cfg(test)]
mod tests;
