//! The looks that are not answered yet, with the prompts that wait for pages. Pure.
//!
//! Belongs here: which look is inside, in which order looks are served, and the previous answers that their prompts start
//! with. Not here: prompts that have pages (`active`).

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    active::ActiveJobs,
    backend::{BackendLimits, PageId, StepTimes},
    decision::Decision,
    draft::{DraftKey, Drafts},
    job::{Job, JobId},
    kv::{KvPool, PrefixRoot},
    plan::{self, ImageNeed, LookCandidate, PrefillNeed},
    request::{Ask, LookId, LookRequest},
    still::{ImageNumber, KeptPictures, Verdict},
};
use spotter_core::{CameraId, Mono};

/// How long a look keeps its image for prompts that follow an answer. Callers ask them at once, so this is only for one that hangs.
const FOLLOW_UP_WAIT: Duration = Duration::from_secs(2);

pub(super) struct AdmittedLook {
    /// Its prompts that are not answered are in `waiting` or in [`ActiveJobs`].
    pub request: LookRequest,
    /// Pages of the image, from the step on that writes them. The look and each of its jobs are holders of them.
    pub prefix: Option<Arc<[PageId]>>,
    /// The image in `prefix`.
    pub image: Option<ImageNumber>,
    /// How its picture differs from the kept one, once they were compared.
    pub verdict: Option<Verdict>,
    /// In order, free texts last.
    pub waiting: VecDeque<Job>,
    pub started: Option<Mono>,
    pub image_times: Option<StepTimes>,
    pub model_size: (u32, u32),
    /// Time of the device: its image, and its rows' share of their steps.
    pub device_time: Duration,
    /// The part of it that answers have reported.
    pub reported_time: Duration,
    /// Steps in which it had rows.
    pub steps: u32,
    /// The last of them.
    pub last_step: u64,
    /// Prompts that were asked so far: the next one has this index.
    asked: usize,
    follow_ups: Vec<OpenFollowUp>,
    /// Prompts without an answer.
    pub unanswered: PromptCounts,
    /// Only free texts are unanswered, and its image was encoded: no other look waits for this one.
    pub only_text_left: bool,
}

/// An answer that may be followed by further prompts.
struct OpenFollowUp {
    /// Index of the answered prompt.
    prompt: usize,
    until: Mono,
}

/// Prompts of a look, by what other looks wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PromptCounts {
    /// With a short answer.
    pub short: usize,
    /// With a free text.
    pub texts: usize,
}

impl PromptCounts {
    fn of(jobs: &VecDeque<Job>) -> Self {
        let texts = jobs.iter().filter(|job| job.is_text).count();
        Self {
            short: jobs.len() - texts,
            texts,
        }
    }

    /// A prompt is asked.
    fn add(&mut self, is_text: bool) {
        match is_text {
            true => self.texts += 1,
            false => self.short += 1,
        }
    }

    /// A prompt was answered.
    pub fn remove(&mut self, is_text: bool) {
        match is_text {
            true => self.texts -= 1,
            false => self.short -= 1,
        }
    }
}

impl AdmittedLook {
    fn new(id: LookId, mut request: LookRequest) -> Self {
        let adapter = request.adapter.clone();
        let job = |(index, ask)| Job::new((id, index), ask, adapter.clone());
        let mut waiting: Vec<Job> = request.asks.drain(..).enumerate().map(job).collect();
        waiting.sort_by_key(Job::order);
        let waiting = VecDeque::from(waiting);
        Self {
            request,
            prefix: None,
            unanswered: PromptCounts::of(&waiting),
            asked: waiting.len(),
            follow_ups: Vec::new(),
            only_text_left: false,
            image: None,
            verdict: None,
            waiting,
            started: None,
            image_times: None,
            model_size: (0, 0),
            device_time: Duration::ZERO,
            reported_time: Duration::ZERO,
            steps: 0,
            last_step: 0,
        }
    }

    /// Positions of its image in the cache.
    fn prefix_positions(&self, limits: &BackendLimits) -> usize {
        match self.request.picture {
            Some(_) => limits.prefix_positions,
            None => 0,
        }
    }

    /// True when no other look waits for it: its short answers are there, and its image needs no encoding any more.
    pub fn is_short_answered(&self) -> bool {
        let is_encoded = self.request.picture.is_none()
            || self.image_times.is_some()
            || self.same_as().is_some();
        self.unanswered.short == 0 && is_encoded
    }

    /// True when all prompts are answered, and others can follow.
    fn only_waits(&self) -> bool {
        self.unanswered == PromptCounts::default() && !self.follow_ups.is_empty()
    }

    /// True when all prompts are answered, and no other can follow.
    pub fn is_over(&self) -> bool {
        self.unanswered == PromptCounts::default() && self.follow_ups.is_empty()
    }

    /// A prompt was answered now, which other prompts may follow.
    pub fn open_follow_up(&mut self, prompt: usize, now: Mono) {
        let until = now.after(FOLLOW_UP_WAIT);
        self.follow_ups.push(OpenFollowUp { prompt, until });
    }

    /// Asks what follows an answer, which may be nothing. False when nothing can follow it any more.
    fn follow_up(&mut self, id: LookId, prompt: usize, asks: Vec<Ask>) -> bool {
        let mut open = self.follow_ups.iter();
        let Some(index) = open.position(|open| open.prompt == prompt) else {
            return false;
        };
        self.follow_ups.remove(index);
        for ask in asks {
            let job = Job::new((id, self.asked), ask, self.request.adapter.clone());
            self.asked += 1;
            self.unanswered.add(job.is_text);
            self.wait(job);
        }
        true
    }

    /// Puts a job among those that wait.
    fn wait(&mut self, job: Job) {
        let order = job.order();
        let place = (self.waiting).partition_point(|other| other.order() < order);
        self.waiting.insert(place, job);
    }

    /// Waiting prompts that may get a row when there is one: texts do not delay the short answers of their own look.
    fn startable(&self) -> impl Iterator<Item = &Job> {
        let texts_wait = self.unanswered.short > 0;
        let waiting = self.waiting.iter();
        waiting.filter(move |job| !(job.is_text && texts_wait))
    }

    /// It begins again without an image in the cache.
    fn take_prefix(&mut self) -> Option<Arc<[PageId]>> {
        (self.image, self.verdict) = (None, None);
        self.prefix.take()
    }

    /// What its texts follow in the cache. A look with a picture has an image once it has a prefix.
    pub fn root(&self) -> PrefixRoot {
        self.behind(self.image)
    }

    /// The root of an image, with the look's adapter.
    pub fn behind(&self, image: Option<ImageNumber>) -> PrefixRoot {
        PrefixRoot {
            image,
            adapter: self.request.adapter_number(),
        }
    }

    /// Compares its picture with the kept one, unless that was done.
    pub fn judge(&mut self, kept: &mut KeptPictures, now: Mono) {
        let Some(measured) = &self.request.measured else {
            return;
        };
        let is_current = |verdict: &Verdict| kept.is_current(&measured.view, verdict);
        if !self.verdict.as_ref().is_some_and(is_current) {
            self.verdict = Some(kept.judge(&measured.view, &measured.measure, now));
        }
    }

    /// The kept image that its picture does not differ from.
    pub fn same_as(&self) -> Option<ImageNumber> {
        self.verdict.as_ref()?.same_as()
    }

    /// Arithmetic of its image, in crops.
    pub fn image_work(&self) -> usize {
        let verdict = self.verdict.as_ref();
        plan::image_work(verdict.map_or(self.request.crops, Verdict::crops_changed))
    }

    /// What its image needs, unless it is in the cache or there is none.
    fn image_need(&self, limits: &BackendLimits, kv: &KvPool) -> Option<ImageNeed> {
        if self.request.picture.is_none() || self.prefix.is_some() {
            return None;
        }
        let same = self.same_as().map(|image| self.behind(Some(image)));
        let kept = same.and_then(|root| kv.idle_pages(root));
        let encoded = || limits.prefix_positions.div_ceil(limits.page_tokens);
        Some(ImageNeed {
            pages: kept.unwrap_or_else(encoded),
            work: kept.is_none().then(|| self.image_work()),
        })
    }

    /// A look that waits too long is not begun, one that runs too long is stopped, unless no other waits for it.
    fn is_late(&self, now: Mono) -> bool {
        let request = &self.request;
        match self.started {
            _ if self.only_text_left => false,
            Some(_) => now > request.answer_by,
            None => now > request.start_by.min(request.answer_by),
        }
    }
}

/// A prompt that does not fit into the context even alone.
pub(super) struct TooLong {
    pub job: JobId,
    /// The position after its last one.
    pub end: usize,
}

pub(super) struct Admission {
    limits: BackendLimits,
    /// Free texts that may have rows at the same time.
    texts_max: usize,
    looks: BTreeMap<LookId, AdmittedLook>,
    drafts: Drafts,
    arrivals: u64,
    /// A look that runs for longer than this is in a hurry: no look begins beside it.
    pub hurry_after: Duration,
}

impl Admission {
    pub fn new(limits: BackendLimits) -> Self {
        Self {
            limits,
            texts_max: texts_max(&limits),
            looks: BTreeMap::new(),
            drafts: Drafts::default(),
            arrivals: 0,
            hurry_after: Duration::MAX,
        }
    }

    /// Admits a look. One with a prompt that is too long is admitted as well; the caller fails it.
    pub fn admit(&mut self, request: LookRequest) -> (LookId, Option<TooLong>) {
        let id = LookId(self.arrivals);
        self.arrivals += 1;
        let look = AdmittedLook::new(id, request);
        let too_long = self.too_long(&look);
        self.looks.insert(id, look);
        (id, too_long)
    }

    /// Asks what follows an answer of the look, as [`Self::admit`]; `None` when nothing can follow it any more.
    pub fn follow_up(
        &mut self,
        id: LookId,
        prompt: usize,
        asks: Vec<Ask>,
    ) -> Option<Option<TooLong>> {
        let look = self.looks.get_mut(&id)?;
        let is_asked = look.follow_up(id, prompt, asks);
        is_asked.then(|| self.too_long(&self.looks[&id]))
    }

    /// Ends the waits for what follows answers, but those that end after `now`. Returns the looks of which nothing is left.
    pub fn end_follow_ups(&mut self, now: Mono) -> Vec<LookId> {
        let over = self.looks.iter_mut().filter_map(|(id, look)| {
            look.follow_ups.retain(|open| now <= open.until);
            look.is_over().then_some(*id)
        });
        over.collect()
    }

    /// A waiting prompt of the look that is too long.
    fn too_long(&self, look: &AdmittedLook) -> Option<TooLong> {
        let prefix = look.prefix_positions(&self.limits);
        let mut prompts = look.waiting.iter().map(|job| TooLong {
            job: job.id,
            end: prefix + job.prompt().len(),
        });
        prompts.find(|prompt| prompt.end > self.limits.context)
    }

    pub fn is_empty(&self) -> bool {
        self.looks.is_empty()
    }

    /// True when all looks that there are wait for what follows their answers.
    pub fn only_waits(&self) -> bool {
        self.looks.values().all(AdmittedLook::only_waits)
    }

    pub fn contains(&self, id: LookId) -> bool {
        self.looks.contains_key(&id)
    }

    pub fn get(&self, id: LookId) -> Option<&AdmittedLook> {
        self.looks.get(&id)
    }

    pub fn get_mut(&mut self, id: LookId) -> Option<&mut AdmittedLook> {
        self.looks.get_mut(&id)
    }

    /// Removes the look; its active jobs and its pages are the caller's to release.
    pub fn remove(&mut self, id: LookId) -> Option<AdmittedLook> {
        self.looks.remove(&id)
    }

    /// Puts a look back that [`Self::remove`] gave.
    pub fn restore(&mut self, id: LookId, look: AdmittedLook) {
        self.looks.insert(id, look);
    }

    /// True when a look with rows runs for long, and others wait for it. One at a picture from no camera keeps no look of a camera
    /// from beginning.
    pub fn any_in_a_hurry(&self, active: &ActiveJobs, now: Mono) -> bool {
        let is_old = |look: &AdmittedLook| {
            let is_old = |started| now.since(started) > self.hurry_after;
            let is_awaited = look.request.camera.is_some() && !look.only_text_left;
            is_awaited && look.started.is_some_and(is_old)
        };
        let mut old = self.looks.iter().filter(|(_, look)| is_old(look));
        old.any(|(id, _)| active.reads(*id))
    }

    /// True when a look that others wait for has a prompt that may start.
    pub fn any_starts(&self) -> bool {
        let mut open = self.looks.values().filter(|look| !look.only_text_left);
        open.any(|look| look.startable().next().is_some())
    }

    /// Looks whose deadline has passed.
    pub fn late(&self, now: Mono) -> Vec<LookId> {
        let late = self.looks.iter().filter(|(_, look)| look.is_late(now));
        late.map(|(id, _)| *id).collect()
    }

    /// An evicted job waits again, in its place among the look's prompts. It is dropped when the look has ended.
    pub fn requeue(&mut self, job: Job) {
        if let Some(look) = self.looks.get_mut(&job.id.0) {
            look.wait(job.restarted());
        }
    }

    /// Looks of which no prompt has pages yet.
    pub fn looks_without_prefix(&mut self) -> Vec<LookId> {
        let waits = |look: &AdmittedLook| look.prefix.is_none() && !look.waiting.is_empty();
        let looks = self.looks.iter().filter(|(_, look)| waits(look));
        looks.map(|(id, _)| *id).collect()
    }

    /// Takes the pages of the youngest image that no active job reads, but not of the image of `keep`.
    pub fn take_idle_prefix(
        &mut self,
        active: &ActiveJobs,
        keep: Option<LookId>,
    ) -> Option<(PrefixRoot, Arc<[PageId]>)> {
        self.looks.iter_mut().rev().find_map(|(id, look)| {
            let is_idle = Some(*id) != keep && !active.reads(*id);
            let prefix = is_idle.then(|| look.prefix.take()).flatten()?;
            Some((look.root(), prefix))
        })
    }

    /// Remembers an answer as the draft of the next one.
    pub fn remember_answer(&mut self, key: DraftKey, decisions: Vec<Decision>) {
        self.drafts.remember(key, decisions);
    }

    /// Forgets all answers that would be drafts.
    pub fn forget_answers(&mut self) {
        self.drafts = Drafts::default();
    }

    /// Takes the pages of all looks that use one of these prefixes, which were not written. Their images are encoded again.
    pub fn take_prefixes_of(&mut self, roots: &[PrefixRoot]) -> Vec<Arc<[PageId]>> {
        let looks = self.looks.values_mut();
        let looks = looks.filter(|look| roots.contains(&look.root()));
        looks.filter_map(AdmittedLook::take_prefix).collect()
    }

    /// Gives every waiting prompt the last answer of its kind, as far as the context reaches.
    pub fn offer_drafts(&mut self) {
        for look in self.looks.values_mut() {
            let prefix = look.prefix_positions(&self.limits);
            for job in &mut look.waiting {
                let answer = job.draft_key.as_ref().and_then(|key| self.drafts.of(key));
                if let Some(answer) = answer {
                    job.offer_draft(answer);
                    job.shorten_draft(self.limits.context - prefix - job.prompt().len());
                }
            }
        }
    }

    /// True when one of the look's prompts had a draft.
    pub fn withdraw_drafts(&mut self, look: LookId) -> bool {
        let jobs = self.looks.get_mut(&look).map(|look| &mut look.waiting);
        let withdrawn = jobs.into_iter().flatten().map(Job::withdraw_draft);
        withdrawn.fold(false, |any, had| any | had)
    }

    /// Looks with waiting prompts, in the order in which they are served.
    pub fn candidates(&self, active: &ActiveJobs, kv: &KvPool) -> Vec<LookCandidate> {
        if self.looks.values().all(|look| look.waiting.is_empty()) {
            return Vec::new();
        }
        let mut of_camera: BTreeMap<&CameraId, usize> = BTreeMap::new();
        // Running looks come first, so that they count before those that only wait.
        let (running, queued): (Vec<_>, Vec<_>) =
            self.looks.iter().partition(|(id, _)| active.reads(**id));
        let pages = |positions: usize| positions.div_ceil(self.limits.page_tokens);
        let mut all = Vec::new();
        for (&id, look) in running.into_iter().chain(queued) {
            let mut rank = 0;
            if let (Some(camera), false) = (&look.request.camera, look.only_text_left) {
                let looks = of_camera.entry(camera).or_default();
                rank = *looks;
                *looks += 1;
            }
            let need = |positions| PrefillNeed {
                pages: pages(positions),
                positions,
            };
            let prompts = look.startable().map(Job::prefill_positions);
            all.push(LookCandidate {
                look: id,
                only_text_left: look.only_text_left,
                rank,
                start_by: look.request.start_by,
                image: look.image_need(&self.limits, kv),
                prompts: prompts.map(need).collect(),
                texts: look.startable().filter(|job| job.is_text).count(),
            });
        }
        all.sort_by_key(LookCandidate::order);
        let mut texts = self.texts_max.saturating_sub(active.running_texts());
        for candidate in &mut all {
            texts -= candidate.keep_texts(texts);
        }
        all.retain(|candidate| !candidate.prompts.is_empty());
        all
    }
}

/// Free texts that may have rows at the same time: half of the rows, and half of the pages if each has an image of its own and
/// half as much behind it. The others are for looks with short answers, which come and go.
fn texts_max(limits: &BackendLimits) -> usize {
    let image_pages = limits.prefix_positions.div_ceil(limits.page_tokens).max(1);
    (limits.rows / 2)
        .min(limits.pages / (3 * image_pages))
        .max(1)
}
