//! Everything that is inside of the engine, and the changes that concern looks, jobs and pages together. Pure.

use super::{
    active::ActiveJobs,
    admission::Admission,
    backend::BackendLimits,
    job::{JobId, JobState},
    kv::{KvPool, OutOfPages, PrefixRoot},
    request::{LookEvent, LookId, LookRequest, UnfitPrompt, Work},
};
use spotter_core::Mono;

pub(super) struct WorkingSet {
    pub admission: Admission,
    pub active: ActiveJobs,
    pub kv: KvPool,
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
    pub fn new(limits: BackendLimits) -> Self {
        Self {
            admission: Admission::new(limits),
            active: ActiveJobs::default(),
            kv: KvPool::new(limits.pages, limits.page_tokens),
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

    /// Ends the looks whose deadline has passed.
    pub fn drop_late(&mut self, now: Mono) {
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
        self.kv.forget(PrefixRoot::Image(id.0));
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
        let Some((id, prefix)) = self.admission.take_idle_prefix(&self.active, keep) else {
            return false;
        };
        self.kv.release(prefix.iter().copied());
        self.kv.forget(PrefixRoot::Image(id.0));
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
        let why = UnfitPrompt { prompt, what };
        self.close(look);
        self.events.push(LookEvent::Failed { look, why });
    }
}
