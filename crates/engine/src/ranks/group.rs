//! [`RankGroup`]: backends that work as one, each on a thread of its own.
//!
//! ```text
//!   rank 0   launch t+1 │ commit t ──────────┬─ compare ─▶ results, on the engine's thread
//!   rank 1    launch t+1 │ commit t ─────────┘
//! ```
//!
//! A call goes to the other ranks and is then made of the leader, rank 0, whose result is the group's. What the others return is compared
//! with it when it is there, in a commit at the latest: all ranks compute the same bits, so all decide alike and refuse the same steps.

use std::{
    collections::VecDeque,
    mem,
    rc::Rc,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    thread::{Builder, JoinHandle},
};

use super::RankLeft;
use crate::scheduler::backend::{
    Backend, BackendError, BackendLimits, GraphUse, PageId, PickResult, RowMask, SlotId, Step,
    StepResult,
};

type BuiltRank = Result<Box<dyn Backend>, String>;

/// Builds a rank, on the thread that uses it.
pub type RankBuild = Box<dyn FnOnce() -> BuiltRank + Send>;

/// Several backends as one.
pub struct RankGroup {
    // Dropped in this order: all ranks end before a thread is waited for, because ranks may wait for each other when they end.
    calls: Vec<Sender<RankCall>>,
    leader: Box<dyn Backend>,
    others: Vec<OtherRank>,
    /// Since the last launch.
    released: Vec<PageId>,
}

/// What the leader has of another rank.
struct OtherRank {
    /// Like `rank 1 of 2`.
    name: String,
    built: Receiver<Result<BackendLimits, String>>,
    replies: Receiver<RankReply>,
    /// What the leader returned in calls that it has not answered yet.
    expected: VecDeque<Rc<RankReply>>,
    _thread: JoinedThread,
}

/// The decisions of a commit; none of other calls.
type RankReply = Result<Vec<Vec<PickResult>>, BackendError>;

enum RankCall {
    Launch {
        released: Arc<[PageId]>,
        slot: SlotId,
        step: Step,
    },
    Finalize(SlotId, Vec<RowMask>),
    Commit(SlotId),
    PrepareShape,
}

/// Which replies are waited for.
#[derive(Clone, Copy)]
enum Replies {
    /// None.
    Arrived,
    All,
}

/// Waits for the thread when it is dropped.
struct JoinedThread(Option<JoinHandle<()>>);

impl Drop for JoinedThread {
    fn drop(&mut self) {
        // Its panic was reported when it happened.
        self.0.take().map(JoinHandle::join);
    }
}

impl RankGroup {
    /// Builds all ranks at once, the leader on this thread, and waits for them. Of several errors, the error is one that is not about
    /// another rank.
    pub fn build(
        leader: impl FnOnce() -> BuiltRank,
        others: Vec<RankBuild>,
    ) -> Result<Self, String> {
        let ranks = others.len() + 1;
        let mut errors = Vec::new();
        let mut started = Vec::new();
        // Dropped before `started`, so that the threads end.
        let mut calls = Vec::new();
        for (rank, build) in (1..).zip(others) {
            match OtherRank::start(format!("rank {rank} of {ranks}"), build) {
                Ok((sender, other)) => {
                    calls.push(sender);
                    started.push(other);
                }
                Err(error) => errors.push(error),
            }
        }
        let leader = leader();
        for other in &started {
            let built = other.built.recv();
            let built = built.unwrap_or_else(|_| Err(other.panicked()));
            let offered = leader.as_ref().ok().map(|leader| leader.limits());
            match built {
                Err(error) => errors.push(error),
                Ok(limits) if offered.is_some_and(|offered| offered != limits) => {
                    errors.push(format!("{} has other limits than rank 0", other.name));
                }
                Ok(_) => {}
            }
        }
        match leader {
            Ok(leader) if errors.is_empty() => Ok(Self {
                calls,
                leader,
                others: started,
                released: Vec::new(),
            }),
            leader => {
                drop(calls);
                errors.extend(leader.err());
                Err(first_cause(errors).unwrap_or_default())
            }
        }
    }

    /// Has all other ranks make a call.
    fn call(&mut self, call: impl Fn() -> RankCall) -> Result<(), BackendError> {
        let mut has_left = false;
        for calls in &self.calls {
            has_left |= calls.send(call()).is_err();
        }
        match has_left {
            false => Ok(()),
            true => self
                .settle()
                .and(Err(BackendError::Device(RankLeft.to_string()))),
        }
    }

    /// What the group returns of a call in which the leader returned `own`.
    fn conclude<T>(
        &mut self,
        own: Result<T, BackendError>,
        picked: impl FnOnce(&T) -> Vec<Vec<PickResult>>,
        replies: Replies,
    ) -> Result<T, BackendError> {
        let expected = Rc::new(own.as_ref().map(picked).map_err(Clone::clone));
        for other in &mut self.others {
            other.expected.push_back(Rc::clone(&expected));
        }
        let replies = match &own {
            // Its own error is soon there.
            Err(BackendError::Device(reason)) if RankLeft::is_in(reason) => Replies::All,
            // The others may wait for the leader.
            Err(BackendError::Device(_)) => Replies::Arrived,
            _ => replies,
        };
        let mut errors = self.compare_replies(replies);
        if let Err(BackendError::Device(reason)) = &own {
            errors.push(reason.clone());
        }
        match first_cause(errors) {
            None => own,
            Some(cause) => Err(BackendError::Device(cause)),
        }
    }

    /// Compares replies with what the leader returned. Returns what is wrong with ranks that are lost, or returned something else.
    fn compare_replies(&mut self, replies: Replies) -> Vec<String> {
        let others = self.others.iter_mut();
        let errors = others.filter_map(|other| other.compare_replies(replies).err());
        errors.collect()
    }

    fn settle(&mut self) -> Result<(), BackendError> {
        let cause = first_cause(self.compare_replies(Replies::All));
        cause.map_or(Ok(()), |cause| Err(BackendError::Device(cause)))
    }
}

/// The first error that is not about another rank; else the first one.
fn first_cause(errors: Vec<String>) -> Option<String> {
    errors
        .into_iter()
        .min_by_key(|error| RankLeft::is_in(error))
}

impl OtherRank {
    fn start(name: String, build: RankBuild) -> Result<(Sender<RankCall>, Self), String> {
        let (calls, received) = channel();
        let (built_sender, built) = channel();
        let (reply_sender, replies) = channel();
        let span = tracing::Span::current();
        let body = move || {
            let _span = span.entered();
            let (limits, rank) = match build() {
                Ok(rank) => (Ok(rank.limits()), Some(rank)),
                Err(error) => (Err(error), None),
            };
            // The leader is waiting, unless its own build panicked; then there are no calls.
            let _ = built_sender.send(limits);
            if let Some(rank) = rank {
                serve(rank, received, &reply_sender);
            }
        };
        let thread = Builder::new().name(name.replace(' ', "-")).spawn(body);
        let thread = thread.map_err(|error| format!("starting the thread of {name}: {error}"))?;
        let other = Self {
            name,
            built,
            replies,
            expected: VecDeque::new(),
            _thread: JoinedThread(Some(thread)),
        };
        Ok((calls, other))
    }

    fn panicked(&self) -> String {
        let name = &self.name;
        format!("{name} panicked; the panic message is in the log above")
    }

    fn compare_replies(&mut self, wanted: Replies) -> Result<(), String> {
        while let Some(expected) = self.expected.front() {
            let reply = match wanted {
                Replies::Arrived => self.replies.try_recv(),
                Replies::All => self.replies.recv().map_err(|_| TryRecvError::Disconnected),
            };
            match reply {
                Ok(reply) => compare(expected, &reply)
                    .map_err(|difference| format!("{} {difference}", self.name))?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(self.panicked()),
            }
            self.expected.pop_front();
        }
        Ok(())
    }
}

/// An error when a rank is lost, or returned something else than the leader.
fn compare(leader: &RankReply, other: &RankReply) -> Result<(), String> {
    use BackendError::{Device, Image, Step};
    match (leader, other) {
        (_, Err(Device(reason))) => Err(format!("is lost: {reason}")),
        (Err(Device(_)), _) | (Err(Step(_)), Err(Step(_))) => Ok(()),
        (Err(Image { image: own, .. }), Err(Image { image, .. })) if own == image => Ok(()),
        (Ok(own), Ok(theirs)) => match own.iter().zip(theirs).position(|(a, b)| a != b) {
            None if own.len() == theirs.len() => Ok(()),
            row => {
                let row = row.unwrap_or(own.len().min(theirs.len()));
                let [own, theirs] = [own, theirs].map(|rows| rows.get(row));
                Err(format!(
                    "decided {theirs:?} and rank 0 {own:?} in row {row} of a step, so one of them computes wrongly; \
                     if it happens again, use each as an engine of its own to find out which"
                ))
            }
        },
        (own, theirs) => {
            let [own, theirs] = [own, theirs].map(|reply| match reply {
                Ok(_) => "ran".to_owned(),
                Err(error) => format!("refused ({error})"),
            });
            Err(format!("{theirs} a step that rank 0 {own}"))
        }
    }
}

/// Makes the calls until the leader ends, or until the rank is lost: then it is dropped, so that ranks that wait for it learn that.
fn serve(mut rank: Box<dyn Backend>, calls: Receiver<RankCall>, replies: &Sender<RankReply>) {
    let nothing = |()| Vec::new();
    for call in calls {
        let reply = match call {
            RankCall::Launch {
                released,
                slot,
                step,
            } => {
                rank.release(&released);
                rank.launch(slot, step).map(nothing)
            }
            RankCall::Finalize(slot, masks) => rank.finalize(slot, masks).map(nothing),
            RankCall::Commit(slot) => rank.commit(slot).map(|results| results.picked),
            RankCall::PrepareShape => rank.prepare_shape().map(|_| Vec::new()),
        };
        let is_lost = matches!(reply, Err(BackendError::Device(_)));
        if replies.send(reply).is_err() || is_lost {
            break;
        }
    }
}

impl Backend for RankGroup {
    fn limits(&self) -> BackendLimits {
        self.leader.limits()
    }

    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        let released: Arc<[PageId]> = mem::take(&mut self.released).into();
        self.call(|| RankCall::Launch {
            released: Arc::clone(&released),
            slot,
            step: step.clone(),
        })?;
        self.leader.release(&released);
        let launched = self.leader.launch(slot, step);
        self.conclude(launched, |()| Vec::new(), Replies::Arrived)
    }

    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        self.call(|| RankCall::Finalize(slot, masks.clone()))?;
        let finalized = self.leader.finalize(slot, masks);
        self.conclude(finalized, |()| Vec::new(), Replies::Arrived)
    }

    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        // The leader's device would wait for a rank that has not launched the step.
        self.settle()?;
        self.call(|| RankCall::Commit(slot))?;
        let results = self.leader.commit(slot);
        self.conclude(results, |results| results.picked.clone(), Replies::All)
    }

    /// With the next launch.
    fn release(&mut self, pages: &[PageId]) {
        self.released.extend_from_slice(pages);
    }

    fn prepare_shape(&mut self) -> Result<bool, BackendError> {
        self.call(|| RankCall::PrepareShape)?;
        let prepared = self.leader.prepare_shape();
        self.conclude(prepared, |_| Vec::new(), Replies::Arrived)
    }

    fn graph_use(&self) -> GraphUse {
        self.leader.graph_use()
    }
}

#[cfg(test)]
mod tests;
