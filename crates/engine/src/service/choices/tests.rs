use std::{collections::HashSet, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    cpu::{CpuBackend, CpuSettings},
    model::Formats,
    scheduler::{constraint::Cursor, sequence::Bounds},
    service::{Engine, EngineError, EngineModel},
    testing::{ahead::micro_picture, golden_model::weights, golden_set, micro_model},
};
use spotter_config as config;
use spotter_core::{Answer, AnswerBody, Look, ManualClock, Picture, SystemClock, Task, WallTime};
use spotter_street::{Street, draw};

/// The smallest golden model: its weights are random, so it babbles and would give no choice by itself.
fn babbling_engine() -> Engine {
    let model = micro_model();
    let weights = weights(&golden_set("md2-micro"), &model.config);
    let capacity = CpuSettings {
        formats: Formats::F32,
        slots: 2,
        rows: 4,
        images: 1,
        pages: 100,
        page_tokens: 16,
        kept_crops: 0,
    };
    let clock = Arc::new(ManualClock::default());
    let backend = CpuBackend::new(&model.config, weights, capacity, clock.clone()).unwrap();
    // Shorter than most choices: it is not theirs.
    let bounds = Bounds {
        max_objects: 5,
        max_tokens: 3,
    };
    Engine::new(Box::new(backend), model, bounds, clock)
}

fn texts(choices: &[&str]) -> Vec<String> {
    choices.iter().map(|&choice| choice.to_owned()).collect()
}

fn ask(engine: &mut Engine, picture: Picture, choices: &[String]) -> (String, f64) {
    let task = Task::Query {
        question: "Is the gate open?".into(),
        choices: choices.to_vec(),
        options: Default::default(),
    };
    let look = Look::still(picture, [task]);
    let mut answers = engine.look(look).unwrap().into_answers().unwrap();
    let answer: Answer = answers.pop().unwrap();
    let AnswerBody::Text { text, score, .. } = answer.body else {
        panic!("{:?}", answer.body);
    };
    assert!(!answer.truncated, "{text:?}");
    (text, score)
}

#[test]
fn answer_is_always_one_of_the_choices() {
    let mut engine = babbling_engine();
    let pictures = ["gray_200x200", "small_50x40"].map(micro_picture);
    // Beginnings of each other, characters of several tokens, and words that no picture shows.
    let hand_picked = [
        texts(&["open", "opened", "o", "open wide"]),
        texts(&["half-open", "half open", "half"]),
        texts(&["猫がいる", "猫", "Tür", "😀"]),
        texts(&["yes", &"z".repeat(40), "q!;{}|~^#"]),
    ];
    for choices in &hand_picked {
        for picture in &pictures {
            let (answer, score) = ask(&mut engine, picture.clone(), choices);
            assert!(choices.contains(&answer), "{answer:?} of {choices:?}");
            assert!(score > 0.0 && score <= 1.0, "{score}");
        }
    }
    let text = "[a-zA-Z0-9äéß猫 .,'-]{1,12}";
    let choices = prop::collection::btree_set(text, 2..6);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(
        spotter_core::testing::cases(24),
    ));
    let engine = std::cell::RefCell::new(engine);
    runner
        .run(&choices, |choices| {
            // As the configuration trims them.
            let choices: Vec<String> = choices.iter().map(|c| c.trim().to_owned()).collect();
            prop_assume!(choices.iter().all(|choice| !choice.is_empty()));
            let (answer, _) = ask(&mut engine.borrow_mut(), pictures[0].clone(), &choices);
            prop_assert!(choices.contains(&answer), "{answer:?} of {choices:?}");
            Ok(())
        })
        .unwrap();
}

#[test]
fn free_answer_that_is_a_choice_keeps_its_score() {
    let settings = config::ModelSettings::of(config::ModelSource::Embedded);
    let (mut engine, _) = Engine::open(&settings, Vec::new, Arc::new(SystemClock::new())).unwrap();
    let (width, height) = (640, 360);
    let scene = Street::new(7).at(WallTime::from_unix_millis(1_780_318_235_000));
    let rgb = draw(&scene, width, height);
    let street = Picture::from_rgb(width as usize, height as usize, rgb).unwrap();
    let (free, score) = ask(&mut engine, street.clone(), &[]);
    let choices = texts(&["a pineapple", &free, &format!("{free} and more")]);
    let (chosen, chosen_score) = ask(&mut engine, street.clone(), &choices);
    assert_eq!((&chosen, chosen_score), (&free, score));
    // Forced to something else, it says how little it believes it.
    let (forced, forced_score) = ask(&mut engine, street, &texts(&["a pineapple", "a walrus"]));
    assert!(forced.starts_with("a "), "{forced:?}");
    assert!(forced_score < score / 2.0, "{forced_score} of {score}");
}

#[test]
fn both_spellings_of_each_choice_are_allowed_completely() {
    let EngineModel {
        config, tokenizer, ..
    } = micro_model();
    let (eos, vocab) = (config.tokenizer.eos_id, config.text.vocab_size);
    let choices = texts(&["open", "open wide", "shut"]);
    let allowed = allowed(&choices, &tokenizer).unwrap().unwrap();
    let mut begins = HashSet::new();
    let mut longest = 0;
    for text in choices.iter().flat_map(|c| [c.clone(), format!(" {c}")]) {
        let ids = tokenizer.encode(&text).unwrap();
        begins.insert(ids[0]);
        longest = longest.max(ids.len());
        let mut at = Cursor::default();
        for &id in &ids {
            assert!(allowed.tree.mask(at, eos, vocab).allows(id), "{text:?}");
            at = allowed.tree.after(at, id);
        }
        assert!(allowed.tree.mask(at, eos, vocab).allows(eos), "{text:?}");
    }
    let first = allowed.tree.mask(Cursor::default(), eos, vocab);
    let first: HashSet<u32> = (0..vocab as u32).filter(|&id| first.allows(id)).collect();
    assert_eq!((first, allowed.longest), (begins, longest));
}

#[test]
fn no_choices_leave_the_answer_free() {
    let tokenizer = micro_model().tokenizer;
    assert!(allowed(&[], &tokenizer).unwrap().is_none());
}

#[test]
fn a_choice_that_the_model_cannot_write_is_named() {
    for (choice, written) in [("<|endoftext|>", ""), ("shut<|endoftext|>!", "shut!")] {
        let task = Task::Query {
            question: "Open?".into(),
            choices: texts(&["open", choice]),
            options: Default::default(),
        };
        let look = Look::still(micro_picture("small_50x40"), [task]);
        let error = babbling_engine().look(look).unwrap_err();
        assert!(matches!(error, EngineError::Prompt { .. }), "{error:?}");
        let expected = format!(
            "prompt ask-0: the model can write the choice {choice:?} as {written:?} only; \
             choose other words for it"
        );
        assert_eq!(error.to_string(), expected);
    }
}
