//! The handle of cuBLASLt: one for each GPU, for all engines of the process.
//!
//! To make or destroy a handle waits for all work in the GPU's context, and the driver then breaks off what another engine records
//! there. So it is made for its first user and destroyed behind the last one: at both times no engine on that GPU has products, and
//! none records. It belongs to the context that it was made in, and keeps it: after a reload of `[model]` the next engine has a new
//! handle in a new context.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cudarc::{
    cublaslt::{
        result::{self, CublasError},
        sys,
    },
    driver::CudaContext,
};

use crate::cuda::memory::CurrentContext;

/// A handle, valid while a [`SharedHandle`] of its GPU exists.
#[derive(Clone, Copy)]
pub(super) struct BlasHandle(pub(super) sys::cublasLtHandle_t);

// SAFETY: cuBLASLt's functions may be called with one handle by several threads at the same time.
unsafe impl Send for BlasHandle {}

/// A user of a GPU's handle.
pub(super) struct SharedHandle {
    gpu: usize,
    raw: BlasHandle,
}

/// The handle of a GPU, destroyed when dropped.
struct OwnHandle {
    raw: BlasHandle,
    // Released behind the handle.
    context: Arc<CudaContext>,
}

static HANDLES: Mutex<SharedValues<OwnHandle>> = Mutex::new(SharedValues(BTreeMap::new()));

fn handles() -> MutexGuard<'static, SharedValues<OwnHandle>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedHandle {
    /// The handle of that GPU. The context is the calling thread's.
    pub fn of(context: &Arc<CudaContext>) -> Result<Self, CublasError> {
        let make = || {
            Ok(OwnHandle {
                raw: BlasHandle(result::create_handle()?),
                context: Arc::clone(context),
            })
        };
        let gpu = context.ordinal();
        let raw = handles().enter(gpu, make)?.raw;
        Ok(Self { gpu, raw })
    }

    pub fn raw(&self) -> BlasHandle {
        self.raw
    }
}

impl Drop for SharedHandle {
    fn drop(&mut self) {
        // Locked until the handle is destroyed, so that no engine makes the next one meanwhile.
        let mut handles = handles();
        drop(handles.leave(self.gpu));
    }
}

impl Drop for OwnHandle {
    fn drop(&mut self) {
        // An error means that the context is gone, and the handle with it.
        let _current = CurrentContext::new(&self.context);
        // SAFETY: made by `create_handle`, destroyed once, behind its last user.
        let _ = unsafe { result::destroy_handle(self.raw.0) };
    }
}

/// Values by number, each with the number of its users.
struct SharedValues<V>(BTreeMap<usize, (V, usize)>);

impl<V> SharedValues<V> {
    /// One user more of value `key`, which `make` makes for the first one.
    fn enter<E>(&mut self, key: usize, make: impl FnOnce() -> Result<V, E>) -> Result<&V, E> {
        let entry = match self.0.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert((make()?, 0)),
        };
        entry.1 += 1;
        Ok(&entry.0)
    }

    /// One user less; gives the value that has no user any more.
    fn leave(&mut self, key: usize) -> Option<V> {
        let (_, users) = self.0.get_mut(&key)?;
        *users -= 1;
        match users {
            0 => self.0.remove(&key).map(|(value, _)| value),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: E8.
    #[test]
    fn value_lives_from_its_first_user_to_its_last() {
        let mut made = 0;
        let mut values = SharedValues(BTreeMap::new());
        for round in 1..=3 {
            for user in 0..3 {
                let make = || {
                    made += 1;
                    Ok::<_, ()>(made)
                };
                assert_eq!(values.enter(7, make), Ok(&round), "user {user}");
            }
            assert_eq!(values.enter(8, || Err("no memory")), Err("no memory"));
            let left = [(); 4].map(|()| values.leave(7));
            assert_eq!(left, [None, None, Some(round), None]);
        }
    }
}
