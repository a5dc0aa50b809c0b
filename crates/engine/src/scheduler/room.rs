//! Pages for rows that grow: where they come from when none is free. A part of the scheduler; pure.
//!
//! ```text
//!   free ─▶ texts that are only remembered ─▶ images that no row reads now ─▶ the youngest row, back to the queue
//! ```
//!
//! The oldest row is never sent back, so it ends, and then its pages are there: nothing waits for ever. A row that does not
//! fit although it is alone never will, and its look fails.

use super::{
    job::{Job, Standing},
    kv::Root,
    request::LookId,
    schedule::Scheduler,
};

impl Scheduler {
    /// Leaves so much of job `i`'s draft as has room without taking it from anybody, in a step that has `spare_tokens` left.
    pub(super) fn fit_draft(&mut self, i: usize, spare_tokens: usize) {
        self.jobs[i].shorten_drafted_tokens(spare_tokens);
        let job = &self.jobs[i];
        if let Some(needed) = job.end_without_draft() {
            let pages = job.kv.own.len() + self.memory.available();
            let paged = job.kv.prefix_positions + pages * self.limits.page_tokens;
            let room = self.limits.context.min(paged).saturating_sub(needed);
            // Every row may have a draft, and all of them go into one step.
            let share = self.limits.positions / self.limits.rows;
            self.jobs[i].shorten_draft(room.min(share.saturating_sub(1)));
        }
    }

    /// Pages for the positions of job `i` up to `end`. When there are none, images that nobody reads now make room, then
    /// the youngest job; false when the job has to wait.
    pub(super) fn give_pages(&mut self, i: usize, end: usize) -> bool {
        let kv = &self.jobs[i].kv;
        let wanted = (end - kv.prefix_positions).div_ceil(self.limits.page_tokens);
        let more = wanted.saturating_sub(kv.own.len());
        if more == 0 {
            return true;
        }
        loop {
            let source = match self.memory.take(more) {
                Ok(pages) => {
                    self.jobs[i].kv.own.extend(pages);
                    return true;
                }
                Err(short) => short,
            };
            if self.drop_idle_prefix(None) {
                continue;
            }
            let leaving = |job: &Job| job.standing != Standing::Running && job.inflight_refs > 0;
            if self.jobs.iter().any(leaving) {
                return false;
            }
            let running = |job: &Job| job.standing == Standing::Running;
            let Some(youngest) = self.jobs.iter().rposition(running) else {
                return false;
            };
            if youngest == i && !self.jobs[..i].iter().any(running) {
                self.fail_for_pages(self.jobs[i].id, source);
                return false;
            }
            self.evict(youngest);
            if youngest == i {
                return false;
            }
        }
    }

    fn evict(&mut self, job: usize) {
        self.work.evicted += 1;
        let job = &mut self.jobs[job];
        job.standing = Standing::Evicted;
        if job.is_gone() {
            self.memory.release(job.kv.take_pages());
        }
    }

    /// Lets go of the youngest image that no job reads, but not of the image of `keep`; false when there is none. It is
    /// encoded again when its prompts get their turn.
    pub(super) fn drop_idle_prefix(&mut self, keep: Option<LookId>) -> bool {
        let in_use = |id: LookId| self.jobs.iter().any(|job| job.id.0 == id);
        let mut idle = self.looks.iter_mut().rev();
        let Some((&id, prefix)) = idle.find_map(|(id, look)| {
            let may_go = Some(*id) != keep && !in_use(*id);
            let prefix = may_go.then(|| look.prefix.take()).flatten()?;
            Some((id, prefix))
        }) else {
            return false;
        };
        self.memory.release(prefix);
        self.memory.forget(Root::Image(id.0));
        true
    }
}
