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
        let has_places = matches!(skill, ApiSkill::Query | ApiSkill::Segment);
        if !has_places && self.spatial_refs.is_some() {
            let text = "\"spatial_refs\" are for questions and outlines alone";
            return Err(ApiError::wrong(text));
        }
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

    fn parse(body: &Value) -> SkillRequest {
        SkillRequest::parse(body.to_string().as_bytes()).unwrap()
    }

    fn query(question: &str, options: QueryOptions) -> Task {
        Task::Query {
            question: question.into(),
            choices: Vec::new(),
            options,
        }
    }

    fn places(shares: &[&[f64]]) -> Vec<SpatialReference> {
        let places = shares.iter();
        let places = places.map(|shares| SpatialReference::from_shares(shares).unwrap());
        places.collect()
    }

    #[test]
    fn requests_of_station_become_tasks() {
        use ApiSkill::*;
        let caption = |length| Task::Caption { length };
        let object = "red car".to_owned();
        let words = json!({"image_url": "data:", "object": " red\n car ", "settings": {}});
        let detect = Task::Detect {
            object: object.clone(),
        };
        let point = Task::Point {
            object: object.clone(),
        };
        let of_place = json!({"object": "red car", "spatial_refs": [[0.5, 1]]});
        let segment = Task::Segment {
            object,
            places: places(&[&[0.5, 1.0]]),
        };
        let plain = json!({"question": "Dark?", "spatial_refs": [], "reasoning": false});
        let with_refs =
            json!({"question": "Dark?", "spatial_refs": [[0, 0.25, 0.5, 1], [0.5, 0.5]]});
        let options = QueryOptions {
            places: places(&[&[0.0, 0.25, 0.5, 1.0], &[0.5, 0.5]]),
            reasoning: false,
        };
        for (skill, body, expected) in [
            (Detect, words.clone(), detect),
            (Point, words, point),
            (Segment, of_place, segment),
            (Query, plain, query("Dark?", QueryOptions::default())),
            (Query, with_refs, query("Dark?", options)),
            (Caption, json!({}), caption(CaptionLength::Normal)),
            (
                Caption,
                json!({"length": "short"}),
                caption(CaptionLength::Short),
            ),
            (
                Caption,
                json!({"length": "long"}),
                caption(CaptionLength::Long),
            ),
        ] {
            assert_eq!(parse(&body).task(skill), Ok(expected), "{body}");
        }
    }

    #[test]
    fn variant_and_stream_are_read_where_they_apply() {
        let plates = Some(AdapterName::Variant("plates".into()));
        for (skill, variant, expected) in [
            (ApiSkill::Segment, "plates", (true, plates)),
            (ApiSkill::Detect, "", (false, None)),
        ] {
            let settings = json!({"variant": variant, "temperature": 0.5});
            let body = json!({"image_url": "data:", "object": "car", "stream": true, "settings": settings});
            let asked = parse(&body).question(skill).unwrap().unwrap();
            assert_eq!((asked.in_pieces, asked.adapter), expected);
        }
        let without_picture = parse(&json!({"question": "Is it dark?"}));
        assert_eq!(without_picture.question(ApiSkill::Query), Ok(None));
    }

    #[test]
    fn wrong_requests_are_refused_with_the_key() {
        let refs = |refs: Value| json!({"question": "Is it dark?", "spatial_refs": refs});
        let long = json!({"question": "x".repeat(2001)});
        for (skill, body, part) in [
            (ApiSkill::Detect, json!({}), "\"object\""),
            (ApiSkill::Query, json!({}), "\"question\""),
            (ApiSkill::Query, long, "2001 characters, limit 2000"),
            (
                ApiSkill::Caption,
                json!({"length": "huge"}),
                "\"short\", \"normal\" or \"long\"",
            ),
            (
                ApiSkill::Query,
                refs(json!([[0.5, 1.5]])),
                "\"spatial_refs\", number 1",
            ),
            (
                ApiSkill::Query,
                refs(json!([[0.5, 0.5], [0.5]])),
                "\"spatial_refs\", number 2",
            ),
            (
                ApiSkill::Query,
                refs(json!([[0.6, 0.5, 0.5, 0.9]])),
                "\"spatial_refs\", number 1",
            ),
        ] {
            let error = parse(&body).task(skill).unwrap_err();
            assert_eq!(error.status, 400);
            assert!(error.message.contains(part), "{body}: {error:?}");
        }
        for body in [b"{".as_slice(), b"[1]"] {
            let error = SkillRequest::parse(body).unwrap_err();
            assert!(error.message.contains("not the expected JSON"), "{error:?}");
        }
    }
}
