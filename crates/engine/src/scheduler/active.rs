//! The jobs that have rows and pages, the oldest first. Pure.

use super::{
    job::{Job, JobId, JobState},
    request::LookId,
};

#[derive(Default)]
pub(super) struct ActiveJobs {
    /// Sorted by [`JobId`].
    jobs: Vec<Job>,
}

impl ActiveJobs {
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub fn index_of(&self, id: JobId) -> Option<usize> {
        self.jobs.binary_search_by_key(&id, |job| job.id).ok()
    }

    pub fn at(&self, index: usize) -> &Job {
        &self.jobs[index]
    }

    pub fn at_mut(&mut self, index: usize) -> &mut Job {
        &mut self.jobs[index]
    }

    /// Returns the index of the job.
    pub fn insert(&mut self, job: Job) -> usize {
        let index = self.jobs.partition_point(|other| other.id < job.id);
        self.jobs.insert(index, job);
        index
    }

    /// True when a job reads the image of the look, or belongs to the look if it has none.
    pub fn reads(&self, look: LookId) -> bool {
        self.jobs.iter().any(|job| job.id.0 == look)
    }

    pub fn running(&self) -> usize {
        self.jobs.iter().filter(|job| job.is_running()).count()
    }

    pub fn running_texts(&self) -> usize {
        let running = self.jobs.iter().filter(|job| job.is_running());
        running.filter(|job| job.is_text).count()
    }

    /// The job to evict when pages are short: the youngest text, or else the youngest job.
    pub fn next_evicted(&self) -> Option<usize> {
        let text = |job: &Job| job.is_running() && job.is_text;
        let youngest = || self.jobs.iter().rposition(Job::is_running);
        self.jobs.iter().rposition(text).or_else(youngest)
    }

    /// True when a job that will not run on returns its pages at a commit.
    pub fn any_zombie(&self) -> bool {
        let zombie = |job: &Job| !job.is_running() && job.inflight_refs > 0;
        self.jobs.iter().any(zombie)
    }

    /// No result of the look's jobs is used any more.
    pub fn finalize(&mut self, look: LookId) {
        for job in self.jobs.iter_mut().filter(|job| job.id.0 == look) {
            job.state = JobState::Finalized;
        }
    }

    /// Removes the oldest job that no step carries and none will.
    pub fn take_finished(&mut self) -> Option<Job> {
        let index = self.jobs.iter().position(Job::is_finished)?;
        Some(self.jobs.remove(index))
    }
}
