//! Golden cases fed to a backend as the reference went through them, also where the backend decides otherwise; what it decided at each
//! place, and the tensors behind that.
//!
//! Belongs here: the order of the steps, and what a backend shows of its last one ([`Inside`]). Not here: what is made of it
//! ([`golden_figures`](super::golden_figures), [`tally`](super::tally)).

use serde_json::Value;

use super::golden_model::{self, run_step, step_of};
use crate::{
    model::{ModelConfig, coord_from_bin, size_from_bin},
    scheduler::backend::{Backend, DecoderInput, Feed, MaskSource, Pick, PickResult, Row, Step},
};
use spotter_core::Picture;

/// A backend whose last step can be looked into.
pub trait Inside: Backend {
    /// Of `picture`, the last image: what the encoder made of each crop that it saw,
    /// `[crops, image tokens, encoder's width]`, and its tokens, `[image tokens, width]`.
    fn image(&mut self, picture: &Picture) -> [Vec<f32>; 2];
    /// Keys and values of layer `layer` in the pages of [`prefill`], `[heads, prefix positions, 64]` each, keys in the
    /// reference's order: what turns together side by side.
    fn prefix(&mut self, layer: usize) -> [Vec<f32>; 2];
    /// Of the last step's only row, behind the last block: `[positions, width]`.
    fn hidden(&mut self, positions: usize) -> Vec<f32>;
    /// Of the last step's only decision: `[1024]`, `[2 * 1024]` (widths, heights) or `[vocabulary]`.
    fn logits(&mut self, head: Head) -> Vec<f32>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Bins of a coordinate.
    Coord,
    /// Bins of a width and a height.
    Size,
    Vocabulary,
}

/// How deep states of a picture lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Of the patches of its crops, behind so many blocks of the encoder: `[crops, image tokens, encoder's width]`.
    Encoder(usize),
    /// Of its prefix, behind this block of the decoder: `[prefix positions, width]`.
    Decoder(usize),
}

/// A decision of a case, by its place in the golden tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Token, or the end against the next object: rows of `answer.logits`, of `decision_logits`.
    Token(usize),
    /// x of an object.
    X(usize),
    Y(usize),
    Size(usize),
}

impl Ask {
    /// Whose logits decide it.
    pub fn head(self) -> Head {
        match self {
            Self::Token(_) => Head::Vocabulary,
            Self::X(_) | Self::Y(_) => Head::Coord,
            Self::Size(_) => Head::Size,
        }
    }

    /// The reference bans the answer's id from the second token of an answer on.
    fn pick(self, config: &ModelConfig) -> Pick {
        match self {
            Self::Token(0) => token(Vec::new()),
            Self::Token(_) => token(vec![config.tokenizer.answer_id]),
            Self::X(_) | Self::Y(_) => Pick::Coord,
            Self::Size(_) => Pick::Size,
        }
    }
}

fn token(banned: Vec<u32>) -> Pick {
    Pick::token(MaskSource::Banned(banned))
}

/// What is fed at once, and what is asked behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub inputs: Vec<DecoderInput>,
    /// Decisions from the last of them; each is a step of its own, which feeds the same again.
    pub asks: Vec<Ask>,
}

/// The turns of a case with the reference's `expected`. Of a case that thinks first, the first decision only.
pub fn turns(expected: &Value) -> Vec<Turn> {
    let ids: Vec<u32> = serde_json::from_value(expected["prompt_ids"].clone()).unwrap();
    let mut turns = Vec::new();
    let mut inputs: Vec<DecoderInput> = ids.into_iter().map(DecoderInput::Token).collect();
    let mut turn = |inputs: &mut Vec<DecoderInput>, asks: Vec<Ask>, then: Vec<DecoderInput>| {
        let inputs = std::mem::replace(inputs, then);
        turns.push(Turn { inputs, asks });
    };
    if let Some(objects) = expected["objects"].as_array() {
        let bin = |object: &Value, key: &str| object[key].as_u64().map(|bin| bin as u16);
        let coord =
            |bin: Option<u16>| vec![DecoderInput::Coord(coord_from_bin(bin.unwrap()) as f32)];
        let size = |bin: u16| size_from_bin(bin) as f32;
        for (i, object) in objects.iter().enumerate() {
            let asks = vec![Ask::Token(i), Ask::X(i)];
            turn(&mut inputs, asks, coord(bin(object, "x_bin")));
            turn(&mut inputs, vec![Ask::Y(i)], coord(bin(object, "y_bin")));
            if let (Some(w), Some(h)) = (bin(object, "w_bin"), bin(object, "h_bin")) {
                let fed = vec![DecoderInput::Size(size(w), size(h))];
                turn(&mut inputs, vec![Ask::Size(i)], fed);
            }
        }
        turn(&mut inputs, vec![Ask::Token(objects.len())], Vec::new());
        return turns;
    }
    let phases = expected["phases"].as_array().unwrap();
    let tokens: Vec<u32> = match &phases[..] {
        [answer] => serde_json::from_value(answer["tokens"].clone()).unwrap(),
        _ => Vec::new(),
    };
    for (i, &id) in tokens.iter().enumerate() {
        turn(
            &mut inputs,
            vec![Ask::Token(i)],
            vec![DecoderInput::Token(id)],
        );
    }
    turn(&mut inputs, vec![Ask::Token(tokens.len())], Vec::new());
    turns
}

/// A decision that was asked for.
#[derive(Clone, Debug)]
pub struct Seen {
    pub ask: Ask,
    pub picked: PickResult,
    /// What from; see [`Inside::logits`].
    pub logits: Vec<f32>,
}

/// What a backend shows on the reference's way through a case.
#[derive(Clone, Debug)]
pub struct ReferenceRun {
    /// Hidden states of the prompt behind the last block, `[positions, width]`.
    pub prompt: Vec<f32>,
    /// All decisions, in order.
    pub seen: Vec<Seen>,
}

/// A step with this picture alone, whose prefix [`follow`] and [`Inside::prefix`] read.
pub fn prefill<B: Inside>(backend: &mut B, picture: &Picture) {
    let step = Step {
        images: vec![golden_model::job(backend, picture.clone())],
        rows: Vec::new(),
    };
    run_step(backend, step);
}

/// Feeds a case turn by turn, behind the image of the last [`prefill`] or, with `alone`, behind nothing.
pub fn follow<B: Inside>(
    backend: &mut B,
    expected: &Value,
    config: &ModelConfig,
    alone: bool,
) -> ReferenceRun {
    let kv = match alone {
        true => golden_model::alone(backend, 0),
        false => golden_model::kv(backend, 0),
    };
    let mut position = kv.prefix_positions;
    let mut followed = ReferenceRun {
        prompt: Vec::new(),
        seen: Vec::new(),
    };
    for turn in turns(expected) {
        for &ask in &turn.asks {
            let row = Row {
                inputs: Feed::Host(turn.inputs.clone()),
                position,
                kv: kv.clone(),
                picks: vec![ask.pick(config)],
                adapter: None,
            };
            let picked = run_step(backend, step_of(vec![row])).picked[0][0];
            let logits = backend.logits(ask.head());
            followed.seen.push(Seen {
                ask,
                picked,
                logits,
            });
            if followed.prompt.is_empty() {
                followed.prompt = backend.hidden(turn.inputs.len());
            }
        }
        position += turn.inputs.len();
    }
    followed
}

#[test]
fn a_case_is_fed_as_the_reference_went() {
    let detect = serde_json::json!({
        "prompt_ids": [1, 7],
        "objects": [{"x_bin": 512, "y_bin": 256, "w_bin": 1023, "h_bin": 1023}],
    });
    let expected = [
        (
            vec![DecoderInput::Token(1), DecoderInput::Token(7)],
            vec![Ask::Token(0), Ask::X(0)],
        ),
        (vec![DecoderInput::Coord(0.5)], vec![Ask::Y(0)]),
        (vec![DecoderInput::Coord(0.25)], vec![Ask::Size(0)]),
        (vec![DecoderInput::Size(1.0, 1.0)], vec![Ask::Token(1)]),
    ];
    let expected = expected.map(|(inputs, asks)| Turn { inputs, asks });
    assert_eq!(turns(&detect), expected);

    let answer = serde_json::json!({"prompt_ids": [1], "phases": [{"tokens": [9, 8]}]});
    let asks: Vec<_> = turns(&answer).into_iter().map(|turn| turn.asks).collect();
    assert_eq!(
        asks,
        [
            [Ask::Token(0)].to_vec(),
            [Ask::Token(1)].to_vec(),
            [Ask::Token(2)].to_vec()
        ]
    );
}
