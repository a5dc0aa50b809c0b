//! Questions through the whole engine, from words and places to texts and pieces, against the reference.

use std::{path::Path, sync::Arc};

use serde_json::{Value, json};

use super::{backend, config, picture};
use crate::{
    model::Tokenizer,
    scheduler::sequence::Bounds,
    service::{Engine, EngineModel},
    testing::{self, golden_tests, whole_golden_set},
};
use spotter_core::{
    AnswerBody, AnswerPiece, GroundedSpan, Look, LookNews, ManualClock, QueryOptions,
    SpatialReference, Task, WholeLook,
};

golden_tests!(questions_are_answered_as_by_the_reference);

#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_with_experts_in_e4m3_answers_these_questions() {
    questions_are_answered_as_by_the_reference(&whole_golden_set("md3-fp8-tiny"));
}

/// All that have places, or thoughts that the model ended: an engine has a bound of its own for thoughts.
fn questions_are_answered_as_by_the_reference(set: &Path) {
    let mut seen = 0;
    for (name, case) in testing::json(&set.join("expected/cases.json"))
        .as_object()
        .unwrap()
    {
        let (asked, expected) = (&case["case"], &case["expected"]["output"]);
        let args = &asked["args"];
        let is_reasoned = args["reasoning"] == true;
        let is_ended = case["expected"]["phases"][0]["ended_by"] != "max_tokens";
        let is_one = (is_reasoned && is_ended) || args["spatial_refs"].is_array();
        if asked["skill"] != "query" || asked["image"].is_null() || !is_one {
            continue;
        }
        let name = format!("{}/{name}", set.display());
        let found = found(set, asked, question(args));
        let answer = expected["answer"].as_str().unwrap().trim();
        assert_eq!(
            (&*found.text, found.pieces.concat()),
            (answer, answer.into()),
            "{name}"
        );
        match is_reasoned {
            true => {
                assert_eq!(found.reasoning, expected["reasoning"], "{name}");
                let thoughts = expected["reasoning"]["text"].as_str().unwrap();
                assert_eq!(found.thoughts.concat(), thoughts.trim(), "{name}");
            }
            false => assert!(found.reasoning.is_null() && found.thoughts.is_empty()),
        }
        seen += 1;
    }
    assert!(seen > 0);
}

fn question(args: &Value) -> Task {
    let places: Option<Vec<Vec<f64>>> =
        serde_json::from_value(args["spatial_refs"].clone()).unwrap();
    let places = places.iter().flatten();
    let place = |shares: &Vec<f64>| SpatialReference::from_shares(shares).unwrap();
    Task::Query {
        question: args["question"].as_str().unwrap().into(),
        choices: Vec::new(),
        options: QueryOptions {
            places: places.map(place).collect(),
            reasoning: args["reasoning"] == true,
        },
    }
}

/// An answer, and the pieces before it.
#[derive(Default)]
struct FoundText {
    text: String,
    /// In the form of the reference; null without.
    reasoning: Value,
    thoughts: Vec<String>,
    pieces: Vec<String>,
}

fn found(set: &Path, asked: &Value, task: Task) -> FoundText {
    let model = EngineModel {
        config: config(set),
        tokenizer: Tokenizer::open(&set.join("tokenizer.json")).unwrap(),
        explains_strips: true,
    };
    let bounds = Bounds {
        max_objects: 50,
        max_tokens: asked["settings"]["max_tokens"].as_u64().unwrap_or(50) as usize,
    };
    let clock = Arc::new(ManualClock::default());
    let mut engine = Engine::new(Box::new(backend(set)), model, bounds, clock);
    let look = Look::still(picture(set, asked["image"].as_str().unwrap()), [task]).in_pieces();
    let mut whole = WholeLook::new(&look);
    let mut found = FoundText::default();
    engine.submit(look).unwrap();
    while whole.outcome.is_none() {
        for (_, news) in engine.turn().unwrap() {
            match news {
                LookNews::Piece { piece, .. } => match piece {
                    AnswerPiece::Thought(text) => {
                        assert!(found.pieces.is_empty(), "thoughts come first");
                        found.thoughts.push(text);
                    }
                    AnswerPiece::Text(text) => found.pieces.push(text),
                    other => panic!("{other:?}"),
                },
                news => whole.add(news),
            }
        }
    }
    let answer = whole.into_answers().unwrap().pop().unwrap();
    let AnswerBody::Text { text, .. } = answer.body else {
        panic!("{:?}", answer.body);
    };
    found.text = text;
    if let Some(reasoning) = answer.reasoning {
        let span = |span: &GroundedSpan| {
            let points: Vec<[f64; 2]> = span.points.iter().map(|p| [p.x, p.y]).collect();
            json!({"start_idx": span.start, "end_idx": span.end, "points": points})
        };
        let grounding: Vec<Value> = reasoning.grounding.iter().map(span).collect();
        found.reasoning = json!({"text": reasoning.text, "grounding": grounding});
    }
    found
}
