//! Which algorithm a shape gets.

use cudarc::{
    cublaslt::{result::CublasError, sys},
    driver::sys::CUstreamCaptureStatus,
};

use super::{
    Products, WORKSPACE_BYTES,
    plan::{Algorithm, Descriptors, ProductShape},
    trial::Trial,
};
use crate::cuda::error::CudaError;

/// From this number of rows on, algorithms are timed; with fewer, products are bound by memory and differ little.
const TIMED_ROWS: usize = 64;
/// Algorithms that are timed for a shape.
const CANDIDATES: usize = 24;

impl Products {
    /// The algorithm for a shape: kept, timed, or cuBLASLt's first.
    pub(super) fn algorithm(
        &self,
        shape: &ProductShape,
        descriptors: &Descriptors,
        trial: Option<&Trial>,
    ) -> Result<Algorithm, CublasError> {
        let offered = |most| descriptors.candidates(&self.handle, most, WORKSPACE_BYTES);
        if shape.rows < TIMED_ROWS {
            return offered(1).map(|first| first[0]);
        }
        let name = format!("{shape:?}");
        if let Some(data) = self.algorithms.borrow().get(&name) {
            let known = Algorithm { data };
            if descriptors.can_run(&self.handle, &known, WORKSPACE_BYTES) {
                return Ok(known);
            }
        }
        let candidates = offered(CANDIDATES)?;
        // Recorded work does not run, and a wait would end the recording.
        let status = self.stream.capture_status();
        if status != Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE) {
            return Ok(candidates[0]);
        }
        match self.fastest(shape, descriptors, &candidates, trial) {
            Ok(Some(fastest)) => {
                self.algorithms.borrow_mut().put(name, fastest.data);
                Ok(fastest)
            }
            Ok(None) => Err(CublasError(
                sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED,
            )),
            Err(error) => {
                tracing::debug!("products of {name} are not timed: {error}");
                Ok(candidates[0])
            }
        }
    }

    fn fastest(
        &self,
        shape: &ProductShape,
        descriptors: &Descriptors,
        candidates: &[Algorithm],
        trial: Option<&Trial>,
    ) -> Result<Option<Algorithm>, CudaError> {
        let queue = self.queue();
        match trial.filter(|trial| trial.has_room_for(shape)) {
            Some(trial) => trial.fastest(queue, shape, descriptors, candidates),
            None => Trial::new(&self.stream, std::iter::once(shape))?.fastest(
                queue,
                shape,
                descriptors,
                candidates,
            ),
        }
    }

    /// True when the shape would be timed.
    pub(super) fn is_unknown(&self, shape: &ProductShape) -> bool {
        shape.rows >= TIMED_ROWS
            && !self.plans.borrow().contains_key(shape)
            && self
                .algorithms
                .borrow()
                .get(&format!("{shape:?}"))
                .is_none()
    }

    /// Writes the choices to disk; an error is logged only.
    pub(super) fn save(&self) {
        if let Err(error) = self.algorithms.borrow_mut().save() {
            tracing::warn!("{error}");
        }
    }
}
