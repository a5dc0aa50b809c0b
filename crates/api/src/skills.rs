//! The skills in the shape of Moondream Station: `/v1/caption`, `/v1/query`, `/v1/detect`, `/v1/point`, and `/v1/segment` in that of
//! Moondream's cloud. Pure.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    error::ApiError,
    events::{ReplyShape, event},
};
use spotter_core::{
    Answer, AnswerBody, AnswerPiece, CaptionLength, GroundedSpan, NormBox, NormPoint, Outline,
    QueryOptions, Reasoning, SpatialReference, Task,
};

/// The longest question or object, in characters: what fits beside a picture in the model's context.
const WORDS_MAX_CHARS: usize = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApiSkill {
    Caption,
    Query,
    Detect,
    Point,
    Segment,
}

/// What a request asks.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiQuestion {
    pub image_url: String,
    pub task: Task,
    pub in_pieces: bool,
    pub adapter: Option<AdapterName>,
}

/// How a request names its adapter.
#[derive(Debug, PartialEq, Eq)]
pub enum AdapterName {
    /// In place of an adapter, it may name the model.
    Model(String),
    Variant(String),
}

/// The body of a request. Other keys of Station's are ignored.
#[derive(Debug, Default, Deserialize)]
pub struct SkillRequest {
    image_url: Option<String>,
    question: Option<String>,
    object: Option<String>,
    length: Option<String>,
    /// Points and boxes that a question is about, in shares of the picture.
    spatial_refs: Option<Vec<Vec<f64>>>,
    /// The model writes down its thoughts before it answers a question; without the key it does not.
    reasoning: Option<bool>,
    /// The answer is sent as events. Boxes and points never are.
    stream: Option<bool>,
    settings: Option<SkillSettings>,
}

/// Other settings (`temperature`, `max_tokens`) are ignored.
#[derive(Debug, Default, Deserialize)]
struct SkillSettings {
    variant: Option<String>,
}

impl SkillRequest {
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        serde_json::from_slice(body).map_err(|error| not_json(&error))
    }

    /// What is asked; `None` without a picture.
    pub fn question(self, skill: ApiSkill) -> Result<Option<ApiQuestion>, ApiError> {
        let task = self.task(skill)?;
        let in_pieces = matches!(
            skill,
            ApiSkill::Caption | ApiSkill::Query | ApiSkill::Segment
        );
        let variant = self.settings.and_then(|settings| settings.variant);
        let variant = variant.filter(|name| !name.is_empty());
        Ok(self.image_url.map(|image_url| ApiQuestion {
            image_url,
            task,
            in_pieces: in_pieces && self.stream == Some(true),
            adapter: variant.map(AdapterName::Variant),
        }))
    }

    fn task(&self, skill: ApiSkill) -> Result<Task, ApiError> {
        let object = || words("object", self.object.as_deref());
        Ok(match skill {
            ApiSkill::Detect => Task::Detect { object: object()? },
            ApiSkill::Point => Task::Point { object: object()? },
            ApiSkill::Segment => Task::Segment {
                object: object()?,
                places: self.places()?,
            },
            ApiSkill::Query => Task::Query {
                question: words("question", self.question.as_deref())?,
                choices: Vec::new(),
                options: QueryOptions {
                    places: self.places()?,
                    reasoning: self.reasoning == Some(true),
                },
            },
            ApiSkill::Caption => Task::Caption {
                length: self.length()?,
            },
        })
    }

    fn places(&self) -> Result<Vec<SpatialReference>, ApiError> {
        let places = self.spatial_refs.iter().flatten().enumerate();
        let place = |(index, shares): (usize, &Vec<f64>)| {
            let place = SpatialReference::from_shares(shares);
            place.map_err(|why| {
                ApiError::wrong(format!("\"spatial_refs\", number {}: {why}", index + 1))
            })
        };
        places.map(place).collect()
    }

    fn length(&self) -> Result<CaptionLength, ApiError> {
        let length = self.length.as_deref().map(str::parse).transpose();
        let wrong = |_| ApiError::wrong("\"length\" must be \"short\", \"normal\" or \"long\"");
        Ok(length.map_err(wrong)?.unwrap_or_default())
    }
}

pub fn not_json(error: &serde_json::Error) -> ApiError {
    ApiError::wrong(format!("the body is not the expected JSON: {error}"))
}

/// Words for the model, on one line.
pub fn words(key: &str, text: Option<&str>) -> Result<String, ApiError> {
    let text = text.unwrap_or_default().split_whitespace();
    let text = text.collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        return Err(ApiError::wrong(format!(
            "\"{key}\" is missing or empty; describe it in plain words"
        )));
    }
    let count = text.chars().count();
    if count > WORDS_MAX_CHARS {
        return Err(ApiError::wrong(format!(
            "\"{key}\" has {count} characters, limit {WORDS_MAX_CHARS}"
        )));
    }
    Ok(text)
}

/// The text of an answer; empty for boxes and points.
pub fn text(answer: &Answer) -> &str {
    match &answer.body {
        AnswerBody::Text { text, .. } => text,
        AnswerBody::Boxes(_) | AnswerBody::Points(_) | AnswerBody::Outline(_) => "",
    }
}

/// Thoughts with the points that their parts are about, in shares of the picture.
pub fn reasoning_json(reasoning: &Reasoning) -> Value {
    let span = |span: &GroundedSpan| {
        let points: Vec<[f64; 2]> = span.points.iter().map(|p| [p.x, p.y]).collect();
        json!({"start_idx": span.start, "end_idx": span.end, "points": points})
    };
    let grounding: Vec<Value> = reasoning.grounding.iter().map(span).collect();
    json!({"text": reasoning.text, "grounding": grounding})
}

fn box_json(place: &NormBox) -> Value {
    json!({"x_min": place.x0, "y_min": place.y0, "x_max": place.x1, "y_max": place.y1})
}

/// An outline as Moondream's cloud has it, and its polygons and score.
pub fn outline_json(outline: &Outline) -> Value {
    let bounds = outline.bounds.as_ref().map(box_json);
    let ring = |ring: &Vec<NormPoint>| ring.iter().map(|p| json!([p.x, p.y])).collect();
    let polygons: Vec<Value> = outline.polygons.iter().map(ring).collect();
    let mut body = json!({
        "path": outline.path, "bbox": bounds, "polygons": polygons, "score": outline.score,
    });
    if let Some(error) = &outline.parse_error {
        body["parse_error"] = json!(error);
    }
    body
}

/// Answers and events of a text as Station has them, of an outline as Moondream's cloud does. Places are shares of the picture.
pub struct SkillReply {
    pub skill: ApiSkill,
    pub request_id: String,
}

impl ReplyShape for SkillReply {
    fn whole(&self, answer: &Answer) -> Value {
        let mut body = match &answer.body {
            AnswerBody::Boxes(found) => {
                let boxes = found.iter().map(|object| box_json(&object.place));
                json!({"objects": boxes.collect::<Vec<_>>()})
            }
            AnswerBody::Points(found) => {
                let points = found.iter().map(|point| point.place);
                let points = points.map(|place| json!({"x": place.x, "y": place.y}));
                json!({"points": points.collect::<Vec<_>>()})
            }
            AnswerBody::Text { text, .. } => match self.skill {
                ApiSkill::Caption => json!({"caption": text}),
                _ => json!({"answer": text}),
            },
            AnswerBody::Outline(outline) => outline_json(outline),
        };
        body["request_id"] = json!(self.request_id);
        if let Some(reasoning) = &answer.reasoning {
            body["reasoning"] = reasoning_json(reasoning);
        }
        body
    }

    fn piece(&self, piece: &AnswerPiece) -> String {
        match piece {
            AnswerPiece::Text(text) => event(&json!({"chunk": text})),
            // Not beside the chunks of the answer, where clients take it for a part of that.
            AnswerPiece::Thought(text) => event(&json!({"reasoning": {"chunk": text}})),
            AnswerPiece::Bounds(bounds) => {
                event(&json!({"type": "bbox", "bbox": box_json(bounds)}))
            }
            AnswerPiece::Path(path) => {
                event(&json!({"type": "path_delta", "chunk": path, "completed": false}))
            }
            AnswerPiece::Box(_) | AnswerPiece::Point(_) => String::new(),
        }
    }

    fn end(&self, answer: &Answer) -> String {
        let mut end = json!({});
        if let AnswerBody::Outline(outline) = &answer.body {
            end = outline_json(outline);
            end["type"] = json!("final");
        }
        end["completed"] = json!(true);
        if let Some(reasoning) = &answer.reasoning {
            end["reasoning"] = reasoning_json(reasoning);
        }
        event(&end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: Value) -> SkillRequest {
        SkillRequest::parse(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn requests_of_station_become_tasks() {
        let detect = parse(json!({"image_url": "data:", "object": " red\n car ", "settings": {}}));
        let object = || "red car".to_owned();
        assert_eq!(
            detect.task(ApiSkill::Detect),
            Ok(Task::Detect { object: object() })
        );
        assert_eq!(
            detect.task(ApiSkill::Point),
            Ok(Task::Point { object: object() })
        );
        let query = parse(json!({"question": "Is it dark?", "stream": true, "reasoning": false}));
        let question = Task::Query {
            question: "Is it dark?".into(),
            choices: Vec::new(),
            options: Default::default(),
        };
        assert_eq!(query.task(ApiSkill::Query), Ok(question));
        let asked = |skill: ApiSkill, variant: &str| {
            let settings = json!({"variant": variant, "temperature": 0.5});
            let body = json!({"image_url": "data:", "object": "car", "stream": true, "settings": settings});
            let asked = parse(body).question(skill).unwrap().unwrap();
            (asked.in_pieces, asked.adapter)
        };
        let plates = Some(AdapterName::Variant("plates".into()));
        assert_eq!(asked(ApiSkill::Segment, "plates"), (true, plates));
        assert_eq!(asked(ApiSkill::Detect, ""), (false, None));
        assert_eq!(
            query.question(ApiSkill::Query),
            Ok(None),
            "without a picture"
        );
        for (length, wanted) in [
            (json!(null), CaptionLength::Normal),
            (json!("short"), CaptionLength::Short),
            (json!("long"), CaptionLength::Long),
        ] {
            let caption = parse(json!({"length": length})).task(ApiSkill::Caption);
            assert_eq!(caption, Ok(Task::Caption { length: wanted }));
        }
    }

    #[test]
    fn question_is_about_points_and_boxes_in_the_picture() {
        let query = |refs: Value| {
            let body = json!({"question": "Is it dark?", "spatial_refs": refs});
            parse(body).task(ApiSkill::Query)
        };
        let places = |shares: &[&[f64]]| {
            let places = shares
                .iter()
                .map(|shares| SpatialReference::from_shares(shares));
            places.collect::<Result<Vec<_>, _>>().unwrap()
        };
        for (refs, wanted) in [
            (json!(null), places(&[])),
            (json!([]), places(&[])),
            (json!([[0.5, 1]]), places(&[&[0.5, 1.0]])),
            (
                json!([[0, 0.25, 0.5, 1], [0.5, 0.5]]),
                places(&[&[0.0, 0.25, 0.5, 1.0], &[0.5, 0.5]]),
            ),
        ] {
            let Ok(Task::Query { options, .. }) = query(refs.clone()) else {
                panic!("{refs}");
            };
            assert_eq!(options.places, wanted, "{refs}");
        }
        for refs in [
            json!([[0.5, 1.5]]),
            json!([[0.5, 0.5], [0.5]]),
            json!([[0.5, 0.5, 0.5, 0.9]]),
            json!([[0.6, 0.5, 0.5, 0.9]]),
            json!([[]]),
        ] {
            let error = query(refs.clone()).unwrap_err();
            assert_eq!(error.status, 400);
            assert!(
                error.message.starts_with("\"spatial_refs\", number"),
                "{error:?}"
            );
        }
        let segment = parse(json!({"object": "car", "spatial_refs": [[0.5, 0.5]], "stream": true}));
        let places = vec![SpatialReference::from_shares(&[0.5, 0.5]).unwrap()];
        let object = "car".into();
        let outline = Task::Segment { object, places };
        assert_eq!(segment.task(ApiSkill::Segment), Ok(outline));
    }

    #[test]
    fn incomplete_requests_are_refused_with_the_key() {
        let empty = parse(json!({}));
        for (error, part) in [
            (empty.task(ApiSkill::Detect).unwrap_err(), "\"object\""),
            (empty.task(ApiSkill::Query).unwrap_err(), "\"question\""),
            (
                parse(json!({"length": "huge"}))
                    .task(ApiSkill::Caption)
                    .unwrap_err(),
                "\"short\", \"normal\" or \"long\"",
            ),
            (
                parse(json!({"question": "x".repeat(2001)}))
                    .task(ApiSkill::Query)
                    .unwrap_err(),
                "2001 characters, limit 2000",
            ),
            (
                SkillRequest::parse(b"{").unwrap_err(),
                "not the expected JSON",
            ),
            (
                SkillRequest::parse(b"[1]").unwrap_err(),
                "not the expected JSON",
            ),
        ] {
            assert_eq!(error.status, 400);
            assert!(error.message.contains(part), "{error:?}");
        }
    }
}
