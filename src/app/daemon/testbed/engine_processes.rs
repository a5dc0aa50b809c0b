//! The daemon with two engines in processes of their own, each on two devices that work as one. One process is killed; of the other
//! engine, one device is lost.

use std::collections::BTreeSet;

use super::{engines::looked_at, *};
use spotter_engine::{
    open::ModelDevice,
    ranks::{RankBuild, RankGroup},
    scheduler::backend::BackendError,
    service::{LookRule, inside, outside},
    testing::simulated::FaultyDevice,
};

const TEST: &str =
    "app::daemon::testbed::engine_processes::cameras_of_lost_engine_process_move_and_return";
/// Set in the process of an engine.
const IS_ENGINE: &str = "SPOTTER_TEST_ENGINE";
/// The devices of each engine.
const LABELS: [&str; 2] = ["cuda 0+1, 2 × simulated", "cuda 2+3, 2 × simulated"];
const KILLED: &str = "engine process was killed by signal 9";
const RANK_LOST: &str = "rank 1 of 2 is lost: it fell off the bus";

// Faults: D10, D13.
#[test]
fn cameras_of_lost_engine_process_move_and_return() {
    if std::env::var_os(IS_ENGINE).is_some() {
        return crate::app::runtime().unwrap().block_on(serve_engine());
    }
    alone_with_errors(TEST, &[KILLED, RANK_LOST], cameras_move());
}

/// The files of an engine.
#[derive(Clone)]
struct EngineFiles(PathBuf);

impl EngineFiles {
    /// Has the number of its process.
    fn process(&self) -> PathBuf {
        self.0.join("process")
    }

    /// While it is there, the second device is lost.
    fn fault(&self) -> PathBuf {
        self.0.join("fault")
    }
}

/// The process of an engine whose devices see an object on all cameras.
async fn serve_engine() {
    let daemon = inside::daemon().unwrap();
    let Some((folder, clock)) = daemon.order::<PathBuf>().unwrap() else {
        return;
    };
    let files = EngineFiles(folder);
    let build = move || {
        fs::write(files.process(), std::process::id().to_string()).unwrap();
        let scene = Scene::default();
        for camera in CAMERAS {
            scene.show(camera, true);
        }
        let device = |scene| Box::new(SceneDevice::new(scene)) as Box<dyn Backend>;
        let of_second = scene.clone();
        let second = move || {
            let fault = move |_| {
                let is_lost = files.fault().exists();
                is_lost.then(|| BackendError::Device("it fell off the bus".into()))
            };
            Ok(Box::new(FaultyDevice::new(device(of_second), fault)) as Box<dyn Backend>)
        };
        let second: RankBuild = Box::new(second);
        let group = RankGroup::build(|| Ok(device(scene)), vec![second])?;
        Ok((simulated::engine(group, clock), LookRule::fixed(2), ()))
    };
    daemon.serve(build).await.unwrap();
}

/// Opens the engine of these files.
async fn open_engine(
    plan: &EnginePlan,
    label: &str,
    files: EngineFiles,
) -> anyhow::Result<EngineSlot> {
    let mut program = Command::new(std::env::current_exe()?);
    program.args([TEST, "--exact", "--nocapture"]);
    program.env(IS_ENGINE, "1").stdout(Stdio::null());
    let started = outside::start(program, files.0, Arc::clone(&plan.clock)).await?;
    let (handle, end, ()) = started;
    let share = plan.sampler.share(time_limits(plan));
    let mut slot = EngineSlot::new(label.to_owned(), (handle, end), share);
    slot.device = Some(ModelDevice::Cpu(label.to_owned()));
    Ok(slot)
}

async fn open_engines(plan: EnginePlan, files: [EngineFiles; 2]) -> anyhow::Result<OpenedEngines> {
    let is_wanted = |label: &str| match &plan.only {
        Some(ModelDevice::Cpu(only)) => only == label,
        _ => true,
    };
    let mut slots = Vec::new();
    for (label, files) in LABELS.into_iter().zip(files) {
        if is_wanted(label) {
            slots.push(open_engine(&plan, label, files).await?);
        }
    }
    let card = testing::card();
    Ok(OpenedEngines { slots, card })
}

async fn cameras_move() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    let files = ["first", "second"].map(|name| {
        let folder = testbed.directory.path().join(name);
        fs::create_dir(&folder).unwrap();
        EngineFiles(folder)
    });
    let of_engines = files.clone();
    let engines: Arc<OpenEngines> =
        Arc::new(move |plan| Box::pin(open_engines(plan, of_engines.clone())));
    let scenario = async {
        until("all see it", || host::all_present(&testbed)).await;
        let count = |cameras: BTreeSet<String>| cameras.len();
        until("each has two", || looked_at(&testbed).map(count) == [2, 2]).await;
        let before = looked_at(&testbed);
        let mut received = ReceivedJson::default();
        let all: BTreeSet<String> = CAMERAS.map(str::to_owned).into();
        for lost in [0, 1] {
            received.0.clear();
            let (reason, moved) = match lost {
                0 => {
                    kill("-KILL", &fs::read_to_string(files[0].process()).unwrap());
                    (KILLED, [BTreeSet::new(), all.clone()])
                }
                _ => {
                    fs::write(files[1].fault(), "").unwrap();
                    (RANK_LOST, [all.clone(), BTreeSet::new()])
                }
            };
            let is_end = |event: &Value| event["reason"] == "engine_lost";
            for camera in &before[lost] {
                let topic = format!("cam/{camera}/event/thing");
                received.one(&testbed, &topic, is_end).await;
            }
            until("the other engine has all", || looked_at(&testbed) == moved).await;
            until("all see it again", || host::all_present(&testbed)).await;
            let trouble = format!("engine on {}", LABELS[lost]);
            assert!(testbed.health_says(&trouble) && testbed.health_says(reason));
            if lost == 0 {
                until("the cameras return", || looked_at(&testbed) == before).await;
                assert!(!testbed.health_says("engine on"));
            }
        }
        signal("-TERM");
    };
    let (report, ()) = testbed.run_with(machine_clock(), engines, scenario).await;
    assert!(report.balanced(), "{report}");
}
