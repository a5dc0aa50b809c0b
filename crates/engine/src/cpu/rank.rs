//! Several CPU backends as one: the arithmetic of engines on several GPUs, where everyone can see it.

use std::sync::Arc;

use crate::{
    network::shard::Shard,
    ranks::{RankLeft, Seat},
};

/// The place of a backend among those that work as one.
pub struct CpuRank {
    pub shard: Shard,
    /// Where partial sums are exchanged.
    seat: Seat<Arc<Vec<f32>>>,
}

impl CpuRank {
    /// So many places, one for each backend.
    pub fn all(ranks: usize) -> Vec<Self> {
        let seats = Seat::all(ranks).into_iter().enumerate();
        let place = |(rank, seat)| Self {
            shard: Shard { rank, ranks },
            seat,
        };
        seats.map(place).collect()
    }

    /// Adds what all ranks bring, in their order, so that all have the same bits. Waits for the others.
    pub fn sum(&self, to: &mut [f32], part: Vec<f32>) -> Result<(), RankLeft> {
        for part in self.seat.exchange(Arc::new(part))? {
            let values = to.iter_mut().zip(&*part);
            values.for_each(|(sum, value)| *sum += value);
        }
        Ok(())
    }
}

/// What a block adds to the hidden states before ranks have added it up.
pub(super) struct RankPart<'a> {
    pub rank: &'a CpuRank,
    pub sums: Vec<f32>,
}

impl<'a> RankPart<'a> {
    pub fn new(rank: &'a CpuRank) -> Self {
        let sums = Vec::new();
        Self { rank, sums }
    }
}
