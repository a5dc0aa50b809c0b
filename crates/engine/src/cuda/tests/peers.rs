//! Exchanges between ranks: results are those of the formula in plain f32, bit for bit, on every rank.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use cudarc::driver::{CudaStream, DeviceRepr, ValidAsZeroBits};
use half::{bf16, slice::HalfFloatSliceExt as _};

use super::{CACHE, Random, f32s, faults::in_another_process, several_gpus};
use crate::{
    cuda::{
        compile::SOURCES,
        graphs::capture,
        kernels::Kernels,
        library::{self, Gpu},
        memory::{Buffer, copy, wait_for_stream},
        peers::{PeerPath, Peers, RankNote},
        tensor::MatrixShape,
    },
    ranks::Seat,
};
use spotter_core::{Clock as _, SystemClock};

const WIDTH: usize = 2048;
const PATHS: [PeerPath; 2] = [PeerPath::Gpu, PeerPath::Host];
/// An odd number of exchanges in a graph.
const SETS: usize = 3;

/// What a rank has on its thread.
pub(super) struct Rank {
    pub number: usize,
    pub gpu: Gpu,
    pub stream: Arc<CudaStream>,
    pub kernels: Kernels,
    pub peers: Peers,
    /// Where ranks meet.
    pub prepared: Arc<Barrier>,
}

impl Rank {
    fn new(
        seat: Seat<RankNote>,
        path: PeerPath,
        partial_values: usize,
        prepared: Arc<Barrier>,
    ) -> Self {
        let number = seat.rank();
        let gpu = library::open(number as u32).unwrap_or_else(|error| panic!("{error}"));
        let stream = gpu.context.new_stream().unwrap();
        let source = SOURCES.iter().find(|source| source.file == "sum_ranks.cu");
        let sources = std::slice::from_ref(source.unwrap());
        let kernels = Kernels::load_sources(&gpu, Arc::clone(&stream), &CACHE, sources);
        let peers = Peers::with(seat, RankNote::new(&gpu, path), &stream, partial_values);
        Self {
            number,
            kernels: kernels.unwrap(),
            peers: peers.unwrap(),
            gpu,
            stream,
            prepared,
        }
    }

    pub fn up<T: DeviceRepr + ValidAsZeroBits>(&self, values: &[T]) -> Buffer<T> {
        Buffer::from_host(&self.stream, values).unwrap()
    }

    pub fn down(&self, buffer: &Buffer<bf16>) -> Vec<u16> {
        let values = buffer.to_host(&self.stream).unwrap();
        values.reinterpret_cast().to_vec()
    }

    /// Queues it `rounds` times, half of them as a graph, and calls `check` behind each.
    fn repeat(&self, rounds: usize, queue: impl Fn(), check: impl Fn()) {
        let graph = capture(&self.stream, || {
            queue();
            Ok(())
        });
        let graph = graph.unwrap();
        for round in 0..rounds {
            match round % 2 {
                0 => queue(),
                _ => graph.launch().unwrap(),
            }
            check();
        }
    }
}

/// Each rank on a thread.
pub(super) fn on_ranks(
    ranks: usize,
    path: PeerPath,
    partial_values: usize,
    work: impl Fn(&Rank) + Sync,
) {
    let _alone = several_gpus();
    let (work, prepared) = (&work, Arc::new(Barrier::new(ranks)));
    thread::scope(|scope| {
        for seat in Seat::all(ranks) {
            let prepared = Arc::clone(&prepared);
            scope.spawn(move || work(&Rank::new(seat, path, partial_values, prepared)));
        }
    });
}

/// Inputs of a sum in sets, of each the hidden values and each rank's part, and the sums.
struct SumSet {
    hidden: Vec<bf16>,
    parts: Vec<Vec<bf16>>,
    sum: Vec<u16>,
}

fn sum_sets(ranks: usize, values: usize) -> Vec<SumSet> {
    let set = |seed| {
        let mut random = Random::new(seed as u128);
        let mut some = || {
            let one = |_| bf16::from_f32(random.unit() * 4.0 - 2.0);
            Vec::from_iter((0..values).map(one))
        };
        let (hidden, parts) = (some(), Vec::from_iter((0..ranks).map(|_| some())));
        let mut sum = f32s(&hidden);
        for part in &parts {
            sum.iter_mut().zip(part).for_each(|(x, y)| *x += y.to_f32());
        }
        let rounded: Vec<bf16> = sum.into_iter().map(bf16::from_f32).collect();
        SumSet {
            hidden,
            parts,
            sum: rounded.reinterpret_cast().to_vec(),
        }
    };
    (0..SETS).map(set).collect()
}

/// As many sums as `rounds` times the sets.
fn assert_sums(ranks: usize, path: PeerPath, rows: usize, rounds: usize) {
    let values = rows * WIDTH;
    let sets = sum_sets(ranks, values);
    let shape = MatrixShape { rows, width: WIDTH };
    on_ranks(ranks, path, values, |rank| {
        let gpu_sets = sets.iter().map(|set| {
            let out = rank.up(&vec![bf16::ZERO; values]);
            (rank.up(&set.hidden), rank.up(&set.parts[rank.number]), out)
        });
        let gpu_sets = Vec::from_iter(gpu_sets);
        let queue = || {
            for (hidden, part, out) in &gpu_sets {
                let partial = rank.peers.partial();
                copy(&rank.stream, hidden.start(), out.start(), values).unwrap();
                copy(&rank.stream, part.start(), partial, values).unwrap();
                rank.peers.sum(&rank.kernels, out.start(), shape).unwrap();
            }
        };
        let mismatch = || {
            let results = gpu_sets.iter().map(|(.., out)| rank.down(out));
            let wrong = |(got, set): (Vec<u16>, &SumSet)| got != set.sum;
            results.zip(&sets).position(wrong)
        };
        rank.repeat(rounds, queue, || {
            let number = rank.number;
            assert_eq!(mismatch(), None, "{path:?}, {rows} rows, rank {number}");
        });
    });
}

#[test]
#[ignore = "needs two GPUs; run make test-gpu"]
fn sums_over_two_ranks_have_equal_bits_on_all() {
    for path in PATHS {
        for rows in [1, 2, 8, 32, 740, 1480] {
            assert_sums(2, path, rows, 334);
        }
    }
}

#[test]
#[ignore = "needs four GPUs; run make test-gpu"]
fn sums_over_four_ranks_have_equal_bits_on_all() {
    for path in PATHS {
        for rows in [1, 8, 740] {
            assert_sums(4, path, rows, 40);
        }
    }
}

#[test]
#[ignore = "needs two GPUs; run make test-gpu"]
fn exchanges_of_other_kinds_and_sizes_follow_each_other() {
    let (ranks, values) = (2, 740 * WIDTH);
    let sets = sum_sets(ranks, values);
    let (set, other) = (&sets[0], &sets[1]);
    let floats = |rank: usize| -> Vec<f32> {
        let values = set.parts[rank].iter().zip(&other.parts[rank]);
        values.map(|(x, y)| x.to_f32() * y.to_f32()).collect()
    };
    let summed: Vec<f32> = floats(0)
        .iter()
        .zip(floats(1))
        .map(|(x, y)| x + y)
        .collect();
    // The parts of the ranks differ in length; one of them may be empty.
    let cuts = [[8, 0], [64, 40], [8 * 150_000, 8 * 30_000]];
    for path in PATHS {
        on_ranks(ranks, path, values, |rank| {
            let own = floats(rank.number);
            let (hidden, part) = (rank.up(&set.hidden), rank.up(&set.parts[rank.number]));
            let shared = rank.up(&other.parts[rank.number]);
            let out = rank.up(&vec![bf16::ZERO; values]);
            for rows in [1, 96, 3, 33, 90] {
                let count = rows * 64;
                let x = rank.up(&own);
                let part_of_sum = rows * WIDTH;
                rank.peers.sum_f32(&rank.kernels, x.start(), count).unwrap();
                copy(&rank.stream, hidden.start(), out.start(), part_of_sum).unwrap();
                copy(
                    &rank.stream,
                    part.start(),
                    rank.peers.partial(),
                    part_of_sum,
                )
                .unwrap();
                let shape = MatrixShape { rows, width: WIDTH };
                rank.peers.sum(&rank.kernels, out.start(), shape).unwrap();
                let large = rank.up(&own);
                rank.peers
                    .sum_f32(&rank.kernels, large.start(), part_of_sum)
                    .unwrap();
                let (x, large) = (x.to_host(&rank.stream), large.to_host(&rank.stream));
                let (x, large) = (x.unwrap(), large.unwrap());
                assert!(x[..count] == summed[..count] && x[count..] == own[count..]);
                assert!(large[..part_of_sum] == summed[..part_of_sum]);
                assert!(rank.down(&out)[..part_of_sum] == set.sum[..part_of_sum]);
            }
            for counts in cuts {
                copy(&rank.stream, shared.start(), out.start(), values).unwrap();
                rank.peers
                    .share(&rank.kernels, out.start(), &counts)
                    .unwrap();
                let (first, end) = (counts[0], counts[0] + counts[1]);
                let got = rank.down(&out);
                let want = |rank: usize| other.parts[rank].reinterpret_cast();
                assert!(got[..first] == want(0)[..first] && got[first..end] == want(1)[first..end]);
                assert!(got[end..] == want(rank.number)[end..]);
            }
        });
    }
}

#[test]
#[ignore = "breaks the GPU for its process; run by the test below"]
fn one_rank_is_lost() {
    on_ranks(2, PeerPath::Gpu, WIDTH, |rank| {
        if rank.number == 1 {
            return;
        }
        let clock = SystemClock::new();
        let (hidden, began) = (rank.up(&[bf16::ONE; WIDTH]), clock.now());
        let shape = MatrixShape {
            rows: 1,
            width: WIDTH,
        };
        rank.peers
            .sum(&rank.kernels, hidden.start(), shape)
            .unwrap();
        let error = wait_for_stream(&rank.stream, "waiting for a step").unwrap_err();
        let waited = clock.now().since(began);
        println!("{error} after {waited:?}");
        assert!((Duration::from_secs(9)..Duration::from_secs(12)).contains(&waited));
        println!("ended");
    });
}

#[test]
#[ignore = "needs two GPUs; run make test-gpu"]
fn sum_without_its_peer_ends_with_an_error() {
    let _alone = several_gpus();
    in_another_process("peers::one_rank_is_lost");
}
