//! Backends that work as one, each with a part of the decoder, against one that works alone and against the reference.

use std::{path::Path, sync::Arc};

use spotter_config::ModelSource;

use super::{adapters::check_on, capacity, cases::check_every_case, config, weights};
use crate::{
    cpu::{CpuBackend, CpuRank},
    model::{self, ModelConfig, Tokenizer, Weights},
    open::known_picture::drawn,
    ranks::{RankBuild, RankGroup},
    scheduler::{
        backend::{Backend, Pick, PickResult, Step},
        sequence::Bounds,
    },
    service::{Engine, EngineModel},
    testing::{
        ahead::{micro_picture, token_pick},
        golden_adapters::of_moondream3,
        golden_model::{job, prompt, run_step},
        golden_set, whole_golden_set,
    },
};
use spotter_core::{AnswerBody, FoundObject, Look, ManualClock, Task};

/// As many backends as one.
fn group(config: &ModelConfig, weights: &Weights, ranks: usize) -> RankGroup {
    let mut builds = CpuRank::all(ranks).into_iter().map(|rank| {
        let (config, weights) = (config.clone(), weights.clone());
        Box::new(move || {
            let (room, clock) = (capacity(&config, 16), Arc::new(ManualClock::default()));
            let backend = CpuBackend::of_rank(&config, weights, room, clock, Some(rank));
            let backend = backend.map_err(|error| error.to_string())?;
            Ok(Box::new(backend) as Box<dyn Backend>)
        }) as RankBuild
    });
    let leader = builds.next().unwrap();
    RankGroup::build(leader, builds.collect()).unwrap()
}

fn group_of(set: &Path, ranks: usize) -> RankGroup {
    let config = config(set);
    group(&config, &weights(set, &config), ranks)
}

/// What the embedded model says of a red ball.
fn answers(backend: Box<dyn Backend>, config: ModelConfig, tokenizer: Tokenizer) -> Vec<String> {
    let object = || "red ball".to_owned();
    let tasks = [
        Task::Detect { object: object() },
        Task::Point { object: object() },
        Task::Query {
            question: "What colour is the ball?".into(),
            choices: Default::default(),
            options: Default::default(),
        },
    ];
    let bounds = Bounds {
        max_objects: 8,
        max_tokens: 12,
    };
    let model = EngineModel {
        config,
        tokenizer,
        explains_strips: false,
    };
    let clock = Arc::new(ManualClock::default());
    let mut engine = Engine::new(backend, model, bounds, clock);
    let looked = engine.look(Look::still(drawn().unwrap(), tasks)).unwrap();
    let answers = looked.into_answers().unwrap();
    answers
        .iter()
        .map(|answer| without_scores(&answer.body))
        .collect()
}

/// Scores differ in their last digits.
fn without_scores(body: &AnswerBody) -> String {
    match body {
        AnswerBody::Boxes(found) => format!("{:?}", places(found)),
        AnswerBody::Points(found) => format!("{:?}", places(found)),
        AnswerBody::Text { text, .. } => text.clone(),
        AnswerBody::Outline(outline) => format!("{outline:?}"),
    }
}

fn places<T>(found: &[FoundObject<T>]) -> Vec<&T> {
    found.iter().map(|object| &object.place).collect()
}

#[test]
fn embedded_model_answers_on_ranks_as_alone() {
    let answers_of = |ranks: usize| {
        let loaded = model::load_model(&ModelSource::Embedded).unwrap();
        let backend = group(&loaded.config, &loaded.weights, ranks);
        answers(Box::new(backend), loaded.config, loaded.tokenizer)
    };
    let alone = answers_of(1);
    assert!(alone.iter().all(|answer| answer.len() > 2), "{alone:?}");
    for ranks in [2, 4] {
        assert_eq!(answers_of(ranks), alone, "{ranks} ranks");
    }
}

/// Experts and tau, with random weights.
#[test]
fn two_ranks_of_a_moondream_3_decide_as_one() {
    let config = config(&golden_set("md3-segment-tiny"));
    let weights = model::random_weights(&config).unwrap();
    let decided = |ranks: usize| {
        let mut backend = group(&config, &weights, ranks);
        let picks = [Pick::CoordOrEnd, Pick::Coord, Pick::Size, token_pick(&[])];
        let rows = picks.into_iter().enumerate();
        let rows = rows.map(|(nth, pick)| prompt(&backend, nth, &[1, 20 + nth as u32, 3], pick));
        let step = Step {
            rows: rows.collect(),
            images: vec![job(&backend, micro_picture("gray_200x200"))],
        };
        run_step(&mut backend, step).picked
    };
    let (alone, together) = (decided(1), decided(2));
    for (alone, together) in alone.iter().flatten().zip(together.iter().flatten()) {
        let off = (alone.probability() - together.probability()).abs();
        assert!(off < 1e-5, "{alone:?} is {together:?}");
        assert_eq!(bins(*alone), bins(*together));
    }
}

fn bins(picked: PickResult) -> [u32; 2] {
    match picked {
        PickResult::Coord { bin, .. } => [bin.into(), 0],
        PickResult::Size {
            width_bin,
            height_bin,
            ..
        } => [width_bin, height_bin].map(u32::from),
        PickResult::Token { id, .. } => [id, 0],
        PickResult::End { .. } | PickResult::Nothing => [0; 2],
    }
}

mod whole_golden_data {
    use super::*;

    #[test]
    #[ignore = "needs the whole golden data; run make test-full"]
    fn two_ranks_answer_every_case_as_the_reference() {
        for set in ["md2-tiny", "md3-tiny", "md3-fp8-tiny", "md3-segment-tiny"] {
            let set = whole_golden_set(set);
            check_every_case(&set, &mut group_of(&set, 2));
        }
    }

    #[test]
    #[ignore = "needs the whole golden data; run make test-full"]
    fn two_ranks_answer_with_adapters_as_the_reference() {
        let set = of_moondream3("safetensors");
        check_on(
            &mut group_of(&set.network, 2),
            &set,
            &["card_44x50", "hall_150x90"],
        );
    }
}
