//! What a commit means: decisions to sequences, answers out, pages back. The scheduler's other half; pure as well.

use super::{
    backend::{Committed, Picked, RowMask, SlotId},
    decision::Decision,
    draft,
    job::{JobId, Standing},
    kv::{OutOfPages, Root},
    request::{Event, Finding, LookId, Unfit},
    schedule::{Flight, FlightRow, Scheduler},
    sequence::Unexpected,
};
use spotter_core::Mono;

impl Scheduler {
    /// The masks of the step that waits for them, once everything before it is committed. Rows that ended meanwhile get
    /// none.
    pub fn masks(&mut self) -> Option<(SlotId, Vec<RowMask>)> {
        let (slot, flight) = self.pipeline.awaits_masks()?;
        let rows = flight.rows.iter().enumerate();
        let mask = |(row, flight): (usize, &FlightRow)| {
            let job = &self.jobs[self.job(flight.job)?];
            let wants = job.standing != Standing::Finalized && job.sequence.wants_mask();
            wants.then(|| RowMask {
                row,
                mask: job.sequence.mask(self.vocab),
            })
        };
        let masks = rows.filter_map(mask).collect();
        self.pipeline.finalized();
        Some((slot, masks))
    }

    /// Takes the results of the oldest step. An error means that the backend broke its contract.
    pub fn committed(&mut self, results: Committed, now: Mono) -> Result<(), Unexpected> {
        let Some(flight) = self.pipeline.committed() else {
            return Ok(());
        };
        self.work.crops_encoded += results.crops_encoded as u64;
        self.work.crops_reused += results.crops_reused as u64;
        for (id, size) in flight.images.iter().zip(&results.model_sizes) {
            if let Some(look) = self.looks.get_mut(id) {
                look.model_size = *size;
                look.image_times = Some(results.times);
            }
        }
        for (row, picked) in flight.rows.iter().zip(&results.picked) {
            self.settle(&flight, row, picked, now)?;
        }
        self.sweep();
        Ok(())
    }

    fn settle(
        &mut self,
        flight: &Flight,
        row: &FlightRow,
        picked: &[Picked],
        now: Mono,
    ) -> Result<(), Unexpected> {
        let Some(i) = self.job(row.job) else {
            return Ok(());
        };
        let job = &mut self.jobs[i];
        job.committed();
        if job.standing == Standing::Finalized {
            self.work.zombies += 1;
            return Ok(());
        }
        let decided: Vec<_> = picked.iter().map(|picked| Decision::of(*picked)).collect();
        let drafted = row.draft.as_deref().unwrap_or_default();
        let accepted = draft::accepted(drafted, &decided);
        for picked in &picked[..(accepted + 1).min(picked.len())] {
            job.sequence.advance(*picked)?;
            if job.sequence.has_ended() {
                break;
            }
        }
        if row.draft.is_some() {
            let guess = decided.iter().skip(accepted + 1).map_while(|d| *d);
            job.verified(drafted.len(), accepted, guess.collect());
            self.work.accepted += accepted as u64;
        }
        if let Some(look) = self.looks.get(&row.job.0) {
            let marks = &mut job.marks;
            if marks.prefilled == Mono::default() {
                let image = look.image_times.unwrap_or_default();
                marks.taken = look.started.unwrap_or(flight.launched);
                marks.prepared = image.started.max(marks.taken).after(image.prepare).min(now);
                marks.encoded = marks.prepared.after(image.encode).min(now);
                marks.prefilled = now;
            }
            marks.generated = now;
        }
        self.show_objects(i);
        if self.jobs[i].sequence.has_ended() {
            self.finish(i);
        }
        Ok(())
    }

    /// Tells the objects that are new.
    fn show_objects(&mut self, i: usize) {
        let job = &mut self.jobs[i];
        let (look, prompt) = job.id;
        let shown = self.looks.get(&look).is_some_and(|look| look.asked.objects);
        // An evicted job that starts again has shown more than it knows.
        let found = &job.sequence.found().objects;
        for &object in found.iter().skip(job.shown) {
            self.work.objects += 1;
            if shown {
                self.events.push(Event::Object(look, prompt, object));
            }
        }
        job.shown = job.shown.max(found.len());
    }

    /// The answer is there; the row leaves when no step carries it any more.
    fn finish(&mut self, i: usize) {
        let job = &mut self.jobs[i];
        job.standing = Standing::Finalized;
        let (id, index) = job.id;
        if let Some(key) = job.draft_key.take() {
            let decisions = job.sequence.decisions().to_vec();
            self.drafts.remember(key, decisions);
        }
        let finding = Finding {
            found: job.sequence.found().clone(),
            marks: job.marks,
        };
        let Some(look) = self.looks.get_mut(&id) else {
            return;
        };
        look.findings[index] = Some(finding);
        if look.findings.iter().all(Option::is_some) {
            let findings = std::mem::take(&mut look.findings);
            let model_size = look.model_size;
            self.close(id);
            self.events.push(Event::Answered {
                look: id,
                findings: findings.into_iter().flatten().collect(),
                model_size,
            });
        }
    }

    /// Nobody wants the look any more: its jobs are finalized, and no event will follow. False when it is not here.
    pub fn cancel(&mut self, look: LookId) -> bool {
        let here = self.looks.contains_key(&look);
        self.close(look);
        self.sweep();
        here
    }

    /// The look can never be answered, because of this prompt.
    pub(super) fn fail(&mut self, (look, prompt): JobId, what: String) {
        let why = Unfit { prompt, what };
        self.close(look);
        self.events.push(Event::Failed { look, why });
    }

    /// It needs position `position`, and there is none.
    pub(super) fn fail_for_context(&mut self, job: JobId, position: usize) {
        let context = self.limits.context;
        let what = format!("needs position {position}, the model's context ends at {context}");
        self.fail(job, what);
    }

    /// It needs more pages than there are when it has all of them.
    pub(super) fn fail_for_pages(&mut self, job: JobId, short: OutOfPages) {
        let pages = self.memory.count();
        let what = format!("does not fit into the {pages} KV pages: {short}; shorten it");
        self.fail(job, what);
    }

    pub(super) fn close(&mut self, id: LookId) {
        let Some(look) = self.looks.remove(&id) else {
            return;
        };
        for job in self.jobs.iter_mut().filter(|job| job.id.0 == id) {
            job.standing = Standing::Finalized;
        }
        self.memory.release(look.prefix.into_iter().flatten());
        self.memory.forget(Root::Image(id.0));
    }

    /// Jobs that no step carries any more leave: their pages go back, evicted ones to their look.
    pub(super) fn sweep(&mut self) {
        let gone: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|job| job.is_gone())
            .map(|job| job.id)
            .collect();
        for id in gone {
            let Some(i) = self.job(id) else { continue };
            let mut job = self.jobs.remove(i);
            self.memory.release(job.kv.take_pages());
            if let (Standing::Evicted, Some(look)) = (job.standing, self.looks.get_mut(&id.0)) {
                let place = look.waiting.partition_point(|other| other.id < id);
                look.waiting.insert(place, job.restarted());
            }
        }
    }
}
