//! A few requests that are submitted again and again, so that each has an answer to compare with.

use std::sync::Arc;

use super::SoakError;
use spotter_core::{CameraId, CaptionLength, Mono, Picture, Prompt, PromptId, Task};
use spotter_engine::{
    model::{ModelConfig, Skill, Tokenizer},
    scheduler::{
        backend::{BackendLimits, DecoderInput},
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
pub const BOUNDS: Bounds = Bounds {
    max_objects: 16,
    max_tokens: 40,
};
/// Tokens of a random prompt; no prompt of words has more.
const PROMPT_TOKENS: usize = 12;
/// Most prompts of a request.
const PROMPTS: usize = 4;

/// A request without its camera and times.
#[derive(Clone)]
pub struct PoolRequest {
    picture: Option<Picture>,
    prompts: Vec<(Prompt, Sequence)>,
}

impl PoolRequest {
    /// Without a camera: no draft and no tile is reused.
    pub fn alone(&self) -> LookRequest {
        self.request(None, [Mono::from_nanos(u64::MAX); 2])
    }

    /// With a camera, and with the times by which it has to be started and answered.
    pub fn request(
        &self,
        camera: Option<&CameraId>,
        [start_by, answer_by]: [Mono; 2],
    ) -> LookRequest {
        let ask = |(prompt, sequence): &(Prompt, Sequence)| Ask {
            sequence: sequence.clone(),
            draft: camera.map(|camera| DraftKey::new(camera, prompt)),
        };
        LookRequest {
            camera: camera.cloned(),
            picture: self.picture.clone(),
            start_by,
            answer_by,
            asks: self.prompts.iter().map(ask).collect(),
            objects: false,
        }
    }
}

/// Pages that suffice for every request alone, prompt after prompt, but not for two at once.
pub fn short_of_pages(limits: &BackendLimits) -> usize {
    let pages = |positions: usize| positions.div_ceil(limits.page_tokens);
    let own = pages(2 * PROMPT_TOKENS + (3 * BOUNDS.max_objects).max(BOUNDS.max_tokens));
    let needed = 2 * (pages(limits.prefix_positions) + own);
    needed.min(limits.pages)
}

/// Draws pictures and makes prompts: words if there is a tokenizer, else random ids. Blocks for a second.
pub fn pool_requests(
    config: &ModelConfig,
    tokenizer: Option<&Tokenizer>,
) -> Result<Vec<PoolRequest>, SoakError> {
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
    tokenizer: Option<&Tokenizer>,
) -> Result<(Prompt, Sequence), SoakError> {
    let words = |text: &str| match tokenizer {
        Some(tokenizer) => tokenizer
            .encode(text)
            .map_err(|e| SoakError::Prompt(e.to_string())),
        None => Ok(noise(text.len() as u64, text.len(), config)),
    };
    let tokens = match tokenizer {
        Some(tokenizer) => {
            let prompt = config.family.prompt(&task, config, tokenizer);
            prompt.map_err(|e| SoakError::Prompt(e.to_string()))?.inputs
        }
        None => {
            let ids = noise(index as u64, PROMPT_TOKENS - index % 4, config);
            ids.into_iter().map(DecoderInput::Token).collect()
        }
    };
    let skill = match &task {
        Task::Detect { .. } => Skill::Detect,
        Task::Point { .. } => Skill::Point,
        Task::Query { .. } | Task::Caption { .. } => Skill::Text,
    };
    let mut sequence = Sequence::new(config.grammar(skill), tokens, BOUNDS);
    if let Task::Query { choices, .. } = &task {
        let texts = choices
            .iter()
            .map(|c| words(c))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(tree) = Choices::new(texts.iter().map(Vec::as_slice)) {
            sequence = sequence.choices(Arc::new(tree));
        }
    }
    let id = PromptId::new(&format!("p{index}")).map_err(|e| SoakError::Prompt(e.to_string()))?;
    Ok((
        Prompt {
            id,
            revision: 1,
            task,
        },
        sequence,
    ))
}

/// Arbitrary ids, none of which is special.
fn noise(seed: u64, count: usize, config: &ModelConfig) -> Vec<u32> {
    let above = 16;
    let span = (config.text.vocab_size as u64).saturating_sub(above).max(1);
    let id = |i: u64| (above + (seed * 7919 + i * 104_729 + 31) % span) as u32;
    (0..count as u64).map(id).collect()
}

/// One of ten pictures: five sizes, in RGB and I420.
fn picture(index: usize) -> Result<Picture, SoakError> {
    let (width, height) = SIZES[index % SIZES.len()];
    let scene = random(FIRST_SEED + index as u64);
    let (w, h) = (width as usize, height as usize);
    let picture = match index < SIZES.len() {
        true => Picture::from_rgb(w, h, draw(&scene, width, height)),
        false => i420_picture(&draw_i420(&scene, width, height), w, h),
    };
    Ok(picture?)
}
