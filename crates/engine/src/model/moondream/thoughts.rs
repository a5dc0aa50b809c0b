//! Thoughts: tokens to a text, with the points that its parts are about (docs/moondream.md section 8). Pure.

use spotter_core::{GroundedSpan, NormPoint, Reasoning};

use crate::model::{
    bins::coord_from_bin,
    config::TokenizerConfig,
    output::{Thoughts, ValueBins},
    tokenizer::{Tokenizer, TokenizerError},
};

/// A part of the thoughts, from a token that begins or ends points to the next one.
#[derive(Default)]
struct ThoughtChunk {
    tokens: Vec<u32>,
    coords: Vec<f64>,
}

/// The text of thoughts. Each chunk is decoded alone; its coordinates are points in pairs, of which an odd last one is left out.
pub fn reasoning(
    thoughts: &Thoughts,
    ids: &TokenizerConfig,
    tokenizer: &Tokenizer,
) -> Result<Reasoning, TokenizerError> {
    let mut reasoning = Reasoning::default();
    let mut start = 0;
    for chunk in chunks(thoughts, ids) {
        let text = tokenizer.decode(&chunk.tokens)?;
        let end = start + text.chars().count();
        let points = chunk.coords.as_chunks::<2>().0.iter();
        let points: Vec<NormPoint> = points.map(|[x, y]| NormPoint::new(*x, *y)).collect();
        if !points.is_empty() {
            reasoning
                .grounding
                .push(GroundedSpan { start, end, points });
        }
        reasoning.text.push_str(&text);
        start = end;
    }
    Ok(reasoning)
}

fn chunks(thoughts: &Thoughts, ids: &TokenizerConfig) -> Vec<ThoughtChunk> {
    let mut values = thoughts.values.iter();
    let mut done = Vec::new();
    let mut chunk = ThoughtChunk::default();
    for &id in &thoughts.tokens {
        if id == ids.start_ground_points_id || id == ids.end_ground_id {
            done.push(std::mem::take(&mut chunk));
        } else if id == ids.coord_id {
            let coord = values.next().and_then(|value| match value {
                ValueBins::Coord(bin) => Some(coord_from_bin(*bin)),
                ValueBins::Size(..) => None,
            });
            chunk.coords.extend(coord);
        } else if id != ids.size_id {
            chunk.tokens.push(id);
        }
    }
    done.push(chunk);
    done
}
