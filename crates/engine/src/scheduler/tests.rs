//! One prompt on its way; what the engine does with many of them is tested in the files below.

use super::{
    backend::{DecoderInput, MaskSource, Pick, PickResult},
    sequence::{Bounds, Sequence},
};
use crate::{
    model::{AnswerGrammar, ModelConfig, SequenceOutput, Skill},
    testing::script::{END, coord, size, token},
};

mod equality;
mod limits;
mod load;
mod still;
mod texts;

const BOUNDS: Bounds = Bounds {
    max_objects: 5,
    max_tokens: 8,
};

fn grammar(skill: Skill) -> AnswerGrammar {
    ModelConfig::default().grammar(skill)
}

/// Runs a sequence over scripted decisions; returns what it asked for and found.
fn play(
    skill: Skill,
    script: &[PickResult],
) -> (Vec<Pick>, Vec<Vec<DecoderInput>>, SequenceOutput) {
    let mut sequence = Sequence::new(grammar(skill), vec![DecoderInput::Token(42)], BOUNDS);
    let (mut picks, mut inputs) = (Vec::new(), Vec::new());
    for &picked in script {
        let feed = sequence
            .feed()
            .expect("the script is longer than the sequence");
        picks.push(feed.pick);
        inputs.push(feed.inputs);
        sequence
            .advance(picked)
            .expect("a decision of the asked kind");
    }
    assert_eq!(sequence.feed(), None, "the script ends before the sequence");
    (picks, inputs, sequence.into_found())
}

#[test]
fn box_takes_three_steps_and_the_end_none() {
    let (picks, inputs, found) = play(Skill::Detect, &[coord(512), coord(256), size(1023, 0), END]);
    assert_eq!(
        picks,
        [Pick::CoordOrEnd, Pick::Coord, Pick::Size, Pick::CoordOrEnd]
    );
    assert_eq!(inputs[1], [DecoderInput::Coord(0.5)]);
    assert_eq!(inputs[3], [DecoderInput::Size(1.0, 1.0 / 1024.0)]);
    assert_eq!(found.objects.len(), 1);
    assert_eq!(found.objects[0].size_bins, Some((1023, 0)));
    assert!(!found.truncated);
}

#[test]
fn empty_answer_needs_the_prefill_alone() {
    let (picks, _, found) = play(Skill::Point, &[END]);
    assert_eq!(picks, [Pick::CoordOrEnd]);
    assert!(found.objects.is_empty());
}

#[test]
fn object_limit_ends_a_sequence_with_that_reason() {
    let script: Vec<_> = (0..10).map(coord).collect();
    let (_, _, found) = play(Skill::Point, &script);
    assert_eq!((found.objects.len(), found.truncated), (5, true));
}

#[test]
fn the_answer_id_is_banned_from_the_second_token_on() {
    let (picks, _, found) = play(Skill::Text, &[token(70), token(71), token(0)]);
    let banned: Vec<_> = picks
        .iter()
        .map(|pick| match pick {
            Pick::Token(MaskSource::Banned(banned)) => banned.clone(),
            other => panic!("asked for {other:?}"),
        })
        .collect();
    assert_eq!(banned, [vec![], vec![3], vec![3]]);
    assert_eq!(found.tokens, [70, 71]);
    assert!((found.log_probability - 3.0 * 0.5_f64.ln()).abs() < 1e-6);
}

#[test]
fn a_decision_of_the_wrong_kind_is_an_error() {
    let mut sequence = Sequence::new(grammar(Skill::Detect), vec![DecoderInput::Token(1)], BOUNDS);
    assert!(sequence.advance(token(3)).is_err());
}
