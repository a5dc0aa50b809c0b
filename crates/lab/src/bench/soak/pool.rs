//! A few requests that are submitted again and again, so that each has an answer to compare with.

use std::sync::Arc;

use spotter_core::{CameraId, CaptionLength, Mono, Picture, Prompt, PromptId, Task};
use spotter_engine::{
    model::{ModelConfig, Tokenizer},
    scheduler::{
        constraint::Choices,
        draft::DraftKey,
        request::{Ask, LookRequest},
        sequence::{Bounds, Sequence},
    },
};
use spotter_street::{draw, draw_i420, i420_picture, random};

const REQUESTS: usize = 24;
/// Pictures; training saw none of these scenes.
const FIRST_SEED: u64 = 1 << 41;
const SIZES: [(u32, u32); 5] = [
    (640, 360),
    (1280, 720),
    (378, 378),
    (300, 402),
    (1920, 1080),
];
/// Answers long enough to need further pages, and short enough to end soon.
const BOUNDS: Bounds = Bounds {
    max_objects: 16,
    max_tokens: 40,
};
/// Most prompts of a request.
const PROMPTS: usize = 4;

/// A request without its camera and times.
#[derive(Clone)]
pub struct PoolRequest {
    picture: Option<Picture>,
    prompts: Vec<(Prompt, Sequence)>,
}

impl PoolRequest {
    /// Without a camera, no draft and no tile is reused.
    pub fn request(&self, camera: Option<&CameraId>) -> LookRequest {
        let ask = |(prompt, sequence): &(Prompt, Sequence)| Ask {
            sequence: sequence.clone(),
            draft: camera.map(|camera| DraftKey::new(camera, prompt)),
            in_pieces: false,
            has_follow_up: false,
        };
        LookRequest {
            crops: 1,
            view: Default::default(),
            camera: camera.cloned(),
            picture: self.picture.clone(),
            measured: None,
            start_by: Mono::from_nanos(u64::MAX),
            answer_by: Mono::from_nanos(u64::MAX),
            asks: self.prompts.iter().map(ask).collect(),
            adapter: None,
        }
    }
}

/// Draws pictures and makes prompts. Blocks for a second.
pub fn pool_requests(
    config: &ModelConfig,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Vec<PoolRequest>> {
    let kinds: Vec<(Prompt, Sequence)> = kinds()
        .into_iter()
        .enumerate()
        .map(|(index, task)| prompt(index, task, config, tokenizer))
        .collect::<Result<_, _>>()?;
    let request = |index: usize| {
        // One in eight has no picture; the others share pictures.
        let picture = match index % 8 {
            7 => None,
            _ => Some(picture(index % 10)?),
        };
        let prompts = kinds
            .iter()
            .cycle()
            .skip(index * 3)
            .take(1 + index % PROMPTS);
        Ok(PoolRequest {
            picture,
            prompts: prompts.cloned().collect(),
        })
    };
    (0..REQUESTS).map(request).collect()
}

fn kinds() -> Vec<Task> {
    let detect = |object: &str| Task::Detect {
        object: object.into(),
    };
    let point = |object: &str| Task::Point {
        object: object.into(),
    };
    let query = |question: &str, choices: &[&str]| Task::Query {
        question: question.into(),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        options: Default::default(),
    };
    vec![
        detect("car"),
        point("person"),
        query("Is there a dog?", &[]),
        detect("red car"),
        query("Is there a car?", &["Yes", "No"]),
        Task::Caption {
            length: CaptionLength::Short,
        },
        point("tree"),
        detect("person"),
    ]
}

fn prompt(
    index: usize,
    task: Task,
    config: &ModelConfig,
    tokenizer: &Tokenizer,
) -> anyhow::Result<(Prompt, Sequence)> {
    let prompt = config.family.prompt(&task, config, tokenizer)?;
    let mut sequence = Sequence::new(prompt.grammar, prompt.inputs, BOUNDS);
    if let Task::Query { choices, .. } = &task {
        let texts = choices.iter().map(|choice| tokenizer.encode(choice));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        if let Some(tree) = Choices::new(texts.iter().map(Vec::as_slice)) {
            sequence = sequence.choices(Arc::new(tree));
        }
    }
    let prompt = Prompt::new(PromptId::new(&format!("p{index}"))?, 1, task);
    Ok((prompt, sequence))
}

/// One of ten pictures: five sizes, in RGB and I420.
fn picture(index: usize) -> anyhow::Result<Picture> {
    let (width, height) = SIZES[index % SIZES.len()];
    let scene = random(FIRST_SEED + index as u64);
    let (w, h) = (width as usize, height as usize);
    let picture = match index < SIZES.len() {
        true => Picture::from_rgb(w, h, draw(&scene, width, height)),
        false => i420_picture(&draw_i420(&scene, width, height), w, h),
    };
    Ok(picture?)
}
