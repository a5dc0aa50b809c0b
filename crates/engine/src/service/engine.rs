//! The engine with a model: looks in; answers with boxes, points and texts out.
//!
//! Belongs here: findings to answers. Not here: looks to requests (`requests`), when a step runs (the scheduler's).

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::Arc,
};

use super::{
    adapters::{BrokenAdapter, EngineAdapters},
    error::{EngineError, prompt_error},
    inbox::{AskedFollowUp, FollowUpSender},
    open_look::OpenLook,
    open_views::{OpenViews, ViewEnd, ViewsNews},
    outlines::{self, WrittenOutline},
    requests::{EngineModel, RequestMaker, ViewRequests},
    views::LookView,
    written_text::WrittenText,
};
use crate::{
    model::{self, ModelConfig, ObjectBins, OutputPiece, SequenceOutput, Tokenizer},
    scheduler::{
        backend::Backend,
        request::{LookEvent, LookFault, LookId, Options, PromptResult, UnfitPrompt},
        sequence::Bounds,
        worker::{DeviceError, Worker},
    },
};
use spotter_config::AdapterConfig;
use spotter_core::{
    Answer, AnswerBody, AnswerPiece, Clock, FollowUp, FoundObject, Frame, Look, LookFailure,
    LookNews, NormBox, NormPoint, Outcome, Prompt, Reasoning, ScoreMap, ScoreMaps, ScoreSource,
    ScoredKind, Task, WholeLook,
};

/// A model on a device, answering looks.
pub struct Engine {
    worker: Worker,
    maker: Arc<RequestMaker>,
    inside: HashMap<LookId, AdmittedViews>,
    /// The look of each view that has not ended; the scheduler knows views alone.
    look_of_view: HashMap<LookId, LookId>,
    looks: u64,
    score_maps: ScoreMaps,
    /// `None`: no prompt can follow an answer.
    follow_ups: Option<FollowUpSender>,
}

/// A look that has not ended.
struct AdmittedViews {
    look: OpenLook,
    views: OpenViews,
    /// Of answers in pieces, by the prompt's index in the look.
    written: BTreeMap<usize, WrittenAnswer>,
}

#[derive(Default)]
struct WrittenAnswer {
    thoughts: WrittenText,
    text: WrittenText,
    outline: WrittenOutline,
}

impl Engine {
    /// Dimensions and tokenizer of the model.
    pub fn model(&self) -> (&ModelConfig, &Tokenizer) {
        (&self.maker.model.config, &self.maker.model.tokenizer)
    }

    /// Makes requests of looks for [`Self::admit`], until [`Self::restart`].
    pub(super) fn request_maker(&self) -> Arc<RequestMaker> {
        Arc::clone(&self.maker)
    }

    /// An engine with the model that `backend` runs, whose answers end within `bounds`.
    pub fn new(
        backend: Box<dyn Backend>,
        model: EngineModel,
        bounds: Bounds,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let vocabulary = model.config.text.vocab_size;
        let worker = Worker::new(backend, vocabulary, Options::default(), clock);
        let maker = RequestMaker {
            model,
            bounds,
            reuse: None,
            picture_pixels: worker.limits().picture_pixels,
            adapters: Arc::new(EngineAdapters::none(worker.limits().adapters)),
        };
        Self {
            worker,
            maker: Arc::new(maker),
            inside: HashMap::new(),
            look_of_view: HashMap::new(),
            looks: 0,
            score_maps: ScoreMaps::default(),
            follow_ups: None,
        }
    }

    /// Looks have these adapters from now on. Returns those that cannot be used: looks that want them fail. Blocks on the disk.
    pub fn set_adapters(&self, wanted: &[AdapterConfig]) -> Vec<BrokenAdapter> {
        self.maker.set_adapters(wanted)
    }

    /// Answers may be followed by further prompts from now on.
    pub(super) fn offer_follow_ups(&mut self, sender: FollowUpSender) {
        self.follow_ups = Some(sender);
    }

    /// Maps the scores of answers from now on. Returns the maps until now; without any, scores are the model's own probabilities.
    pub fn set_score_maps(&mut self, maps: ScoreMaps) -> ScoreMaps {
        mem::replace(&mut self.score_maps, maps)
    }

    /// The loop with its counters.
    pub fn worker(&mut self) -> &mut Worker {
        &mut self.worker
    }

    /// Prepares a shape of steps for a faster launch, while nothing is inside. False when nothing is left to prepare.
    pub fn prepare_shape(&mut self) -> Result<bool, DeviceError> {
        self.worker.prepare_shape()
    }

    /// Works by other bounds and in another way from now on, with nothing remembered: for measurements of one device in
    /// several ways. Nothing may be inside, and no handle may be given out. `bounds` may not ask for more than the device was built for.
    pub fn restart(&mut self, bounds: Bounds, options: Options) {
        let maker = Arc::make_mut(&mut self.maker);
        (maker.bounds, maker.reuse) = (bounds, options.reuse);
        self.worker.restart(options);
    }

    /// Answers one look while nothing else is inside; it has an outcome, which may be that it came too late. Nothing is
    /// remembered of it and nothing remembered is used, so it costs what the first look at a picture costs. Blocks for the whole
    /// work. After a fatal error the engine must not be used again.
    pub fn look(&mut self, look: Look) -> Result<WholeLook, EngineError> {
        let mut whole = WholeLook::new(&look);
        let id = self.submit_unremembered(look)?;
        while whole.outcome.is_none() {
            for (of, news) in self.turn()? {
                if of == id {
                    whole.add(news);
                }
            }
        }
        Ok(whole)
    }

    /// Takes a look of which nothing is remembered, and for which nothing remembered is used.
    pub fn submit_unremembered(&mut self, look: Look) -> Result<LookId, EngineError> {
        let mut requests = self.maker.requests(&look)?;
        for (_, request) in &mut requests.fit {
            (request.camera, request.measured) = (None, None);
            request.asks.iter_mut().for_each(|ask| ask.draft = None);
        }
        Ok(self.admit(look, requests))
    }

    /// Takes a look; its news come from later turns. Does not block.
    pub fn submit(&mut self, look: Look) -> Result<LookId, EngineError> {
        let requests = self.maker.requests(&look)?;
        Ok(self.admit(look, requests))
    }

    /// Hands the views of a look to the scheduler; their news come from later turns. Prompts of views without a request have no answer.
    pub(super) fn admit(&mut self, look: Look, requests: ViewRequests) -> LookId {
        let look_id = LookId(self.looks);
        self.looks += 1;
        let ViewRequests { mut fit, unfit } = requests;
        if self.follow_ups.is_none() {
            let asks = fit.iter_mut().flat_map(|(_, request)| &mut request.asks);
            asks.for_each(|ask| ask.has_follow_up = false);
        }
        let admitted = fit
            .into_iter()
            .map(|(seen, request)| (self.worker.admit(request), seen));
        let views: Vec<(LookId, LookView)> = admitted.collect();
        let of_look = |(view, _): &(LookId, LookView)| (*view, look_id);
        self.look_of_view.extend(views.iter().map(of_look));
        let inside = AdmittedViews {
            look: OpenLook::new(look),
            views: OpenViews::new(views, unfit.map(LookFailure::from)),
            written: BTreeMap::new(),
        };
        self.inside.insert(look_id, inside);
        look_id
    }

    /// Asks the prompts that follow an answer; their answers come from later turns. A look that has ended, or has waited for them for too
    /// long, answers none.
    pub(super) fn follow_up(&mut self, asked: AskedFollowUp) {
        let Some(AdmittedViews { look, views, .. }) = self.inside.get_mut(&asked.look) else {
            return;
        };
        let Some((view, prompt)) = views.view_of(asked.prompt) else {
            return;
        };
        let size = look.frame().picture.size();
        let region = views.seen(view).and_then(|seen| seen.region(size));
        let (mut asks, mut fit, mut unfit) = (Vec::new(), Vec::new(), None);
        for (offset, prompt) in asked.prompts.iter().enumerate() {
            match self.maker.follow_up(prompt, region) {
                Ok(ask) => {
                    asks.push(ask);
                    fit.push(offset);
                }
                Err(error) => unfit = Some(error),
            }
        }
        if self.worker.follow_up(view, prompt, asks) {
            let first = look.follow_up(asked.prompts);
            views.follow_up(view, fit.into_iter().map(|offset| first + offset));
            if let Some(error) = unfit {
                views.unfit(error.into());
            }
        }
    }

    /// Looks wait no more for prompts that follow their answers.
    pub(super) fn end_follow_ups(&mut self) {
        self.worker.end_follow_ups();
    }

    /// Cancels the look with all its views; no news of it will come.
    pub fn cancel(&mut self, look: LookId) {
        let inside = self.inside.remove(&look);
        for view in inside.iter().flat_map(|inside| inside.views.open()) {
            self.look_of_view.remove(&view);
            self.worker.cancel(view);
        }
    }

    /// One turn of the loop; waits for at most one step of the device. An error is fatal.
    pub fn turn(&mut self) -> Result<Vec<(LookId, LookNews)>, EngineError> {
        let mut news = Vec::new();
        for event in self.worker.turn()? {
            news.extend(self.rest_of_text(&event));
            news.extend(self.news(event));
        }
        Ok(news)
    }

    /// True when a turn has nothing to do now. Looks may wait for prompts that follow their answers.
    pub fn is_idle(&self) -> bool {
        self.worker.is_idle()
    }

    fn news(&mut self, event: LookEvent) -> Option<(LookId, LookNews)> {
        Some(match event {
            LookEvent::Piece(view, prompt, piece) => self.piece(view, prompt, piece)?,
            LookEvent::Answer {
                look: view,
                prompt,
                result,
                model_size,
            } => match self.answered(view, prompt, result)? {
                Ok((id, frame, answer)) => {
                    let follow_up = self.follow_up_to(id, &answer);
                    let news = LookNews::Answer {
                        frame,
                        model_size,
                        since_last: spotter_core::SkippedSinceLast::default(),
                        answer,
                        follow_up,
                    };
                    (id, news)
                }
                Err(error) => {
                    self.worker.cancel(view);
                    let failure = LookFailure::Engine(error.to_string());
                    self.view_ended(view, ViewEnd::Failed(failure))?
                }
            },
            LookEvent::ShortAnswered { look: view } => {
                let id = *self.look_of_view.get(&view)?;
                self.inside.get_mut(&id)?.views.short_answered(view);
                (id, self.look_news(id)?)
            }
            LookEvent::Answered { look: view } => self.view_ended(view, ViewEnd::Answered)?,
            LookEvent::Late { look: view } => self.view_ended(view, ViewEnd::Late)?,
            LookEvent::Failed { look: view, why } => {
                let failure = self.failure(view, why)?;
                self.view_ended(view, ViewEnd::Failed(failure))?
            }
        })
    }

    /// A part of the answer to a prompt of a view, given by its index there. `None`: there is nothing to show yet.
    fn piece(
        &mut self,
        view: LookId,
        prompt: usize,
        piece: OutputPiece,
    ) -> Option<(LookId, LookNews)> {
        let id = *self.look_of_view.get(&view)?;
        let AdmittedViews {
            look,
            views,
            written,
        } = self.inside.get_mut(&id)?;
        let seen = views.seen(view)?;
        let index = *seen.prompts.get(prompt)?;
        let prompt = Arc::clone(look.prompts().get(index)?);
        let frame = look.frame().id();
        let piece = match piece {
            OutputPiece::Values(values) => {
                let outline = &mut written.entry(index).or_default().outline;
                let bounds =
                    outline.add_values(values, |found| self.maker.model.outline(found).ok())?;
                let region = seen.region(look.frame().picture.size());
                AnswerPiece::Bounds(region.map_or(bounds, |r| r.box_in_picture(&bounds)))
            }
            OutputPiece::Tokens(tokens) if matches!(prompt.task, Task::Segment { .. }) => {
                let outline = &mut written.entry(index).or_default().outline;
                AnswerPiece::Path(
                    outline.add(tokens, |found| self.maker.model.outline(found).ok())?,
                )
            }
            // A text that cannot be decoded fails with its answer.
            OutputPiece::Thoughts(mut tokens) => {
                let EngineModel {
                    config, tokenizer, ..
                } = &self.maker.model;
                tokens.retain(|&id| !config.tokenizer.is_of_place(id));
                let thoughts = &mut written.entry(index).or_default().thoughts;
                AnswerPiece::Thought(thoughts.add(&tokens, tokenizer).ok().flatten()?)
            }
            OutputPiece::Tokens(tokens) => {
                let tokenizer = &self.maker.model.tokenizer;
                let text = &mut written.entry(index).or_default().text;
                AnswerPiece::Text(text.add(&tokens, tokenizer).ok().flatten()?)
            }
            OutputPiece::Object(object) => {
                let region = seen.region(look.frame().picture.size());
                match self.objects(&prompt, &[object], region)? {
                    AnswerBody::Boxes(mut found) => AnswerPiece::Box(found.pop()?),
                    AnswerBody::Points(mut found) => AnswerPiece::Point(found.pop()?),
                    AnswerBody::Text { .. } | AnswerBody::Outline(_) => return None,
                }
            }
        };
        let news = LookNews::Piece {
            frame,
            prompt,
            piece,
        };
        Some((id, news))
    }

    /// What a complete text or path has behind its pieces.
    fn rest_of_text(&mut self, event: &LookEvent) -> Option<(LookId, LookNews)> {
        let LookEvent::Answer {
            look: view,
            prompt,
            result,
            ..
        } = event
        else {
            return None;
        };
        let id = *self.look_of_view.get(view)?;
        let AdmittedViews {
            look,
            views,
            written,
        } = self.inside.get_mut(&id)?;
        let index = *views.seen(*view)?.prompts.get(*prompt)?;
        let mut written = written.remove(&index)?;
        let prompt = Arc::clone(look.prompts().get(index)?);
        let piece = match prompt.task {
            Task::Segment { .. } => {
                let path = self.maker.model.outline(&result.found).ok()?.path;
                AnswerPiece::Path(written.outline.rest(&path)?)
            }
            _ => {
                let tokenizer = &self.maker.model.tokenizer;
                let whole = tokenizer.decode(&result.found.tokens).ok()?;
                AnswerPiece::Text(written.text.rest(&whole)?.to_owned())
            }
        };
        let frame = look.frame().id();
        let news = LookNews::Piece {
            frame,
            prompt,
            piece,
        };
        Some((id, news))
    }

    /// A prompt of a view, given by its index there, is answered. An error when the answer is no text.
    fn answered(
        &mut self,
        view: LookId,
        prompt: usize,
        result: PromptResult,
    ) -> Option<Result<(LookId, Frame, Answer), EngineError>> {
        let id = *self.look_of_view.get(&view)?;
        let AdmittedViews { look, views, .. } = self.inside.get(&id)?;
        let seen = views.seen(view)?;
        let index = *seen.prompts.get(prompt)?;
        let region = seen.region(look.frame().picture.size());
        let answer = match self.answer(look.prompts().get(index)?, region, result) {
            Ok(answer) => answer,
            Err(error) => return Some(Err(error)),
        };
        let look = &mut self.inside.get_mut(&id)?.look;
        look.answer(index)?;
        Some(Ok((id, look.frame().clone(), answer)))
    }

    /// What may follow an answer of the look; nothing when its picture was not encoded.
    fn follow_up_to(&self, id: LookId, answer: &Answer) -> Option<FollowUp> {
        let follow_ups = self.follow_ups.as_ref()?;
        if answer.unchanged || answer.prompt.outlines_max == 0 {
            return None;
        }
        let mut prompts = self.inside.get(&id)?.look.prompts().iter();
        let index = prompts.position(|prompt| Arc::ptr_eq(prompt, &answer.prompt))?;
        Some(follow_ups.follow_up(id, index, &answer.prompt))
    }

    /// Why a view failed, with the prompt's index in the look.
    fn failure(&self, view: LookId, why: LookFault) -> Option<LookFailure> {
        let AdmittedViews { look, views, .. } = self.inside.get(self.look_of_view.get(&view)?)?;
        let why = match why {
            LookFault::Prompt(why) => why,
            LookFault::Picture(reason) => return Some(LookFailure::Unfit(reason)),
            LookFault::Step(reason) => {
                let text = format!("a step of the look has no results: {reason}");
                return Some(LookFailure::Engine(text));
            }
        };
        let why = UnfitPrompt {
            prompt: *views.seen(view)?.prompts.get(why.prompt)?,
            ..why
        };
        let text = format!("look with {} prompts: {why}", look.prompts().len());
        Some(LookFailure::Unfit(text))
    }

    /// A view has ended, which may be the end of its look.
    fn view_ended(&mut self, view: LookId, end: ViewEnd) -> Option<(LookId, LookNews)> {
        let id = self.look_of_view.remove(&view)?;
        for late in self.inside.get_mut(&id)?.views.end(view, end) {
            self.look_of_view.remove(&late);
            self.worker.cancel(late);
        }
        Some((id, self.look_news(id)?))
    }

    /// What is new of the look, after news of a view.
    fn look_news(&mut self, id: LookId) -> Option<LookNews> {
        let inside = self.inside.get_mut(&id)?;
        let end = match inside.views.news()? {
            ViewsNews::ShortAnswered => {
                return Some(LookNews::ShortAnswered(inside.look.frame().clone()));
            }
            ViewsNews::Ended(end) => end,
        };
        let look = self.inside.remove(&id)?.look;
        Some(LookNews::Ended(match end {
            ViewEnd::Answered => Outcome::Answered(look.frame().clone()),
            ViewEnd::Late => Outcome::Late(look.unanswered()),
            ViewEnd::Failed(why) => Outcome::Failed(look.unanswered(), why),
        }))
    }

    fn answer(
        &self,
        prompt: &Arc<Prompt>,
        region: Option<NormBox>,
        finding: PromptResult,
    ) -> Result<Answer, EngineError> {
        let PromptResult {
            found,
            tokens,
            marks,
            unchanged,
        } = finding;
        let body = match (self.objects(prompt, &found.objects, region), &prompt.task) {
            (Some(body), _) => body,
            (None, Task::Segment { .. }) => self.outline(prompt, &found, region)?,
            (None, _) => self.text(prompt, &found)?,
        };
        Ok(Answer {
            prompt: Arc::clone(prompt),
            region,
            body,
            reasoning: self.reasoning(prompt, &found, region)?,
            truncated: found.truncated,
            unchanged,
            tokens,
            marks,
        })
    }

    fn outline(
        &self,
        prompt: &Prompt,
        found: &SequenceOutput,
        region: Option<NormBox>,
    ) -> Result<AnswerBody, EngineError> {
        let drawn = self.maker.model.outline(found);
        let drawn = drawn.map_err(|e| prompt_error(prompt, &e))?;
        let outline = outlines::outline(drawn, region, token_probability(found));
        Ok(AnswerBody::Outline(outline))
    }

    /// What the model wrote before the answer, if it was asked to, with places in the whole picture.
    fn reasoning(
        &self,
        prompt: &Prompt,
        found: &SequenceOutput,
        region: Option<NormBox>,
    ) -> Result<Option<Reasoning>, EngineError> {
        let EngineModel {
            config, tokenizer, ..
        } = &self.maker.model;
        let is_reasoned = matches!(&prompt.task, Task::Query { options, .. } if options.reasoning);
        let reasoning = is_reasoned.then(|| {
            let thoughts = &found.thoughts;
            config.family.reasoning(thoughts, config, tokenizer)
        });
        let reasoning = reasoning
            .transpose()
            .map_err(|e| prompt_error(prompt, &e))?;
        Ok(reasoning.map(|reasoning| match region {
            Some(region) => reasoning.in_picture(&region),
            None => reasoning,
        }))
    }

    fn text(&self, prompt: &Prompt, found: &SequenceOutput) -> Result<AnswerBody, EngineError> {
        let text = self.maker.model.tokenizer.decode(&found.tokens);
        let (score, source) = score(self.score_map(prompt), token_probability(found));
        Ok(AnswerBody::Text {
            text: text
                .map_err(|e| prompt_error(prompt, &e))?
                .trim()
                .to_owned(),
            score,
            source,
        })
    }

    /// None with an adapter: maps are measured of the model alone.
    fn score_map(&self, prompt: &Prompt) -> Option<&ScoreMap> {
        let kind = ScoredKind::of(&prompt.task)?;
        let map = self.score_maps.get(&kind)?;
        prompt.adapter.is_none().then_some(map)
    }

    /// Objects as places in the whole picture, of which the model saw `region`; `None` for tasks whose answer is a text.
    fn objects(
        &self,
        prompt: &Prompt,
        objects: &[ObjectBins],
        region: Option<NormBox>,
    ) -> Option<AnswerBody> {
        let (map, objects) = (self.score_map(prompt), objects.iter());
        let whole_box =
            |inner: NormBox| region.map_or(inner, |region| region.box_in_picture(&inner));
        let whole_point =
            |inner: NormPoint| region.map_or(inner, |region| region.point_in_picture(inner));
        match &prompt.task {
            Task::Detect { .. } => {
                let boxes = objects
                    .filter_map(|object| Some(found(whole_box(place(object)?), object, map)));
                Some(AnswerBody::Boxes(boxes.collect()))
            }
            Task::Point { .. } => {
                let point = |o: &ObjectBins| {
                    let [x, y] = [o.x_bin, o.y_bin].map(model::coord_from_bin);
                    found(whole_point(NormPoint::new(x, y)), o, map)
                };
                Some(AnswerBody::Points(objects.map(point).collect()))
            }
            Task::Query { .. } | Task::Segment { .. } | Task::Caption { .. } => None,
        }
    }
}

/// The box in the picture that the model saw, clamped to it.
fn place(object: &ObjectBins) -> Option<NormBox> {
    let (width, height) = object.size_bins?;
    let [x, y] = [object.x_bin, object.y_bin].map(model::coord_from_bin);
    let [width, height] = [width, height].map(model::size_from_bin);
    Some(NormBox::from_centre(x, y, width, height))
}

fn found<T>(place: T, object: &ObjectBins, map: Option<&ScoreMap>) -> FoundObject<T> {
    let (score, source) = score(map, object.probability.into());
    FoundObject {
        place,
        score,
        source,
        sharpness: f64::from(object.sharpness),
    }
}

/// Geometric mean of the probabilities of an answer's tokens and of its end.
fn token_probability(found: &SequenceOutput) -> f64 {
    // The end is a decision too, so the shortest answer has one.
    (found.log_probability / (found.tokens.len() + 1) as f64).exp()
}

/// What is reported of a probability of the model.
fn score(map: Option<&ScoreMap>, probability: f64) -> (f64, ScoreSource) {
    match map {
        None => (probability, ScoreSource::TokenProb),
        Some(map) => (map.share(probability), ScoreSource::Calibrated),
    }
}
