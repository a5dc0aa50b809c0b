//! Requests to the scheduler of a look: prompts to tokens, pictures to what they are compared by.
//!
//! Looks become requests on the threads of their callers: a picture takes about half a millisecond, and while the engine's thread
//! did it, no step could be planned.

use std::{borrow::Cow, sync::Arc};

use super::{
    adapters::{BrokenAdapter, EngineAdapters},
    choices,
    error::{EngineError, prompt_error},
    views::{LookView, SeenSizes, fitted, views},
};
use crate::{
    model::{DrawnOutline, ModelConfig, SequenceOutput, Tokenizer, TokenizerError},
    scheduler::{
        backend::AdapterNumber,
        draft::DraftKey,
        request::{Ask, LookRequest, MeasuredView},
        sequence::{Bounds, Sequence},
        still::{PictureMeasure, ReuseRule, ViewKey},
    },
};
use spotter_config::AdapterConfig;
use spotter_core::{CameraId, Look, NormBox, Picture, Prompt, PromptRegion, PromptView, Task};

/// What an engine needs of a model beside its weights, which are on the device.
#[derive(Clone, Debug)]
pub struct EngineModel {
    pub config: ModelConfig,
    pub tokenizer: Tokenizer,
    /// A question about a strip begins with how the strip is read. Not for a model that understands its few forms of questions alone.
    pub explains_strips: bool,
}

impl EngineModel {
    /// What tokens of an outline draw.
    pub fn outline(&self, found: &SequenceOutput) -> Result<DrawnOutline, TokenizerError> {
        self.config.family.outline(found, &self.tokenizer)
    }
}

/// Tokens of thoughts.
const THOUGHTS_MAX_TOKENS: usize = 512;
/// Tokens of an outline.
const OUTLINE_MAX_TOKENS: usize = 768;
/// Tokens of an object and of the end of an answer.
const OBJECT_TOKENS: usize = 4;

/// What requests are made of, beside the look. Only the adapters change.
#[derive(Clone, Debug)]
pub struct RequestMaker {
    pub model: EngineModel,
    pub bounds: Bounds,
    /// `None`: pictures are not compared.
    pub reuse: Option<ReuseRule>,
    /// Pixels of the largest picture that the device accepts.
    pub picture_pixels: usize,
    pub adapters: Arc<EngineAdapters>,
}

/// What becomes of the views of a look.
pub struct ViewRequests {
    /// At least one, in the order of the look's prompts.
    pub fit: Vec<(LookView, LookRequest)>,
    /// Why other views have no request, the first of them.
    pub unfit: Option<EngineError>,
}

impl RequestMaker {
    /// As [`EngineAdapters::set`].
    pub fn set_adapters(&self, wanted: &[AdapterConfig]) -> Vec<BrokenAdapter> {
        self.adapters.set(wanted, &self.model.config)
    }

    /// One request for each view of the look; an error when none of them can have one. Scales down pictures that are too large for the
    /// device, and measures the pictures, on the calling thread.
    pub fn requests(&self, look: &Look) -> Result<ViewRequests, EngineError> {
        let (mut fit, mut unfit) = (Vec::new(), None);
        for seen in self.views(look) {
            match self.request(look, &seen) {
                Ok(request) => fit.push((seen, request)),
                Err(error) => unfit = unfit.or(Some(error)),
            }
        }
        // The look begins with its first view; another one that waits for the next step is not late.
        for (_, request) in fit.iter_mut().skip(1) {
            request.start_by = look.answer_by;
        }
        match unfit {
            Some(error) if fit.is_empty() => Err(error),
            unfit => Ok(ViewRequests { fit, unfit }),
        }
    }

    fn views(&self, look: &Look) -> Vec<LookView> {
        let prompts = look.prompts.iter();
        let seen = prompts.map(|prompt| (prompt.view, prompt.adapter.clone()));
        let sizes = SeenSizes {
            frame: look.frame.picture.size(),
            moved: look.moved,
            pixels_max: self.picture_pixels,
            strip: |view: &PromptView, _| Some(look.strip_of(view)?.picture.size()),
        };
        views(seen, &sizes, &self.model.config.vision)
    }

    fn request(&self, look: &Look, seen: &LookView) -> Result<LookRequest, EngineError> {
        let picture = seen
            .picture(look)
            .ok_or_else(|| missing_strip(look, seen))?;
        let picture = fitted(picture, self.picture_pixels);
        let limit = self.model.config.vision.max_crops + 1;
        let crops = seen.tiling.crops();
        if crops > limit {
            let (width, height) = picture.size();
            return Err(EngineError::Picture {
                width,
                height,
                crops,
                limit,
            });
        }
        let adapter = seen.adapter.as_ref();
        let adapter = adapter.map(|id| self.adapters.get(id));
        let adapter = adapter.transpose()?;
        let number = adapter.as_ref().map(|adapter| adapter.number);
        let prompts = seen.prompts.iter().map(|&index| &look.prompts[index]);
        let region = seen.region(look.frame.picture.size());
        let asks = prompts.map(|prompt| self.ask(look, prompt, region, number));
        Ok(LookRequest {
            camera: camera_of(look).cloned(),
            measured: self.measured(look, seen, &picture),
            picture: Some(picture),
            crops,
            view: seen.view,
            start_by: look.start_by,
            answer_by: look.answer_by,
            asks: asks.collect::<Result<Vec<Ask>, EngineError>>()?,
            adapter,
        })
    }

    /// What the view's picture is compared by. One that is only on a GPU is not compared: the thread would wait for its copy. Nor
    /// is a part in which something moves: the next one is elsewhere.
    fn measured(&self, look: &Look, seen: &LookView, picture: &Picture) -> Option<MeasuredView> {
        let rule = self.reuse.filter(|_| picture.is_on_host())?;
        let camera = camera_of(look)?;
        if seen.part.is_some() && seen.view.region == PromptRegion::Motion {
            return None;
        }
        let vision = &self.model.config.vision;
        Some(MeasuredView {
            view: ViewKey {
                camera: camera.clone(),
                part: seen.part,
                tiling: seen.tiling,
                strip: seen.view.strip,
            },
            measure: PictureMeasure::of(picture, seen.tiling, vision, rule.detail),
        })
    }

    fn ask(
        &self,
        look: &Look,
        prompt: &Prompt,
        region: Option<NormBox>,
        adapter: Option<AdapterNumber>,
    ) -> Result<Ask, EngineError> {
        let key = |camera| DraftKey::new(camera, prompt).with_adapter(adapter);
        Ok(Ask {
            sequence: sequence(&self.model, prompt, region, self.bounds)?,
            draft: camera_of(look).map(key),
            in_pieces: prompt.in_pieces,
            has_follow_up: prompt.outlines_max > 0,
        })
    }

    /// A prompt that follows an answer. It is asked once, so nothing of it is remembered, and it is not in pieces.
    pub fn follow_up(&self, prompt: &Prompt, region: Option<NormBox>) -> Result<Ask, EngineError> {
        Ok(Ask {
            sequence: sequence(&self.model, prompt, region, self.bounds)?,
            draft: None,
            in_pieces: false,
            has_follow_up: false,
        })
    }
}

/// The prompt in tokens of a model that sees `region` of the picture, or all of it. An error when the model cannot read it, or has no room
/// for it.
pub(crate) fn sequence(
    model: &EngineModel,
    prompt: &Prompt,
    region: Option<NormBox>,
    mut bounds: Bounds,
) -> Result<Sequence, EngineError> {
    let EngineModel {
        config,
        tokenizer,
        explains_strips,
    } = model;
    let task = match explains_strips {
        true => explained(prompt),
        false => Cow::Borrowed(&prompt.task),
    };
    let task = match region {
        Some(region) if !task.places().is_empty() => {
            Cow::Owned(task.into_owned().about_part(&region))
        }
        _ => task,
    };
    let asked = (config.family)
        .prompt(&task, config, tokenizer)
        .map_err(|e| prompt_error(prompt, &e))?;
    let allowed = match &prompt.task {
        Task::Query { choices, .. } => {
            choices::allowed(choices, tokenizer).map_err(|e| prompt_error(prompt, &e))?
        }
        _ => None,
    };
    if let Some(allowed) = &allowed {
        // A choice ends where its text ends; the limit is for answers that may go on for ever.
        bounds.max_tokens = allowed.longest;
    }
    let room = config.answer_room(&asked);
    let answer_tokens = match &prompt.task {
        Task::Query { .. } | Task::Caption { .. } => bounds.max_tokens,
        Task::Detect { .. } | Task::Point { .. } | Task::Segment { .. } => OBJECT_TOKENS,
    };
    config
        .check_room(&asked, answer_tokens)
        .map_err(|e| prompt_error(prompt, &e))?;
    if let Task::Segment { .. } = &prompt.task {
        bounds.max_tokens = OUTLINE_MAX_TOKENS.min(room);
    }
    // Thoughts get what their answer leaves.
    let thoughts = THOUGHTS_MAX_TOKENS.min(room.saturating_sub(bounds.max_tokens));
    let sequence = Sequence::new(asked.grammar, asked.inputs, bounds).thoughts_within(thoughts);
    Ok(match allowed {
        Some(allowed) => sequence.choices(Arc::new(allowed.tree)),
        None => sequence,
    })
}

/// The task in the words that the model reads: a question about a strip begins with how the strip is read.
fn explained(prompt: &Prompt) -> Cow<'_, Task> {
    match (prompt.view.strip, &prompt.task) {
        (
            Some(strip),
            Task::Query {
                question,
                choices,
                options,
            },
        ) => Cow::Owned(Task::Query {
            question: format!("{} {question}", strip.explanation()),
            choices: choices.clone(),
            options: options.clone(),
        }),
        (_, task) => Cow::Borrowed(task),
    }
}

fn missing_strip(look: &Look, seen: &LookView) -> EngineError {
    let first = seen.prompts.first().map(|&index| &look.prompts[index]);
    EngineError::Prompt {
        prompt: first
            .map(|prompt| prompt.id.to_string())
            .unwrap_or_default(),
        reason: "its look has no strip".into(),
    }
}

/// `None`: nothing is remembered of the look.
fn camera_of(look: &Look) -> Option<&CameraId> {
    let camera = &look.frame.camera;
    (!camera.is_of_still()).then_some(camera)
}
