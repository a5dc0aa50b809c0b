//! The engine with a model: looks in; answers with boxes, points and texts out.
//!
//! Belongs here: prompts to tokens, findings to answers. Not here: when a step runs (the scheduler's).

use std::{collections::HashMap, sync::Arc};

use super::{
    choices,
    views::{LookView, views},
};
use crate::{
    model::{self, ModelConfig, ObjectBins, SequenceOutput, Tokenizer},
    scheduler::{
        backend::Backend,
        draft::DraftKey,
        request::{Ask, LookEvent, LookId, LookRequest, Options, PromptResult},
        sequence::{Bounds, Sequence},
        worker::{DeviceError, Worker},
    },
};
use spotter_core::{
    Answer, AnswerBody, Clock, FoundObject, Look, NormBox, NormPoint, Outcome, Prompt, ScoreSource,
    Task,
};

/// Why a look could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The prompt's text cannot be turned into tokens.
    #[error("prompt {prompt}: {reason}")]
    Prompt { prompt: String, reason: String },
    /// A step of a GPU has room for a limited number of crops of each picture.
    #[error(
        "a picture of {width} x {height} pixels is too long: it needs {crops} crops, a step has room for {limit}; \
         crop it to a shape that is less long"
    )]
    Picture {
        width: usize,
        height: usize,
        crops: usize,
        limit: usize,
    },
    /// The device cannot go on: the engine must stop.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// News of a look.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved once for each look, never kept"
)]
pub enum LookNews {
    /// A box or point of a prompt, before the answer is complete.
    Object(Arc<Prompt>, AnswerBody),
    Ended(Outcome),
}

/// What an engine needs of a model beside its weights, which are on the device.
#[derive(Clone, Debug)]
pub struct EngineModel {
    pub config: ModelConfig,
    pub tokenizer: Tokenizer,
}

/// A model on a device, answering looks.
pub struct Engine {
    worker: Worker,
    config: ModelConfig,
    tokenizer: Tokenizer,
    bounds: Bounds,
    inside: HashMap<LookId, AdmittedViews>,
    /// The look, and the index in it, of each view that the scheduler has.
    views: HashMap<LookId, (LookId, usize)>,
    looks: u64,
}

/// A look with views that have not ended.
struct AdmittedViews {
    look: Look,
    views: Vec<ViewInside>,
    /// In the order of the look's prompts.
    answers: Vec<Option<Answer>>,
}

struct ViewInside {
    id: LookId,
    seen: LookView,
}

impl Engine {
    /// Dimensions and tokenizer of the model.
    pub fn model(&self) -> (&ModelConfig, &Tokenizer) {
        (&self.config, &self.tokenizer)
    }

    /// An engine with the model that `backend` runs, whose answers end within `bounds`.
    pub fn new(
        backend: Box<dyn Backend>,
        model: EngineModel,
        bounds: Bounds,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let EngineModel { config, tokenizer } = model;
        Self {
            worker: Worker::new(backend, config.text.vocab_size, Options::default(), clock),
            config,
            tokenizer,
            bounds,
            inside: HashMap::new(),
            views: HashMap::new(),
            looks: 0,
        }
    }

    /// The loop with its counters.
    pub fn worker(&mut self) -> &mut Worker {
        &mut self.worker
    }

    /// Works by other bounds and in another way from now on, with nothing remembered: for measurements of one device in
    /// several ways. Nothing may be inside. `bounds` may not ask for more than the device was built for.
    pub fn restart(&mut self, bounds: Bounds, options: Options) {
        self.bounds = bounds;
        self.worker.restart(options);
    }

    /// Answers one look while nothing else is inside, or says that it came too late. Nothing is remembered of it and
    /// nothing remembered is used, so it costs what the first look at a picture costs. Blocks for the whole work. After a
    /// fatal error the engine must not be used again.
    pub fn look(&mut self, look: Look) -> Result<Outcome, EngineError> {
        let mut requests = self.requests(&look, false)?;
        for (_, request) in &mut requests {
            request.camera = None;
            request.asks.iter_mut().for_each(|ask| ask.draft = None);
        }
        let id = self.admit(look, requests);
        loop {
            for (ended, news) in self.turn()? {
                if let (LookNews::Ended(outcome), true) = (news, ended == id) {
                    return Ok(outcome);
                }
            }
        }
    }

    /// Takes a look; its news come from later turns. With `objects` there is news of every object as it is found. Does not block.
    pub fn submit(&mut self, look: Look, objects: bool) -> Result<LookId, EngineError> {
        let requests = self.requests(&look, objects)?;
        Ok(self.admit(look, requests))
    }

    /// One request for each view of the look.
    fn requests(
        &self,
        look: &Look,
        objects: bool,
    ) -> Result<Vec<(LookView, LookRequest)>, EngineError> {
        let vision = &self.config.vision;
        let request = |(index, seen): (usize, LookView)| {
            let picture = seen.picture(&look.frame.picture);
            let (crops, limit) = (seen.tiling.crops(), vision.max_crops + 1);
            if crops > limit {
                let (width, height) = picture.size();
                return Err(EngineError::Picture {
                    width,
                    height,
                    crops,
                    limit,
                });
            }
            let prompts = seen.prompts.iter().map(|&index| &look.prompts[index]);
            let asks = prompts.map(|prompt| self.ask(look, prompt));
            let request = LookRequest {
                camera: Some(look.frame.camera.clone()),
                picture: Some(picture),
                view: seen.view,
                // The look begins with its first view; another one that waits for the next step is not late.
                start_by: match index {
                    0 => look.start_by,
                    _ => look.answer_by,
                },
                answer_by: look.answer_by,
                asks: asks.collect::<Result<Vec<Ask>, EngineError>>()?,
                objects,
            };
            Ok((seen, request))
        };
        let size = look.frame.picture.size();
        let seen = look.prompts.iter().map(|prompt| prompt.view);
        let views = views(seen, size, look.moved, vision).into_iter();
        views.enumerate().map(request).collect()
    }

    /// Hands the views of a look to the scheduler.
    fn admit(&mut self, look: Look, requests: Vec<(LookView, LookRequest)>) -> LookId {
        let look_id = LookId(self.looks);
        self.looks += 1;
        let mut views = Vec::with_capacity(requests.len());
        for (index, (seen, request)) in requests.into_iter().enumerate() {
            let id = self.worker.admit(request);
            self.views.insert(id, (look_id, index));
            views.push(ViewInside { id, seen });
        }
        let inside = AdmittedViews {
            answers: vec![None; look.prompts.len()],
            look,
            views,
        };
        self.inside.insert(look_id, inside);
        look_id
    }

    /// Cancels the look; no news of it will come.
    pub fn cancel(&mut self, look: LookId) {
        self.remove(look);
    }

    /// The look leaves; its views that have not ended are cancelled.
    fn remove(&mut self, id: LookId) -> Option<Look> {
        let inside = self.inside.remove(&id)?;
        for view in &inside.views {
            if self.views.remove(&view.id).is_some() {
                self.worker.cancel(view.id);
            }
        }
        Some(inside.look)
    }

    /// One turn of the loop; waits for at most one step of the device. An error is fatal.
    pub fn turn(&mut self) -> Result<Vec<(LookId, LookNews)>, EngineError> {
        let events = self.worker.turn()?;
        Ok(events.into_iter().filter_map(|e| self.news(e)).collect())
    }

    /// True when no look is inside.
    pub fn is_idle(&self) -> bool {
        self.worker.is_idle()
    }

    fn ask(&self, look: &Look, prompt: &Prompt) -> Result<Ask, EngineError> {
        let family = self.config.family;
        let asked = family
            .prompt(&prompt.task, &self.config, &self.tokenizer)
            .map_err(|e| prompt_error(prompt, &e))?;
        let allowed = match &prompt.task {
            Task::Query { choices, .. } => {
                choices::allowed(choices, &self.tokenizer).map_err(|e| prompt_error(prompt, &e))?
            }
            _ => None,
        };
        let mut bounds = self.bounds;
        if let Some(allowed) = &allowed {
            // A choice ends where its text ends; the limit is for answers that may go on for ever.
            bounds.max_tokens = allowed.longest;
        }
        let mut sequence = Sequence::new(asked.grammar, asked.inputs, bounds);
        if let Some(allowed) = allowed {
            sequence = sequence.choices(Arc::new(allowed.tree));
        }
        Ok(Ask {
            sequence,
            draft: Some(DraftKey::new(&look.frame.camera, prompt)),
        })
    }

    fn news(&mut self, event: LookEvent) -> Option<(LookId, LookNews)> {
        match event {
            LookEvent::Object(view, index, object) => {
                let &(id, at) = self.views.get(&view)?;
                let AdmittedViews { look, views, .. } = self.inside.get(&id)?;
                let seen = &views[at].seen;
                let prompt = Arc::clone(look.prompts.get(*seen.prompts.get(index)?)?);
                let region = seen.region(look.frame.picture.size());
                let body = objects(&prompt.task, &[object], region)?;
                Some((id, LookNews::Object(prompt, body)))
            }
            LookEvent::Answered {
                look: view,
                findings,
                model_size,
            } => {
                let (id, at) = self.views.remove(&view)?;
                let ended = self.view_answered(id, at, findings);
                let outcome = match ended {
                    Ok(None) => return None,
                    Ok(Some((look, answers))) => Outcome::Answered {
                        frame: look.frame,
                        model_size,
                        answers,
                    },
                    Err(e) => Outcome::Failed(self.remove(id)?, e.to_string()),
                };
                Some((id, LookNews::Ended(outcome)))
            }
            // A look without one of its views has no answer.
            LookEvent::Late { look: view } => {
                let (id, _) = self.views.remove(&view)?;
                let outcome = Outcome::Late(self.remove(id)?);
                Some((id, LookNews::Ended(outcome)))
            }
            LookEvent::Failed { look: view, why } => {
                let (id, _) = self.views.remove(&view)?;
                let look = self.remove(id)?;
                let text = format!("look with {} prompts: {why}", look.prompts.len());
                Some((id, LookNews::Ended(Outcome::Failed(look, text))))
            }
        }
    }

    /// A view of a look was answered. With the last one the look leaves, with all its answers.
    fn view_answered(
        &mut self,
        id: LookId,
        at: usize,
        findings: Vec<PromptResult>,
    ) -> Result<Option<(Look, Vec<Answer>)>, EngineError> {
        let Some(mut inside) = self.inside.remove(&id) else {
            return Ok(None);
        };
        let seen = &inside.views[at].seen;
        let region = seen.region(inside.look.frame.picture.size());
        let answers = seen.prompts.iter().zip(findings).map(|(&index, finding)| {
            let answer = self.answer(&inside.look.prompts[index], region, finding);
            answer.map(|answer| (index, answer))
        });
        match answers.collect::<Result<Vec<_>, EngineError>>() {
            Ok(answers) => {
                for (index, answer) in answers {
                    inside.answers[index] = Some(answer);
                }
            }
            Err(error) => {
                self.inside.insert(id, inside);
                return Err(error);
            }
        }
        if inside.answers.iter().all(Option::is_some) {
            let answers = inside.answers.into_iter().flatten().collect();
            return Ok(Some((inside.look, answers)));
        }
        self.inside.insert(id, inside);
        Ok(None)
    }

    fn answer(
        &self,
        prompt: &Arc<Prompt>,
        region: Option<NormBox>,
        finding: PromptResult,
    ) -> Result<Answer, EngineError> {
        let PromptResult { found, marks } = finding;
        let body = match objects(&prompt.task, &found.objects, region) {
            Some(body) => body,
            None => self.text(prompt, &found)?,
        };
        Ok(Answer {
            prompt: Arc::clone(prompt),
            region,
            body,
            truncated: found.truncated,
            marks,
        })
    }

    fn text(&self, prompt: &Prompt, found: &SequenceOutput) -> Result<AnswerBody, EngineError> {
        let text = self.tokenizer.decode(&found.tokens);
        Ok(AnswerBody::Text {
            text: text
                .map_err(|e| prompt_error(prompt, &e))?
                .trim()
                .to_owned(),
            // The end is a decision too, so the shortest answer has one.
            score: (found.log_probability / (found.tokens.len() + 1) as f64).exp(),
        })
    }
}

fn prompt_error(prompt: &Prompt, reason: &dyn std::error::Error) -> EngineError {
    EngineError::Prompt {
        prompt: prompt.id.to_string(),
        reason: reason.to_string(),
    }
}

/// Objects as places in the whole picture, of which the model saw `region`; `None` for tasks whose answer is a text.
fn objects(task: &Task, objects: &[ObjectBins], region: Option<NormBox>) -> Option<AnswerBody> {
    let objects = objects.iter();
    let whole_box = |inner: NormBox| region.map_or(inner, |region| region.box_in_picture(&inner));
    let whole_point =
        |inner: NormPoint| region.map_or(inner, |region| region.point_in_picture(inner));
    match task {
        Task::Detect { .. } => {
            let boxes =
                objects.filter_map(|object| Some(scored(whole_box(place(object)?), object)));
            Some(AnswerBody::Boxes(boxes.collect()))
        }
        Task::Point { .. } => {
            let point = |o: &ObjectBins| {
                let [x, y] = [o.x_bin, o.y_bin].map(model::coord_from_bin);
                scored(whole_point(NormPoint::new(x, y)), o)
            };
            Some(AnswerBody::Points(objects.map(point).collect()))
        }
        Task::Query { .. } | Task::Caption { .. } => None,
    }
}

/// The box in the picture that the model saw, clamped to it.
fn place(object: &ObjectBins) -> Option<NormBox> {
    let (width, height) = object.size_bins?;
    let [x, y] = [object.x_bin, object.y_bin].map(model::coord_from_bin);
    let [width, height] = [width, height].map(model::size_from_bin);
    Some(NormBox::from_centre(x, y, width, height))
}

fn scored<T>(place: T, object: &ObjectBins) -> FoundObject<T> {
    FoundObject {
        place,
        score: f64::from(object.probability),
        source: ScoreSource::TokenProb,
        sharpness: f64::from(object.sharpness),
    }
}
