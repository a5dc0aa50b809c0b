//! Fills the next step: rows that decode, then prompts that wait. Pure.
//!
//! ```text
//!   look   image ─▶ prefix pages, written once        step   images: [image]
//!          prompts ─▶ job, own pages, prefill row ─▶         rows:   [.. decodes .., prompt + draft, prompt + draft]
//!
//!   pages  free ─▶ known texts and kept images that no look uses ─▶ images that no row reads now ─▶ the youngest free text is
//!          evicted, and without any the youngest row
//! ```
//!
//! The oldest short answer is never evicted, so it ends, and then its pages are free: nothing waits for ever. A row that does
//! not fit although it is alone never will, and its look fails.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    admission::AdmittedLook,
    backend::{AdapterNumber, BackendLimits, CropSource, ImageJob, Row, RowRef, SlotId, Step},
    decision::Decision,
    job::{JobId, JobState, RowRequest},
    kv::{OutOfPages, PrefixRoot},
    plan::{self, Budget, Grant, ImageRoom, LookCandidate, TEXT_EVERY, TEXTS_BESIDE_SHORT},
    request::{Decide, LookId, Options},
    working_set::WorkingSet,
};
use spotter_core::Mono;

/// What has to be known at a step's commit, and when it fails.
pub struct StepRecord {
    pub(super) rows: Vec<RowRecord>,
    pub(super) images: Vec<ImageRecord>,
    pub(super) launched: Mono,
}

/// An image that the step encodes.
#[derive(Clone, Copy)]
pub(super) struct ImageRecord {
    pub look: LookId,
    /// Its prefix, which other looks may use too.
    pub root: PrefixRoot,
    /// Of [`plan::image_work`].
    pub work: usize,
}

pub(super) struct RowRecord {
    pub job: JobId,
    pub draft: Option<Vec<Decision>>,
}

/// A step that is being filled.
pub(super) struct StepDraft {
    slot: SlotId,
    step: Step,
    record: StepRecord,
    /// Jobs whose prompt the step writes; the prefix index gets them afterwards.
    prefilled: Vec<JobId>,
    /// Tokens that drafts may choose in it, beside one of each row.
    spare_tokens: usize,
    /// Decisions of drafts that it has room for, beside one of each row.
    spare_picks: usize,
    /// Rows that are no free texts.
    short_rows: usize,
    /// Other steps in flight.
    others: usize,
}

impl StepDraft {
    /// Adds a row of `job`, which is at an index of the active jobs.
    fn add_row(&mut self, inside: &mut WorkingSet, job: usize, request: RowRequest) {
        let job = inside.active.at_mut(job);
        let row = self.step.rows.len();
        let tokens = request.picks.iter().filter(|pick| pick.is_token()).count();
        self.spare_tokens -= tokens.saturating_sub(1);
        self.spare_picks -= request.picks.len().saturating_sub(1);
        self.short_rows += usize::from(!job.is_text);
        let slot = self.slot;
        job.launched(&request, RowRef { slot, row });
        self.record.rows.push(RowRecord {
            job: job.id,
            draft: request.draft,
        });
        self.step.rows.push(Row {
            inputs: request.feed,
            position: request.position,
            kv: job.kv.clone(),
            picks: request.picks,
            adapter: job.adapter.clone(),
        });
    }
}

pub(super) struct BatchPlanner {
    limits: BackendLimits,
    options: Options,
}

impl BatchPlanner {
    pub fn new(limits: BackendLimits, options: Options) -> Self {
        Self { limits, options }
    }

    /// An empty step in `slot`, beside `others` in flight.
    pub fn draft(&self, slot: SlotId, now: Mono, others: usize) -> StepDraft {
        StepDraft {
            slot,
            step: Step::default(),
            record: StepRecord {
                rows: Vec::new(),
                images: Vec::new(),
                launched: now,
            },
            prefilled: Vec::new(),
            spare_tokens: self.limits.tokens - self.limits.rows,
            spare_picks: self.limits.picks - self.limits.rows,
            short_rows: 0,
            others,
        }
    }

    /// True when a step has rows that look for short answers.
    pub fn has_short_rows(&self, inside: &WorkingSet) -> bool {
        inside.admission.any_starts() || self.has_short_decodes(inside)
    }

    fn has_short_decodes(&self, inside: &WorkingSet) -> bool {
        let carry = self.options.decide == Decide::Device;
        let mut jobs = (0..inside.active.len()).map(|i| inside.active.at(i));
        jobs.any(|job| !job.is_text && job.can_decode(carry))
    }

    /// Fills the step; `None` when nothing can run now.
    pub fn plan(
        &self,
        inside: &mut WorkingSet,
        mut draft: StepDraft,
    ) -> Option<(Step, StepRecord)> {
        self.add_decodes(inside, &mut draft);
        inside.sweep();
        self.add_prefills(inside, &mut draft);
        if draft.step.rows.is_empty() {
            return None;
        }
        index_texts(inside, &draft.prefilled);
        inside.work.steps += 1;
        inside.work.images += draft.step.images.len() as u64;
        inside.work.image_steps += u64::from(!draft.step.images.is_empty());
        Some((draft.step, draft.record))
    }

    /// Every job that can decode does, the oldest first; few texts and only in some steps of short answers.
    fn add_decodes(&self, inside: &mut WorkingSet, draft: &mut StepDraft) {
        let carry = self.options.decide == Decide::Device;
        // A step that a look's image joins is long, so that a row more costs it nothing.
        let short_alone = !inside.admission.any_starts() && self.has_short_decodes(inside);
        let mut texts = match short_alone {
            true if !inside.work.steps.is_multiple_of(TEXT_EVERY) => 0,
            true => TEXTS_BESIDE_SHORT,
            false => self.limits.rows,
        };
        for i in 0..inside.active.len() {
            let is_text = inside.active.at(i).is_text;
            if is_text && texts == 0 {
                continue;
            }
            self.fit_draft(inside, i, draft);
            let job = inside.active.at(i);
            let Some(request) = job.decode(carry) else {
                continue;
            };
            let end = request.position + request.feed.positions();
            if end > self.limits.context {
                // A row that runs ahead may turn out to have ended before.
                if job.inflight_refs == 0 {
                    let id = job.id;
                    inside.fail_for_context(id, end);
                }
                continue;
            }
            if self.give_pages(inside, i, end) {
                inside.work.decodes += 1;
                inside.work.drafted += request.drafted() as u64;
                texts -= usize::from(is_text);
                draft.add_row(inside, i, request);
                debug_assert!(inside.active.at(i).inflight_refs <= self.options.depth);
            }
        }
    }

    /// Shortens the draft of job `i` to the pages that are free, and to what the step has left.
    fn fit_draft(&self, inside: &mut WorkingSet, i: usize, draft: &StepDraft) {
        let job = inside.active.at_mut(i);
        job.shorten_drafted_tokens(draft.spare_tokens);
        job.shorten_draft(draft.spare_picks);
        let job = inside.active.at(i);
        if let Some(needed) = job.end_without_draft() {
            let pages = job.kv.own.len() + inside.kv.available();
            let paged = job.kv.prefix_positions + pages * self.limits.page_tokens;
            let space = self.limits.context.min(paged).saturating_sub(needed);
            // Every row may have a draft, and all of them go into one step.
            let share = self.limits.positions / self.limits.rows;
            let length = space.min(share.saturating_sub(1));
            inside.active.at_mut(i).shorten_draft(length);
        }
    }

    /// Gets pages for the positions of job `i` up to `end`. When none is free, images that no row reads are released, then
    /// a job is evicted; false when the job has to wait.
    fn give_pages(&self, inside: &mut WorkingSet, i: usize, end: usize) -> bool {
        let kv = &inside.active.at(i).kv;
        let wanted = (end - kv.prefix_positions).div_ceil(self.limits.page_tokens);
        let more = wanted.saturating_sub(kv.own.len());
        if more == 0 {
            return true;
        }
        loop {
            let short = match inside.kv.take(more) {
                Ok(pages) => {
                    inside.active.at_mut(i).kv.own.extend(pages);
                    return true;
                }
                Err(short) => short,
            };
            if inside.drop_idle_prefix(None) {
                continue;
            }
            if inside.active.any_zombie() {
                return false;
            }
            let Some(evicted) = inside.active.next_evicted() else {
                return false;
            };
            if evicted == i && inside.active.running() == 1 {
                // A row that runs ahead may turn out to have ended before.
                let job = inside.active.at(i);
                if job.inflight_refs == 0 {
                    let id = job.id;
                    inside.fail_for_pages(id, short);
                }
                return false;
            }
            evict(inside, evicted);
            if evicted == i {
                return false;
            }
        }
    }

    fn add_prefills(&self, inside: &mut WorkingSet, draft: &mut StepDraft) {
        if self.options.draft {
            inside.admission.offer_drafts();
        }
        loop {
            let mut candidates = inside.admission.candidates(&inside.active, &inside.kv);
            self.keep_adapter_room(inside, &mut candidates);
            let grants = plan::grants(&candidates, self.budget(inside, draft));
            for grant in &grants {
                if !self.start(inside, draft, grant) {
                    return;
                }
            }
            let stuck = inside.active.is_empty() && draft.others == 0;
            let Some(first) = candidates.first().filter(|_| stuck && grants.is_empty()) else {
                return;
            };
            // Everything is free but images that wait for rows of their own, and drafts want pages that answers do not. If
            // that is not enough, nothing ever is.
            if !inside.drop_idle_prefix(Some(first.look))
                && !inside.admission.withdraw_drafts(first.look)
            {
                let (wanted, free) = (first.pages_wanted(), inside.kv.available());
                inside.fail_for_pages((first.look, 0), OutOfPages { wanted, free });
            }
        }
    }

    /// Leaves out looks whose adapter would be one more than the device has room for, beside those of the rows that run. Adapters can be more
    /// than the device has room for while rows use one that was replaced.
    fn keep_adapter_room(&self, inside: &WorkingSet, candidates: &mut Vec<LookCandidate>) {
        let jobs = (0..inside.active.len()).map(|i| inside.active.at(i));
        let used = jobs.filter_map(|job| Some(job.adapter.as_ref()?.number));
        let mut used: BTreeSet<AdapterNumber> = used.collect();
        candidates.retain(|candidate| {
            let look = inside.admission.get(candidate.look);
            let number = look.and_then(|look| look.request.adapter_number());
            number.is_none_or(|number| {
                used.contains(&number) || used.len() < self.limits.adapters && used.insert(number)
            })
        });
    }

    /// What may go into the step beside its rows. Every running job may soon want a page more.
    fn budget(&self, inside: &WorkingSet, draft: &StepDraft) -> Budget {
        let step = &draft.step;
        let running = inside.active.running();
        let positions = step.rows.iter().map(|row| row.inputs.positions());
        Budget {
            positions: self.limits.positions - positions.sum::<usize>(),
            rows: self.limits.rows - running.max(step.rows.len()),
            images: ImageRoom::of_step(self.limits.images, draft.short_rows > 0),
            pages: inside.kv.available().saturating_sub(running),
        }
    }

    /// Puts the image (when it is not in the cache) and the granted prompts into the step; false when pages were fewer
    /// than planned, because a known text was shared and its page was not free any more.
    fn start(&self, inside: &mut WorkingSet, draft: &mut StepDraft, grant: &Grant) -> bool {
        let Some(mut look) = inside.admission.remove(grant.look) else {
            return false;
        };
        let started = self.start_look(inside, draft, &mut look, grant);
        inside.admission.restore(grant.look, look);
        started
    }

    fn start_look(
        &self,
        inside: &mut WorkingSet,
        draft: &mut StepDraft,
        look: &mut AdmittedLook,
        grant: &Grant,
    ) -> bool {
        let now = draft.record.launched;
        let mut prefix = PrefixOrigin::Own;
        if look.request.picture.is_some() && look.prefix.is_none() {
            // A look that was started before may have replaced the kept picture.
            look.judge(&mut inside.kept, now);
            let has_room = draft.step.images.len() < self.limits.images;
            let Some(origin) = self.find_prefix(inside, look, has_room) else {
                return false;
            };
            prefix = origin;
        }
        let before = draft.step.rows.len();
        for _ in 0..grant.prompts {
            if !self.start_job(inside, draft, look) {
                break;
            }
        }
        if draft.step.rows.len() == before {
            // An image without a row is not encoded.
            if prefix != PrefixOrigin::Own
                && let Some(pages) = look.prefix.take()
            {
                inside.kv.release(pages.iter().copied());
            }
            return false;
        }
        look.started.get_or_insert(now);
        match prefix {
            PrefixOrigin::Own => {}
            PrefixOrigin::Kept => {
                inside.work.prefixes_reused += 1;
                let measured = &look.request.measured;
                look.model_size = measured.as_ref().map_or((0, 0), |m| m.measure.model_size);
            }
            PrefixOrigin::Encoded => {
                // Of the verdict, which the encoding takes.
                let work = look.image_work();
                draft.step.images.extend(encode(inside, look, now));
                draft.record.images.push(ImageRecord {
                    look: grant.look,
                    root: look.root(),
                    work,
                });
            }
        }
        true
    }

    /// Gives the look the kept prefix of a picture that does not differ, or pages for a prefix of its own, if the step has room
    /// for an image; `None` when there are too few pages.
    fn find_prefix(
        &self,
        inside: &mut WorkingSet,
        look: &mut AdmittedLook,
        has_room: bool,
    ) -> Option<PrefixOrigin> {
        let same = look.same_as();
        if same.is_some()
            && let Some(pages) = inside.kv.find_image(look.behind(same))
        {
            (look.prefix, look.image) = (Some(pages), same);
            return Some(PrefixOrigin::Kept);
        }
        let wanted = (self.limits.prefix_positions).div_ceil(self.limits.page_tokens);
        let pages = has_room.then(|| inside.kv.take(wanted).ok()).flatten()?;
        // The features of the kept picture are there, but not a prefix of them with the look's adapter.
        let image = same.unwrap_or_else(|| inside.next_image());
        (look.prefix, look.image) = (Some(pages.into()), Some(image));
        Some(PrefixOrigin::Encoded)
    }

    /// Gives the look's next job its pages and puts its prefill into the step; false when there are too few.
    fn start_job(
        &self,
        inside: &mut WorkingSet,
        draft: &mut StepDraft,
        look: &mut AdmittedLook,
    ) -> bool {
        let Some(mut job) = look.waiting.pop_front() else {
            return false;
        };
        job.shorten_drafted_tokens(draft.spare_tokens);
        job.shorten_draft(draft.spare_picks);
        let own = inside.kv.find_text(look.root(), &job.prompt());
        let known = own.len() * self.limits.page_tokens;
        job.kv.own = own;
        if let Some(prefix) = &look.prefix {
            inside.kv.share(prefix);
            job.kv.prefix = Arc::clone(prefix);
            job.kv.prefix_positions = self.limits.prefix_positions;
        }
        let request = job.prefill(known);
        let end = request.position + request.feed.positions() - job.kv.prefix_positions;
        let more = end.div_ceil(self.limits.page_tokens) - job.kv.own.len();
        match inside.kv.take(more) {
            Ok(pages) => job.kv.own.extend(pages),
            Err(_) => {
                inside.kv.release(job.kv.take_pages());
                look.waiting.push_front(job);
                return false;
            }
        }
        inside.work.prefills += 1;
        inside.work.drafted += request.drafted() as u64;
        draft.prefilled.push(job.id);
        let i = inside.active.insert(job);
        draft.add_row(inside, i, request);
        true
    }
}

/// Where the prefix comes from that a look got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PrefixOrigin {
    /// The look had it, or has no image.
    Own,
    /// It is in the cache.
    Kept,
    /// The step writes it.
    Encoded,
}

/// The look's picture becomes the kept one of its view. It has a prefix.
fn encode(inside: &mut WorkingSet, look: &mut AdmittedLook, now: Mono) -> Option<ImageJob> {
    let (picture, pages) = (look.request.picture.clone()?, look.prefix.clone()?);
    let mut crops = Vec::new();
    if let (Some(measured), Some(verdict), Some(image)) =
        (&look.request.measured, look.verdict.take(), look.image)
    {
        let (view, measure) = (&measured.view, &measured.measure);
        let encoded = inside.kept.encode(view, measure, &verdict, image, now);
        for image in encoded.dropped {
            inside.kv.drop_image(image);
        }
        crops = encoded.sources;
        if !crops.contains(&CropSource::Encoded(None)) {
            inside.kv.keep_image(look.root(), &pages);
        }
    }
    Some(ImageJob {
        picture,
        view: look.request.view,
        camera: look.request.camera.clone(),
        pages,
        crops,
        adapter: look.request.adapter.clone(),
    })
}

fn evict(inside: &mut WorkingSet, i: usize) {
    inside.work.evicted += 1;
    let job = inside.active.at_mut(i);
    job.state = JobState::Evicted;
    if job.is_finished() {
        inside.kv.release(job.kv.take_pages());
    }
}

/// The texts that the step writes can be found from the next step on.
fn index_texts(inside: &mut WorkingSet, prefilled: &[JobId]) {
    for id in prefilled {
        let look = inside.admission.get(id.0);
        let (Some(i), Some(look)) = (inside.active.index_of(*id), look) else {
            continue;
        };
        let job = inside.active.at(i);
        (inside.kv).know_text(look.root(), &job.prompt(), &job.kv.own);
    }
}
