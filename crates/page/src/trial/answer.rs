//! The JSON of an answer to an ask. Pure.

use serde_json::{Value, json};

use crate::status::PromptCost;
use spotter_core::{
    Answer, AnswerBody, FoundObject, NormBox, NormPoint, Outline, RegionBox, SpatialReference,
    Task, rounded,
};

/// What the ask costs as a prompt.
pub struct AnswerCost {
    pub cost: PromptCost,
    /// It would be asked again and again, at a camera's rate.
    pub has_rate: bool,
}

/// Objects with the highest score first; places are shares of the picture. `outlines`: answers to the questions for outlines of its objects.
pub fn answer_json(answer: &Answer, outlines: &[Answer], cost: Option<AnswerCost>) -> Value {
    let mut json = match &answer.body {
        AnswerBody::Boxes(found) => {
            json!({"objects": objects(found, |place| box_json(place, outlines))})
        }
        AnswerBody::Points(found) => {
            json!({"objects": objects(found, |place| json!({"point": place.rounded()}))})
        }
        AnswerBody::Text { text, score, .. } => {
            json!({"text": text, "score": rounded(*score, 3)})
        }
        AnswerBody::Outline(outline) => {
            let bounds = outline.bounds.as_ref().map(NormBox::rounded);
            json!({"objects": [{"box": bounds, "polygons": polygons(outline), "score": rounded(outline.score, 3)}]})
        }
    };
    let marks = answer.marks;
    let last = outlines.iter().map(|outline| outline.marks.generated);
    let end = last.fold(marks.generated, Ord::max);
    json["ms"] = rounded(end.since(marks.taken).as_secs_f64() * 1e3, 1).into();
    json["truncated"] = answer.truncated.into();
    if let Some(AnswerCost { cost, has_rate }) = cost {
        json["crops"] = cost.crops.into();
        json["pixels"] = json!(cost.pixels);
        json["tflop"] = rounded(cost.tflop, 4).into();
        let share = cost.share.filter(|_| has_rate);
        json["share"] = json!(share.map(|share| rounded(share, 4)));
    }
    json
}

fn objects<T>(found: &[FoundObject<T>], place: impl Fn(&T) -> Value) -> Vec<Value> {
    let mut sorted: Vec<&FoundObject<T>> = found.iter().collect();
    sorted.sort_by(|a, b| b.score.total_cmp(&a.score));
    let objects = sorted.iter().map(|object| {
        let mut json = place(&object.place);
        json["score"] = rounded(object.score, 3).into();
        json
    });
    objects.collect()
}

fn box_json(bounds: &NormBox, outlines: &[Answer]) -> Value {
    let mut json = json!({"box": bounds.rounded()});
    let drawn = outlines
        .iter()
        .find_map(|answer| outline_of(answer, bounds));
    if let Some(outline) = drawn {
        json["polygons"] = polygons(outline);
    }
    json
}

/// The outline of the object in this box, if the answer is to the question for it.
fn outline_of<'a>(answer: &'a Answer, bounds: &NormBox) -> Option<&'a Outline> {
    let Task::Segment { places, .. } = &answer.prompt.task else {
        return None;
    };
    let its = SpatialReference::Box(RegionBox::new(*bounds));
    match &answer.body {
        AnswerBody::Outline(outline) if places.contains(&its) => Some(outline),
        _ => None,
    }
}

fn polygons(outline: &Outline) -> Value {
    let ring = |ring: &Vec<NormPoint>| -> Vec<[f64; 2]> {
        ring.iter().map(|point| point.rounded()).collect()
    };
    json!(outline.polygons.iter().map(ring).collect::<Vec<_>>())
}
