//! One prompt on its way; what the engine does with many of them is tested in the files below.

use super::{
    backend::{DecoderInput, MaskSource, Pick, PickResult, ValueTokens},
    sequence::{Bounds, Sequence},
};
use crate::{
    model::{AnswerGrammar, ModelConfig, SequenceOutput, Skill, ValueBins},
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

/// The end of a text.
const END_ID: PickResult = PickResult::Token {
    id: 0,
    probability: 0.5,
};

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
            Pick::Token {
                mask: MaskSource::Banned(banned),
                ..
            } => banned.clone(),
            other => panic!("asked for {other:?}"),
        })
        .collect();
    assert_eq!(banned, [vec![], vec![3], vec![3]]);
    assert_eq!(found.tokens, [70, 71]);
    assert!((found.log_probability - 3.0 * 0.5_f64.ln()).abs() < 1e-6);
}

#[test]
fn answer_follows_thoughts_with_bans_of_its_own() {
    let thoughts = [token(0), coord(512), coord(256), token(3)];
    let (picks, inputs, found) = play(
        Skill::ReasonedText,
        &[&thoughts[..], &[token(5), END_ID]].concat(),
    );
    let coord_alone = ValueTokens {
        coord: Some(5),
        size: None,
    };
    let pick = |banned: &[u32], values| Pick::Token {
        mask: MaskSource::Banned(banned.to_vec()),
        values,
    };
    let [thought, plain] = [coord_alone, ValueTokens::default()];
    let later = || pick(&[0, 6], thought);
    let expected = [
        pick(&[], thought),
        later(),
        later(),
        later(),
        pick(&[], plain),
        pick(&[3], plain),
    ];
    assert_eq!(picks, expected);
    assert_eq!(inputs[2], [DecoderInput::Coord(0.5)]);
    // The suffix of the question's template, in place of what ended the thoughts.
    assert_eq!(inputs[4], [DecoderInput::Token(3)]);
    assert_eq!(inputs[5], [DecoderInput::Token(5)]);
    assert_eq!(found.thoughts.tokens, [0, 5, 5]);
    assert_eq!(
        found.thoughts.values,
        [ValueBins::Coord(512), ValueBins::Coord(256)]
    );
    assert_eq!((found.tokens, found.values), (vec![5], vec![]));
}

#[test]
fn thoughts_end_at_the_limit_and_the_answer_follows() {
    let thoughts: Vec<_> = (0..9).map(|i| token(70 + i)).collect();
    let (_, inputs, found) = play(
        Skill::ReasonedText,
        &[&thoughts[..], &[token(80), END_ID]].concat(),
    );
    assert_eq!(found.thoughts.tokens, (70..78).collect::<Vec<_>>());
    assert_eq!(inputs[9], [DecoderInput::Token(3)]);
    assert_eq!((found.tokens, found.truncated), (vec![80], false));
}

#[test]
fn nothing_runs_ahead_of_a_thought() {
    let prompt = vec![DecoderInput::Token(42)];
    let mut sequence = Sequence::new(grammar(Skill::ReasonedText), prompt, BOUNDS);
    assert!(sequence.pick_ahead(0).is_some() && sequence.pick_ahead(1).is_none());
    sequence.advance(token(3)).expect("the end of the thoughts");
    assert!(sequence.pick_ahead(1).is_some());
}

#[test]
fn outline_keeps_the_bins_of_its_values() {
    let script = [coord(512), coord(256), size(1023, 0), token(65), END_ID];
    let (_, inputs, found) = play(Skill::Segment, &script);
    assert_eq!(inputs[3], [DecoderInput::Size(1.0, 1.0 / 1024.0)]);
    assert_eq!(found.tokens, [5, 5, 6, 65]);
    let [x, y] = [512, 256].map(ValueBins::Coord);
    assert_eq!(found.values, [x, y, ValueBins::Size(1023, 0)]);
    // Each token has 0.5 or 0.9.
    assert!(found.log_probability < 3.0 * 0.5_f64.ln());
}

#[test]
fn value_in_a_text_without_values_is_an_error() {
    for skill in [Skill::Text, Skill::ReasonedText] {
        let mut sequence = Sequence::new(grammar(skill), vec![DecoderInput::Token(1)], BOUNDS);
        assert!(sequence.advance(size(1, 2)).is_err(), "{skill:?}");
    }
}

#[test]
fn a_decision_of_the_wrong_kind_is_an_error() {
    let mut sequence = Sequence::new(grammar(Skill::Detect), vec![DecoderInput::Token(1)], BOUNDS);
    assert!(sequence.advance(token(3)).is_err());
}
