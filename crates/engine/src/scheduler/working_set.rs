//! Everything that is inside of the engine, and the changes that concern looks, jobs and pages together. Pure.

use super::{
    active::ActiveJobs,
    admission::Admission,
    backend::BackendLimits,
    job::{JobId, JobState},
    kv::{KvPool, OutOfPages},
    request::{
        Ask, LookEvent, LookFault, LookId, LookRequest, Options, PromptResult, UnfitPrompt, Work,
    },
    still::{ImageNumber, KeptPictures},
};
use spotter_core::{Mono, StageTimes, TokenCounts};
use std::time::Duration;

pub(super) struct WorkingSet {
    pub admission: Admission,
    pub active: ActiveJobs,
    pub kv: KvPool,
    pub kept: KeptPictures,
    images: u64,
    pub events: Vec<LookEvent>,
    pub work: Work,
    /// Steps of the looks that were answered, up to where only free texts were left.
    pub look_steps: Vec<u32>,
    /// Steps that were settled.
    pub settled: u64,
    /// Positions that a row may have.
    context: usize,
}

impl WorkingSet {
    pub fn new(limits: BackendLimits, options: Options) -> Self {
        // Without a rule nothing is kept.
        let kept_crops = options.reuse.map_or(0, |_| limits.kept_crops);
        let max_age = options.reuse.map_or(Duration::ZERO, |rule| rule.max_age);
        Self {
            admission: Admission::new(limits),
            active: ActiveJobs::default(),
            kv: KvPool::new(limits.pages, limits.page_tokens),
            kept: KeptPictures::new(kept_crops, max_age),
            images: 0,
            events: Vec::new(),
            work: Work::default(),
            look_steps: Vec::new(),
            settled: 0,
            context: limits.context,
        }
    }

    pub fn admit(&mut self, request: LookRequest) -> LookId {
        let (id, too_long) = self.admission.admit(request);
        if let Some(too_long) = too_long {
            self.fail_for_context(too_long.job, too_long.end);
        }
        id
    }

    /// Asks what follows an answer of the look, which may be nothing. False when nothing can follow it any more.
    pub fn follow_up(&mut self, look: LookId, prompt: usize, asks: Vec<Ask>) -> bool {
        let Some(too_long) = self.admission.follow_up(look, prompt, asks) else {
            return false;
        };
        if let Some(too_long) = too_long {
            self.fail_for_context(too_long.job, too_long.end);
        }
        true
    }

    /// Looks wait no more for what follows their answers, but for as long as they may after `now`.
    pub fn end_follow_ups(&mut self, now: Mono) {
        for look in self.admission.end_follow_ups(now) {
            self.report_end(look);
        }
    }

    /// Ends the looks whose deadline has passed.
    pub fn drop_late(&mut self, now: Mono) {
        self.end_follow_ups(now);
        for look in self.admission.late(now) {
            let spent = self.admission.get(look).map(|look| look.device_time);
            self.work.wasted += spent.unwrap_or_default();
            self.close(look);
            self.events.push(LookEvent::Late { look });
        }
        self.sweep();
    }

    /// Removes a look and releases its image. Its jobs leave with the steps that carry them.
    pub fn close(&mut self, id: LookId) {
        let Some(look) = self.admission.remove(id) else {
            return;
        };
        self.active.finalize(id);
        self.kv
            .release(look.prefix.iter().flat_map(|pages| pages.iter().copied()));
        if look.image.is_some() {
            self.kv.forget(look.root());
        }
    }

    /// The number of the next image that is encoded.
    pub fn next_image(&mut self) -> ImageNumber {
        self.images += 1;
        ImageNumber(self.images)
    }

    /// Compares the pictures of looks that wait with the kept ones. Where nothing changed, prompts whose last answer is known get
    /// it again.
    pub fn answer_unchanged(&mut self, now: Mono) {
        for id in self.admission.looks_without_prefix() {
            let Some(look) = self.admission.get_mut(id) else {
                continue;
            };
            look.judge(&mut self.kept, now);
            let (Some(measured), Some(image)) = (&look.request.measured, look.same_as()) else {
                continue;
            };
            look.model_size = measured.measure.model_size;
            let (kept, view) = (&self.kept, &measured.view);
            let mut waiting = std::mem::take(&mut look.waiting);
            waiting.retain(|job| {
                let key = job.draft_key.as_ref();
                let Some(found) = key.and_then(|key| kept.answer(view, image, key, &job.prompt()))
                else {
                    return true;
                };
                self.work.unchanged += 1;
                if job.in_pieces {
                    let pieces = found.pieces_after(job.reported);
                    let event = |piece| LookEvent::Piece(id, job.id.1, piece);
                    self.events.extend(pieces.map(event));
                }
                look.unanswered.remove(job.is_text);
                self.events.push(LookEvent::Answer {
                    look: id,
                    prompt: job.id.1,
                    result: PromptResult {
                        found: found.clone(),
                        tokens: TokenCounts::default(),
                        marks: StageTimes {
                            taken: now,
                            prepared: now,
                            encoded: now,
                            prefilled: now,
                            generated: now,
                            device: Duration::ZERO,
                        },
                        unchanged: true,
                    },
                    model_size: look.model_size,
                });
                false
            });
            look.waiting = waiting;
            self.report_end(id);
        }
    }

    /// Reports that the short answers of a look are there, and that all are.
    pub fn report_end(&mut self, id: LookId) {
        let look = self.admission.get_mut(id);
        let Some(look) = look.filter(|look| look.is_short_answered()) else {
            return;
        };
        let is_over = look.is_over();
        if !look.only_text_left {
            look.only_text_left = true;
            // A look without a step, or at a picture from no camera, says nothing about the steps of others.
            self.look_steps
                .extend((look.steps > 0 && look.request.camera.is_some()).then_some(look.steps));
            self.events.push(LookEvent::ShortAnswered { look: id });
        }
        if is_over {
            self.close(id);
            self.events.push(LookEvent::Answered { look: id });
        }
    }

    /// Jobs that no step carries any more leave: their pages are released, evicted ones wait again.
    pub fn sweep(&mut self) {
        while let Some(mut job) = self.active.take_finished() {
            self.kv.release(job.kv.take_pages());
            if job.state == JobState::Evicted {
                self.admission.requeue(job);
            }
        }
    }

    /// Releases the youngest image that no job reads, but not the image of `keep`; false when there is none. It is encoded
    /// again when its prompts are started.
    pub fn drop_idle_prefix(&mut self, keep: Option<LookId>) -> bool {
        let Some((root, prefix)) = self.admission.take_idle_prefix(&self.active, keep) else {
            return false;
        };
        self.kv.release(prefix.iter().copied());
        self.kv.forget(root);
        true
    }

    /// The job needs position `position`, which is outside of the context.
    pub fn fail_for_context(&mut self, job: JobId, position: usize) {
        let context = self.context;
        let what = format!("needs position {position}, the model's context ends at {context}");
        self.fail(job, what);
    }

    /// The job needs more pages than the device has.
    pub fn fail_for_pages(&mut self, job: JobId, short: OutOfPages) {
        let pages = self.kv.count();
        let what = format!("does not fit into the {pages} KV pages: {short}; shorten it");
        self.fail(job, what);
    }

    fn fail(&mut self, job: JobId, what: String) {
        let (look, prompt) = job;
        self.fail_look(look, LookFault::Prompt(UnfitPrompt { prompt, what }));
    }

    /// Ends a look without its answers.
    pub fn fail_look(&mut self, look: LookId, why: LookFault) {
        self.close(look);
        self.events.push(LookEvent::Failed { look, why });
    }
}
