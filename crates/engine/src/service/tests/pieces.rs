//! Answers as they are written.

use super::*;
use crate::service::{
    engine_loop::EngineLoop,
    handle::{SubmittedLook, start_here},
    look_limit::LookRule,
};

/// With white space at its ends, and a character of two bytes.
const PHRASE: &str = " un caf\u{e9} ";
/// Behind the step that prefills.
const FIRST_PIECE_STEPS: usize = 2;

fn phrase() -> Vec<u32> {
    let tokenizer = testing::micro_model().tokenizer;
    tokenizer.encode(PHRASE).expect("tokens")
}

/// One question, for a device that writes the phrase.
fn question(in_pieces: bool) -> Look {
    let picture = Picture::from_rgb(4, 4, vec![0; 48]).expect("a small picture");
    let task = Task::question("What is it?");
    let look = Look::still(picture, [task]);
    match in_pieces {
        true => look.in_pieces(),
        false => look,
    }
}

/// The texts of pieces, and the answer.
fn texts(news: Vec<LookNews>) -> (Vec<String>, Option<String>) {
    let (mut pieces, mut answer) = (Vec::new(), None);
    for news in news {
        match news {
            LookNews::Piece { piece, .. } => match piece {
                AnswerPiece::Text(text) => pieces.push(text),
                other => panic!("{other:?}"),
            },
            LookNews::Answer { answer: whole, .. } => match whole.body {
                AnswerBody::Text { text, .. } => answer = Some(text),
                other => panic!("{other:?}"),
            },
            LookNews::ShortAnswered(_) | LookNews::Ended(Outcome::Answered(_)) => {}
            other @ LookNews::Ended(_) => panic!("{other:?}"),
        }
    }
    (pieces, answer)
}

#[test]
fn text_arrives_in_pieces_from_the_first_steps_on() {
    let tokens = phrase();
    let (mut engine, _, seen) = writing_engine(LIMITS, None, tokens.clone());
    engine.submit(question(true)).expect("a prompt");
    let (mut steps_at_pieces, mut all) = (Vec::new(), Vec::new());
    while !engine.is_idle() {
        let news = engine.turn().expect("a device");
        let steps = seen.lock().expect("one thread").steps;
        let pieces = news
            .iter()
            .filter(|(_, n)| matches!(n, LookNews::Piece { .. }));
        steps_at_pieces.extend(pieces.map(|_| steps));
        all.extend(news.into_iter().map(|(_, news)| news));
    }
    let (pieces, answer) = texts(all);
    assert_eq!(pieces.concat(), PHRASE.trim());
    assert_eq!(answer.as_deref(), Some(PHRASE.trim()));
    assert!(
        steps_at_pieces[0] <= 1 + FIRST_PIECE_STEPS,
        "{steps_at_pieces:?}"
    );
    assert!(
        steps_at_pieces.len() > tokens.len() / 2,
        "{steps_at_pieces:?}"
    );
    assert!(steps_at_pieces.is_sorted_by(|a, b| a < b), "a piece a step");
}

#[test]
fn look_that_wants_no_pieces_gets_none() {
    let (mut engine, _, _) = writing_engine(LIMITS, None, phrase());
    engine.submit(question(false)).expect("a prompt");
    let mut all = Vec::new();
    while !engine.is_idle() {
        all.extend(engine.turn().expect("a device").into_iter().map(|(_, n)| n));
    }
    assert_eq!(texts(all), (Vec::new(), Some(PHRASE.trim().to_owned())));
}

/// A look that waits on a loop which the test turns.
async fn asked(look: Look) -> (SubmittedLook, EngineLoop) {
    let (engine, _, _) = writing_engine(LIMITS, None, phrase());
    let (handle, _end, mut turns) = start_here(engine, LookRule::fixed(1));
    let submitted = handle.permit().await.look(look);
    turns.take_waiting();
    (submitted, turns)
}

// Faults: K7.
#[tokio::test]
async fn receiver_that_reads_late_delays_nothing_and_misses_nothing() {
    let (mut submitted, mut turns) = asked(question(true)).await;
    while !turns.is_idle() {
        turns.turn().expect("a device");
    }
    let (pieces, answer) = texts(submitted.next().await);
    assert_eq!(Some(pieces.concat()), answer);
    assert!(pieces.len() > 2, "{pieces:?}");
}

// Faults: K6.
#[tokio::test]
async fn receiver_that_leaves_frees_its_row() {
    let (submitted, mut turns) = asked(question(true)).await;
    turns.turn().expect("a device");
    turns.turn().expect("a device");
    assert!(!turns.is_idle());
    drop(submitted);
    // It is noticed in a turn, and no step is in flight behind that of the turn.
    turns.turn().expect("a device");
    assert!(turns.is_idle());
    assert_eq!(turns.engine().worker().pages_in_use(), 0);
}
