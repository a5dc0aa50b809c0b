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
    AnswerBody, AnswerPiece, GroundedSpan, Location, Look, LookNews, ManualClock, NormBox,
    NormPoint, Picture, PromptRegion, QueryOptions, RegionBox, SpatialReference, Task, WholeLook,
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
        let found = found(
            set,
            asked,
            Look::still(seen_picture(set, asked), [question(args)]),
        );
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
        // A half begins at an even column.
        if seen_picture(set, asked).width().is_multiple_of(2) {
            assert_eq!(found_in_half(set, asked), found, "{name}");
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
#[derive(Debug, Default, PartialEq)]
struct FoundText {
    text: String,
    /// In the form of the reference; null without.
    reasoning: Value,
    thoughts: Vec<String>,
    pieces: Vec<String>,
}

fn seen_picture(set: &Path, asked: &Value) -> Picture {
    picture(set, asked["image"].as_str().unwrap())
}

/// The right half of a picture.
const HALF: NormBox = NormBox {
    x0: 0.5,
    y0: 0.0,
    x1: 1.0,
    y1: 1.0,
};

/// The same question about a picture that is half of a larger one, with its places in shares of that one. Places in the answer are in shares
/// of the half again.
fn found_in_half(set: &Path, asked: &Value) -> FoundText {
    let half = seen_picture(set, asked);
    let (width, height) = half.size();
    let rows = (0..height).flat_map(|y| [vec![90; 3 * width], half.row(0, y).to_vec()]);
    let whole = Picture::from_rgb(2 * width, height, rows.flatten().collect()).unwrap();
    let mut task = question(&asked["args"]);
    if let Task::Query { options, .. } = &mut task {
        for place in &mut options.places {
            let shares = match place.location() {
                Location::Point(point) => {
                    let NormPoint { x, y } = HALF.point_in_picture(point);
                    vec![x, y]
                }
                Location::Box(area) => {
                    let NormBox { x0, y0, x1, y1 } = HALF.box_in_picture(&area);
                    vec![x0, y0, x1, y1]
                }
            };
            *place = SpatialReference::from_shares(&shares).unwrap();
        }
    }
    let mut look = Look::still(whole, [task]);
    Arc::make_mut(&mut look.prompts[0]).view.region = PromptRegion::Fixed(RegionBox::new(HALF));
    let mut found = found(set, asked, look);
    let grounding = found.reasoning.pointer_mut("/grounding");
    let spans = grounding.and_then(Value::as_array_mut);
    for span in spans.into_iter().flatten() {
        for point in span["points"].as_array_mut().unwrap() {
            let place = point[0].as_f64().unwrap();
            assert!(place >= 0.5, "in the half");
            point[0] = (2.0 * place - 1.0).into();
        }
    }
    found
}

fn found(set: &Path, asked: &Value, look: Look) -> FoundText {
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
    let look = look.in_pieces();
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
