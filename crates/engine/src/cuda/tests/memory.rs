//! The memory of a GPU that an engine takes while it starts and while it works, beside `model.memory`. Nothing else may use the GPU meanwhile,
//! so `make test-gpu` runs this alone.

use std::{
    fs,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::Duration,
};

use super::{CACHE, fp8::picture, of_architecture, whole::cuda};
use crate::{
    cuda::{CudaBackend, CudaSettings, Gpu, library, memory::held_bytes},
    model::{Formats, ModelConfig, random_weights},
    open::{GpuMemory, MemoryPlan, plan_inputs},
    scheduler::backend::{Backend, Feed, Pick, Step},
    testing::golden_model::{job, row, run_step, step_of, tokens},
};
use spotter_core::{GpuPrecision, Picture};

const MIB: usize = 1 << 20;

/// The most memory that was in use on a GPU since the beginning, all programs together.
struct Peak {
    gpu: Gpu,
    least_free: AtomicUsize,
    is_over: AtomicBool,
}

impl Peak {
    fn watch(&self) {
        while !self.is_over.load(SeqCst) {
            self.least_free
                .fetch_min(self.gpu.free_bytes().unwrap(), SeqCst);
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn mib(&self) -> usize {
        (self.gpu.memory_bytes - self.least_free.load(SeqCst)) / MIB
    }
}

/// Ends the watch, after a panic too.
struct WatchEnd<'a>(&'a Peak);

impl Drop for WatchEnd<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, SeqCst);
    }
}

/// MiB in use on each GPU by its UUID, without a context of this process.
fn used_mib() -> Vec<(String, usize)> {
    let query = [
        "--query-gpu=uuid,memory.used",
        "--format=csv,noheader,nounits",
    ];
    let output = Command::new("nvidia-smi").args(query).output();
    let output = output.expect("nvidia-smi is needed");
    let lines = String::from_utf8(output.stdout).unwrap();
    let used = |line: &str| {
        let (uuid, used) = line.split_once(", ")?;
        Some((uuid.to_owned(), used.trim().parse().ok()?))
    };
    lines.lines().filter_map(used).collect()
}

/// So that the next start times all products, as the first one does.
fn forget_algorithms() {
    for file in fs::read_dir(CACHE.as_path()).into_iter().flatten() {
        let file = file.unwrap();
        if file.file_name().to_string_lossy().starts_with("products-") {
            fs::remove_file(file.path()).unwrap();
        }
    }
}

/// As a released Moondream 2 with this in `model.memory`.
fn plan(config: &ModelConfig, precision: GpuPrecision, memory: GpuMemory) -> MemoryPlan {
    MemoryPlan::new(plan_inputs(config, precision, memory)).unwrap()
}

/// Images by size and rows by number, until the launches of each are recorded.
fn run_steps(backend: &mut CudaBackend) {
    let ends = &[Pick::CoordOrEnd];
    let mut run = |make: &dyn Fn(&CudaBackend) -> Step| {
        for _ in 0..3 {
            let step = make(backend);
            run_step(backend, step);
            while backend.prepare_shape().unwrap() {}
        }
    };
    for (width, height) in [(378, 378), (1280, 720), (1920, 1080)] {
        let rgb = vec![90; width * height * 3];
        let picture = Picture::from_rgb(width, height, rgb).unwrap();
        run(&|backend| Step {
            images: vec![job(backend, picture.clone())],
            rows: vec![row(backend, 0, 0, Feed::Host(tokens(&[7; 10])), ends)],
        });
    }
    for rows in 1..=8 {
        let fed = || Feed::Host(tokens(&[7]));
        run(&|backend| {
            let rows = (0..rows).map(|index| row(backend, index, 10, fed(), ends));
            step_of(rows.collect())
        });
    }
}

#[test]
#[ignore = "needs a GPU that nothing else uses; run make test-gpu"]
fn engine_keeps_to_model_memory_from_its_start_on() {
    let before = used_mib();
    let config = ModelConfig::default();
    let weights = random_weights(&config).unwrap();
    let all = [
        (GpuPrecision::Bf16, 6 << 30),
        (GpuPrecision::Fp8, 6 << 30),
        (GpuPrecision::Int8, 4 << 30),
    ];
    for (precision, limit) in all {
        if of_architecture(&[precision]).is_empty() {
            continue;
        }
        forget_algorithms();
        let gpu = library::open(0).unwrap_or_else(|error| panic!("{error}"));
        let memory = GpuMemory {
            total: gpu.memory_bytes,
            free: gpu.free_bytes().unwrap(),
            limit: Some(limit),
        };
        let others = before.iter().find(|(uuid, _)| *uuid == gpu.uuid).unwrap().1;
        let context = (memory.total - memory.free) / MIB - others;
        let plan = plan(&config, precision, memory);
        let settings = CudaSettings {
            gpu: 0,
            cache: &CACHE,
            capacity: plan.capacity,
            formats: Formats::on_gpu(precision, None, None),
            pictures: &[picture(3)],
        };
        let peak = Peak {
            gpu,
            least_free: AtomicUsize::new(usize::MAX),
            is_over: AtomicBool::new(false),
        };
        let (start, most) = thread::scope(|scope| {
            let _end = WatchEnd(&peak);
            scope.spawn(|| peak.watch());
            let mut backend = cuda(settings, &config, weights.clone());
            let start = peak.mib() - others;
            run_steps(&mut backend);
            println!("{precision:?}, {plan}; held {} MiB", held_bytes() / MIB);
            (start, peak.mib() - others)
        });
        println!("context {context} MiB, start {start}, start and steps {most} MiB");
        assert!(most <= limit / MIB, "{precision:?}: {most} MiB of {limit}");
    }
}
