//! A GPU that fails in the middle of its work. The fault is real: a kernel writes to an invalid address, and the process cannot use any
//! GPU afterwards. So it is made in a process of its own, which is this test program again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use cudarc::{driver::result, nvrtc::Ptx};
use tokio::time::timeout;

use super::whole::{cuda, settings};
use crate::{
    cuda::{
        CudaSettings,
        compile::{KernelSource, compile},
        library,
    },
    scheduler::sequence::Bounds,
    service::{
        Engine, EngineModel, LookRule,
        handle::{self, EngineEnd, EngineHandle},
        inside, outside,
    },
    testing::{
        self,
        golden_model::{config, picture, weights},
        golden_set,
    },
};
use spotter_core::{Look, Outcome, SystemClock, Task, WholeLook};

/// The address is too low to be valid.
const FAULT: KernelSource = KernelSource {
    file: "fault.cu",
    text: "extern \"C\" __global__ void fault() { *(volatile int*)16 = 1; }",
};

/// How long the other process may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(100);

/// Queues the fault on a stream of its own; everything that this process has on any GPU fails with it.
fn break_gpu(index: u32) {
    let gpu = library::open(index).unwrap();
    let code = compile(&FAULT, &gpu.arch).unwrap();
    let module = gpu.context.load_module(Ptx::from_binary(code)).unwrap();
    let fault = module.load_function("fault").unwrap();
    let stream = gpu.context.new_stream().unwrap();
    // SAFETY: the kernel takes no arguments; its fault is intended.
    let launched = unsafe {
        let one = (1, 1, 1);
        result::launch_kernel(
            fault.cu_function(),
            one,
            one,
            0,
            stream.cu_stream(),
            &mut [],
        )
    };
    launched.unwrap();
    // A working engine may notice it first; this only ensures that it has happened.
    assert!(stream.synchronize().is_err());
}

/// An engine with the smallest model, and how many looks may be inside.
fn build(gpu: u32) -> (Engine, usize) {
    let set = golden_set("md2-micro");
    let config = config(&set);
    let settings = CudaSettings { gpu, ..settings() };
    let backend = cuda(settings, &config, weights(&set, &config));
    let bounds = Bounds {
        max_objects: 3,
        max_tokens: 8,
    };
    let model = EngineModel {
        config,
        ..testing::micro_model()
    };
    let clock = Arc::new(SystemClock::new());
    (Engine::new(Box::new(backend), model, bounds, clock), 2)
}

async fn ask(engine: &EngineHandle) -> WholeLook {
    let picture = picture(&golden_set("md2-micro"), "gray_200x200");
    let object = "car".to_owned();
    let look = Look::still(picture, [Task::Detect { object }]);
    engine.permit().await.whole_look(look).await
}

fn answered(look: &WholeLook) -> bool {
    matches!(look.outcome, Some(Outcome::Answered(_)))
}

#[tokio::test]
#[ignore = "breaks the GPU for its process; run by the tests below"]
async fn one_gpu_breaks() {
    let (engine, mut end) = handle::start(|| Ok(build(0))).await.unwrap();
    assert!(answered(&ask(&engine).await));
    break_gpu(0);
    let failed = ask(&engine).await;
    assert!(
        matches!(failed.outcome, Some(Outcome::Failed(..))),
        "{failed:?}"
    );
    let reason = end.reason().await.to_string();
    println!("{reason}");
    assert!(reason.contains("restart Spotter"), "{reason}");
    assert_eq!(reason.lines().count(), 1, "{reason}");
    // The engine releases its memory, although the GPU accepts no calls any more.
    drop(engine);
    end.over().await;
    println!("ended");
}

/// The process of an engine on the ordered GPU, which fails when the ordered file appears.
#[tokio::test]
#[ignore = "serves the process that starts it, over a socket; run by the test below"]
async fn engine_apart() {
    let daemon = inside::daemon().unwrap();
    let ((gpu, fault), _): ((u32, PathBuf), _) = daemon.order().unwrap().unwrap();
    let watch = move || {
        while !fault.exists() {
            thread::sleep(POLL);
        }
        break_gpu(gpu);
    };
    thread::Builder::new().spawn(watch).unwrap();
    let build = move || {
        let (engine, permits) = build(gpu);
        Ok((engine, LookRule::fixed(permits), ()))
    };
    daemon.serve(build).await.unwrap();
}

/// This test program again, with one test.
fn this_program(test: &str) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program
        .args(["--exact", &format!("cuda::tests::{test}")])
        .args(["--ignored", "--nocapture"]);
    program
}

/// An engine in a process of its own.
async fn apart(gpu: u32, fault: &Path) -> (EngineHandle, EngineEnd) {
    let (program, clock) = (
        this_program("faults::engine_apart"),
        Arc::new(SystemClock::new()),
    );
    let started = outside::start(program, (gpu, fault.to_owned()), clock);
    let (engine, end, ()) = timeout(PATIENCE, started).await.expect("hangs").unwrap();
    (engine, end)
}

/// Runs that test in another process, which must end by itself.
pub(super) fn in_another_process(name: &str) {
    let mut child = this_program(name).stdout(Stdio::piped()).spawn().unwrap();
    let polls = PATIENCE.as_millis() / POLL.as_millis();
    let ended = (0..polls).find_map(|_| {
        thread::sleep(POLL);
        child.try_wait().unwrap()
    });
    if ended.is_none() {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(ended.is_some(), "{name} hangs");
    assert!(
        output.status.success() && said.contains("ended"),
        "{name} failed"
    );
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn gpu_fault_ends_its_engine_with_a_reason() {
    in_another_process("faults::one_gpu_breaks");
}

#[tokio::test]
#[ignore = "needs two GPUs; run make test-gpu"]
async fn a_fault_of_one_gpu_leaves_the_other_at_work() {
    let directory = tempfile::tempdir().unwrap();
    let (never, now) = (directory.path().join("never"), directory.path().join("now"));
    let (first, mut first_end) = apart(0, &never).await;
    let (second, mut end) = apart(1, &now).await;
    assert!(answered(&ask(&first).await) && answered(&ask(&second).await));
    fs::write(&now, "").unwrap();
    // It notices with a step, so it is kept busy until then.
    let fails = async { while answered(&ask(&second).await) {} };
    timeout(PATIENCE, fails)
        .await
        .expect("the fault is not noticed");
    let reason = timeout(PATIENCE, end.reason()).await.expect("no reason");
    println!("{reason}");
    assert!(reason.to_string().contains("restart Spotter"), "{reason}");
    for _ in 0..20 {
        if !answered(&ask(&first).await) {
            panic!("the first one too: {}", first_end.reason().await);
        }
    }
    drop((first, second));
    timeout(PATIENCE, end.over())
        .await
        .expect("it does not end");
    timeout(PATIENCE, first_end.over())
        .await
        .expect("it does not end");
}
