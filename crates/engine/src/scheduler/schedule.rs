//! The scheduler: looks in, steps out. Pure: it holds no device and no clock, and never learns which backend runs.
//!
//! ```text
//!   admit ─▶ waiting prompts ──plan──▶ jobs ──next_step──▶ Step ─▶ backend
//!                  ▲                    │ ▲                            │
//!                  └──── evicted ───────┘ └──────── committed ◀────────┘        events: object, answered, late, failed
//! ```
//!
//! Belongs here: its state and the next step's frame. Its parts have files of their own: `start` puts waiting prompts
//! into the step, `room` finds pages for rows, `settle` takes results.

use std::collections::{BTreeMap, VecDeque};

use super::{
    backend::{Limits, PageId, Row, RowRef, SlotId, Step, StepTimes},
    decision::Decision,
    draft::Drafts,
    job::{Job, JobId, Wish},
    kv::Memory,
    pipeline::Pipeline,
    request::{Decide, Event, Finding, LookId, Options, Request, Work},
};
use spotter_core::Mono;

/// A look with prompts that are not answered yet.
pub(super) struct Look {
    /// What was asked; its prompts are in `waiting`, in jobs or in `findings`.
    pub asked: Request,
    /// Pages of the image, from the step on that writes them. The look and each of its jobs hold them.
    pub prefix: Option<Vec<PageId>>,
    /// In order; those that return from an eviction come first.
    pub waiting: VecDeque<Job>,
    pub started: Option<Mono>,
    pub image_times: Option<StepTimes>,
    pub model_size: (u32, u32),
    pub findings: Vec<Option<Finding>>,
}

impl Look {
    /// Positions of its image in the cache.
    pub fn prefix_positions(&self, limits: &Limits) -> usize {
        match self.asked.picture {
            Some(_) => limits.prefix_positions,
            None => 0,
        }
    }
}

/// What has to be known at a step's commit.
pub struct Flight {
    pub(super) rows: Vec<FlightRow>,
    pub(super) images: Vec<LookId>,
    pub(super) launched: Mono,
}

pub(super) struct FlightRow {
    pub job: JobId,
    pub draft: Option<Vec<Decision>>,
}

/// See the module.
pub struct Scheduler {
    pub(super) limits: Limits,
    pub(super) vocab: usize,
    pub(super) options: Options,
    pub(super) memory: Memory,
    pub(super) pipeline: Pipeline<Flight>,
    pub(super) looks: BTreeMap<LookId, Look>,
    /// With rows and pages, the oldest first.
    pub(super) jobs: Vec<Job>,
    pub(super) drafts: Drafts,
    pub(super) events: Vec<Event>,
    pub(super) work: Work,
    arrivals: u64,
}

/// A step under construction.
pub(super) struct Building {
    pub slot: SlotId,
    pub step: Step,
    pub flight: Flight,
    /// Jobs whose prompt the step writes, to be known as text afterwards.
    pub prefilled: Vec<JobId>,
    /// Tokens that drafts may choose in it, beside one of each row.
    pub spare_tokens: usize,
}

impl Scheduler {
    /// For a backend with these limits and a model with `vocab` tokens.
    pub fn new(limits: Limits, vocab: usize, options: Options) -> Self {
        Self {
            limits,
            vocab,
            options,
            memory: Memory::new(limits.pages, limits.page_tokens),
            pipeline: Pipeline::new(options.depth.min(limits.slots)),
            looks: BTreeMap::new(),
            jobs: Vec::new(),
            drafts: Drafts::default(),
            events: Vec::new(),
            work: Work::default(),
            arrivals: 0,
        }
    }

    /// Takes a look; it ends with an event.
    pub fn admit(&mut self, mut request: Request) -> LookId {
        let id = LookId(self.arrivals);
        self.arrivals += 1;
        let job = |(index, ask)| Job::new((id, index), ask);
        let waiting: VecDeque<Job> = request.asks.drain(..).enumerate().map(job).collect();
        let look = Look {
            asked: request,
            prefix: None,
            findings: vec![None; waiting.len()],
            waiting,
            started: None,
            image_times: None,
            model_size: (0, 0),
        };
        let prefix = look.prefix_positions(&self.limits);
        let end = |job: &Job| (job.id, prefix + job.prompt().len());
        let mut ends = look.waiting.iter().map(end);
        let too_long = ends.find(|(_, end)| *end > self.limits.context);
        self.looks.insert(id, look);
        if let Some((job, end)) = too_long {
            self.fail_for_context(job, end);
        }
        id
    }

    /// True when nothing is asked and nothing in flight.
    pub fn is_idle(&self) -> bool {
        self.looks.is_empty() && self.pipeline.in_flight() == 0
    }

    /// Slots and phases.
    pub fn pipeline(&mut self) -> &mut Pipeline<Flight> {
        &mut self.pipeline
    }

    /// Pages that looks hold; text that is only remembered does not count.
    pub fn pages_in_use(&self) -> usize {
        self.memory.count() - self.memory.available()
    }

    /// Work done so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Pages that nobody reads any more; for the backend's poison.
    pub fn take_freed(&mut self) -> Vec<PageId> {
        self.memory.take_freed()
    }

    /// The next step, with the slot to launch it in; `None` when no slot is free or nothing can run now.
    pub fn next_step(&mut self, now: Mono) -> Option<(SlotId, Step)> {
        let slot = self.pipeline.free_slot()?;
        self.drop_late(now);
        let mut building = Building {
            slot,
            step: Step::default(),
            flight: Flight {
                rows: Vec::new(),
                images: Vec::new(),
                launched: now,
            },
            prefilled: Vec::new(),
            spare_tokens: self.limits.tokens - self.limits.rows,
        };
        self.add_decodes(&mut building);
        self.sweep();
        self.add_prefills(&mut building);
        if building.step.rows.is_empty() {
            return None;
        }
        self.know_texts(&building.prefilled);
        let Building { step, flight, .. } = building;
        self.work.steps += 1;
        self.work.images += step.images.len() as u64;
        let wants_masks = step.rows.iter().any(Row::wants_mask);
        self.pipeline.launched(slot, wants_masks, flight);
        Some((slot, step))
    }

    /// A look that waits too long is not begun, one that runs too long is stopped.
    fn drop_late(&mut self, now: Mono) {
        let late = |look: &Look| match look.started {
            Some(_) => now > look.asked.answer_by,
            None => now > look.asked.start_by.min(look.asked.answer_by),
        };
        let late = self.looks.iter().filter(|(_, look)| late(look));
        for look in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.close(look);
            self.events.push(Event::Late { look });
        }
        self.sweep();
    }

    /// Every job that can take a step does, the oldest first.
    fn add_decodes(&mut self, building: &mut Building) {
        let carry = self.options.decide == Decide::Device;
        for i in 0..self.jobs.len() {
            self.fit_draft(i, building.spare_tokens);
            let Some(wish) = self.jobs[i].decode(carry) else {
                continue;
            };
            let end = wish.position + wish.feed.positions();
            if end > self.limits.context {
                // A row that runs ahead may turn out to have ended before.
                if self.jobs[i].inflight_refs == 0 {
                    self.fail_for_context(self.jobs[i].id, end);
                }
                continue;
            }
            if self.give_pages(i, end) {
                self.work.decodes += 1;
                self.work.drafted += wish.drafted() as u64;
                self.add_row(building, i, wish);
            }
        }
    }

    pub(super) fn add_row(&mut self, building: &mut Building, job: usize, wish: Wish) {
        let job = &mut self.jobs[job];
        let row = building.step.rows.len();
        let tokens = wish.picks.iter().filter(|pick| pick.is_token()).count();
        building.spare_tokens -= tokens.saturating_sub(1);
        job.launched(
            &wish,
            RowRef {
                slot: building.slot,
                row,
            },
        );
        building.flight.rows.push(FlightRow {
            job: job.id,
            draft: wish.draft,
        });
        debug_assert!(job.inflight_refs <= self.options.depth);
        building.step.rows.push(Row {
            inputs: wish.feed,
            position: wish.position,
            kv: job.kv.clone(),
            picks: wish.picks,
        });
    }

    pub(super) fn job(&self, id: JobId) -> Option<usize> {
        self.jobs.binary_search_by_key(&id, |job| job.id).ok()
    }
}
