//! Pictures that lie on a device, or say so.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use crate::domain::{DevicePlanes, Planes};

/// Planes that say that they lie on a device, one behind the other, and count how often they are copied to the host.
pub struct Elsewhere {
    there: Vec<Vec<u8>>,
    here: OnceLock<Vec<Vec<u8>>>,
    copies: AtomicUsize,
}

impl Elsewhere {
    /// These planes.
    pub fn new(planes: Vec<Vec<u8>>) -> Self {
        Self {
            there: planes,
            here: OnceLock::new(),
            copies: AtomicUsize::new(0),
        }
    }

    /// How often they were copied to the host.
    pub fn copies(&self) -> usize {
        self.copies.load(Ordering::Relaxed)
    }
}

impl Planes for Elsewhere {
    fn plane(&self, index: usize) -> &[u8] {
        let copy = || {
            self.copies.fetch_add(1, Ordering::Relaxed);
            self.there.clone()
        };
        &self.here.get_or_init(copy)[index]
    }

    fn plane_len(&self, index: usize) -> usize {
        self.there[index].len()
    }

    fn on_device(&self) -> Option<DevicePlanes<'_>> {
        let mut offsets = [0; 3];
        for (index, plane) in self.there.iter().enumerate().take(2) {
            offsets[index + 1] = offsets[index] + plane.len();
        }
        offsets[self.there.len()..].fill(0);
        Some(DevicePlanes {
            memory: &(),
            offsets,
        })
    }

    fn is_on_host(&self) -> bool {
        self.here.get().is_some()
    }
}
