//! Waiting prompts into the next step: drafts, grants, pages, rows. A part of the scheduler; pure.
//!
//! ```text
//!   look   image ─▶ prefix pages, written once        step   images: [image]
//!          prompts ─▶ job, own pages, prefill row ─▶         rows:   [.. decodes .., prompt + draft, prompt + draft]
//! ```

use std::collections::BTreeMap;

use super::{
    backend::{ImageJob, Step},
    job::{Job, JobId, Standing},
    kv::{OutOfPages, Root},
    plan::{self, Budget, Candidate, Grant, IMAGES_WITH_DECODE, Need},
    request::LookId,
    schedule::{Building, Look, Scheduler},
};
use spotter_core::CameraId;

impl Scheduler {
    pub(super) fn add_prefills(&mut self, building: &mut Building) {
        self.offer_drafts();
        loop {
            let candidates = self.candidates();
            let grants = plan::grants(&candidates, self.budget(&building.step));
            for grant in &grants {
                if !self.start(building, grant) {
                    return;
                }
            }
            let stuck = self.jobs.is_empty() && self.pipeline.in_flight() == 0;
            let Some(first) = candidates.first().filter(|_| stuck && grants.is_empty()) else {
                return;
            };
            // Everything is free but images that wait for rows of their own, and drafts want room that answers do not. If
            // that is not enough, nothing ever is.
            if !self.drop_idle_prefix(Some(first.look)) && !self.withdraw_drafts(first.look) {
                let (wanted, free) = (first.pages_wanted(), self.memory.available());
                self.fail_for_pages((first.look, 0), OutOfPages { wanted, free });
            }
        }
    }

    /// Gives every waiting prompt the last answer of its kind, as far as the context reaches.
    fn offer_drafts(&mut self) {
        if !self.options.draft {
            return;
        }
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
    fn withdraw_drafts(&mut self, look: LookId) -> bool {
        let jobs = self.looks.get_mut(&look).map(|look| &mut look.waiting);
        let withdrawn = jobs.into_iter().flatten().map(Job::withdraw_draft);
        withdrawn.fold(false, |any, had| any | had)
    }

    /// What may go into the step beside its rows. Every running job may soon want a page more.
    fn budget(&self, step: &Step) -> Budget {
        let running = |job: &&Job| job.standing == Standing::Running;
        let running = self.jobs.iter().filter(running).count();
        let decoding = !step.rows.is_empty();
        let images = match decoding {
            true => self.limits.images.min(IMAGES_WITH_DECODE),
            false => self.limits.images,
        };
        let positions = step.rows.iter().map(|row| row.inputs.positions());
        Budget {
            positions: self.limits.positions - positions.sum::<usize>(),
            rows: self.limits.rows - running.max(step.rows.len()),
            images: images - step.images.len(),
            pages: self.memory.available().saturating_sub(running),
        }
    }

    /// Looks with waiting prompts, in order.
    fn candidates(&self) -> Vec<Candidate> {
        if self.looks.values().all(|look| look.waiting.is_empty()) {
            return Vec::new();
        }
        let mut of_camera: BTreeMap<&CameraId, usize> = BTreeMap::new();
        let busy = |id: LookId| self.jobs.iter().any(|job| job.id.0 == id);
        // Running looks come first, so that they count before those that only wait.
        let (running, queued): (Vec<_>, Vec<_>) = self.looks.iter().partition(|(id, _)| busy(**id));
        let pages = |positions: usize| positions.div_ceil(self.limits.page_tokens);
        let mut all = Vec::new();
        for (&id, look) in running.into_iter().chain(queued) {
            let mut rank = 0;
            if let Some(camera) = &look.asked.camera {
                let looks = of_camera.entry(camera).or_default();
                rank = *looks;
                *looks += 1;
            }
            let needs_image = look.asked.picture.is_some() && look.prefix.is_none();
            let need = |positions| Need {
                pages: pages(positions),
                positions,
            };
            let prompts = look.waiting.iter().map(Job::prefill_positions);
            all.push(Candidate {
                look: id,
                rank,
                start_by: look.asked.start_by,
                image_pages: needs_image.then(|| pages(self.limits.prefix_positions)),
                prompts: prompts.map(need).collect(),
            });
        }
        all.retain(|candidate| !candidate.prompts.is_empty());
        all.sort_by_key(Candidate::order);
        all
    }

    /// Puts the image (when it is not in the cache) and the granted prompts into the step; false when pages were fewer
    /// than planned, because a known text was shared instead of making room.
    fn start(&mut self, building: &mut Building, grant: &Grant) -> bool {
        let Some(mut look) = self.looks.remove(&grant.look) else {
            return false;
        };
        let started = self.start_look(building, &mut look, grant);
        self.looks.insert(grant.look, look);
        started
    }

    fn start_look(&mut self, building: &mut Building, look: &mut Look, grant: &Grant) -> bool {
        let mut encode = None;
        if let (Some(picture), None) = (&look.asked.picture, &look.prefix) {
            let wanted = (self.limits.prefix_positions).div_ceil(self.limits.page_tokens);
            let Ok(pages) = self.memory.take(wanted) else {
                return false;
            };
            look.prefix = Some(pages.clone());
            encode = Some(ImageJob {
                picture: picture.clone(),
                pages,
                camera: look
                    .asked
                    .camera
                    .clone()
                    .filter(|_| self.options.tile_reuse),
            });
        }
        let before = building.step.rows.len();
        for _ in 0..grant.prompts {
            if !self.start_job(building, look) {
                break;
            }
        }
        if building.step.rows.len() == before {
            // An image without a row is not encoded for nobody.
            if let Some(image) = encode {
                look.prefix = None;
                self.memory.release(image.pages);
            }
            return false;
        }
        look.started.get_or_insert(building.flight.launched);
        if let Some(image) = encode {
            building.step.images.push(image);
            building.flight.images.push(grant.look);
        }
        true
    }

    /// Gives the look's next job its pages and puts its prefill into the step; false when there are too few.
    fn start_job(&mut self, building: &mut Building, look: &mut Look) -> bool {
        let Some(mut job) = look.waiting.pop_front() else {
            return false;
        };
        job.shorten_drafted_tokens(building.spare_tokens);
        let prompt = job.prompt();
        let root = root(job.id.0, look);
        let own = self.memory.find_text(root, &prompt);
        let known = own.len() * self.limits.page_tokens;
        job.kv.own = own;
        if let Some(prefix) = &look.prefix {
            self.memory.share(prefix);
            job.kv.prefix = prefix.clone();
            job.kv.prefix_positions = self.limits.prefix_positions;
        }
        let wish = job.prefill(known);
        let end = wish.position + wish.feed.positions() - job.kv.prefix_positions;
        let more = end.div_ceil(self.limits.page_tokens) - job.kv.own.len();
        match self.memory.take(more) {
            Ok(pages) => job.kv.own.extend(pages),
            Err(_) => {
                self.memory.release(job.kv.take_pages());
                look.waiting.push_front(job);
                return false;
            }
        }
        self.work.prefills += 1;
        self.work.prefill_positions += wish.feed.positions() as u64;
        self.work.known_positions += known as u64;
        self.work.drafted += wish.drafted() as u64;
        building.prefilled.push(job.id);
        let place = self.jobs.partition_point(|other| other.id < job.id);
        self.jobs.insert(place, job);
        self.add_row(building, place, wish);
        true
    }

    /// The texts that the step writes can be found from the next step on.
    pub(super) fn know_texts(&mut self, prefilled: &[JobId]) {
        for id in prefilled {
            let (Some(job), Some(look)) = (self.job(*id), self.looks.get(&id.0)) else {
                continue;
            };
            let job = &self.jobs[job];
            let root = root(id.0, look);
            self.memory.know_text(root, &job.prompt(), &job.kv.own);
        }
    }
}

fn root(id: LookId, look: &Look) -> Root {
    match look.asked.picture {
        Some(_) => Root::Image(id.0),
        None => Root::Nothing,
    }
}
