//! Adapters of a whole daemon with a real model on the CPU: prompts and requests name them, reloads add, replace and remove them, and their files
//! break, all without a restart.
//!
//! Faults: E10, E11.

use serde_json::json;

use super::{
    api::{ApiCaller, picture},
    *,
};

#[test]
fn adapters_change_and_break_while_cameras_run() {
    let test = "app::daemon::testbed::adapters::adapters_change_and_break_while_cameras_run";
    let expected = [
        "new configuration rejected",
        "adapter.doors.path",
        "adapter cannot be used",
    ];
    let check_log = |log: &str| {
        assert_eq!(lines_but(log, " ERROR ", &expected), [""; 0]);
        assert!(!log.contains("restarting all stages"), "a restart");
    };
    if is_alone(test, &[], check_log) {
        crate::app::runtime().unwrap().block_on(scenario());
    }
}

fn golden(path: &str) -> PathBuf {
    let sets = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    sets.join(path)
}

/// A daemon with an API and one camera. Each adapter has a prompt of its own name.
struct AdapterTest {
    testbed: Testbed,
    client: ApiCaller,
    _camera: Server,
}

impl AdapterTest {
    async fn new() -> Self {
        let camera = Server::start(|_| good()).await;
        Self {
            testbed: Testbed::new(vec![camera.url()], PATIENT).await,
            client: ApiCaller::new(None),
            _camera: camera,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.testbed.directory.path().join(name)
    }

    /// Puts the file of an adapter, or another one, in the place of a file.
    fn put(&self, name: &str, is_good: bool) {
        let draft = self.file("draft");
        match is_good {
            true => drop(fs::copy(golden("md2-lora-micro/variant.safetensors"), &draft).unwrap()),
            false => fs::write(&draft, "no adapter").unwrap(),
        }
        fs::rename(draft, self.file(name)).unwrap();
    }

    /// The configuration with these adapters and looks a second.
    fn text(&self, names: &[&str], rate: usize) -> String {
        let (api, model) = (self.client.api, golden("md2-micro"));
        let mut text = format!("model.path = {model:?}\nmodel.device = \"cpu\"\n");
        text += &self.testbed.text();
        text += &format!("rate = {rate}\n");
        for name in names {
            // Unlike a detection of nothing, an answer is published after each look.
            text += &format!(
                "prompt.{name} = {{ query = \"Is it {name}?\", choices = [\"yes\", \"no\"], adapter = \"{name}\" }}\n"
            );
        }
        text += &format!("[api]\nlisten = \"{api}\"\n");
        for name in names {
            text += &format!("[adapter.{name}]\npath = {:?}\n", self.file(name));
        }
        text
    }

    async fn detect(&self, adapter: &str) -> u16 {
        let settings = json!({"variant": adapter});
        let body = json!({"image_url": picture(), "object": "thing", "settings": settings});
        self.client.post("/v1/detect", body).await.0
    }

    async fn until_status(&self, expected: u16, adapter: &str) {
        let search = async {
            while self.detect(adapter).await != expected {
                sleep(Duration::from_millis(50)).await;
            }
        };
        let found = timeout(PATIENCE, search).await;
        assert!(found.is_ok(), "{expected} for {adapter}");
    }

    /// What the topic `config` says of the last reload.
    fn errors(&self) -> Vec<String> {
        let report = self.testbed.retained("config").unwrap_or_default();
        let report: Value = serde_json::from_str(&report).unwrap_or_default();
        serde_json::from_value(report["errors"].clone()).unwrap_or_default()
    }

    /// Waits until the camera's health names these prompts alone as not asked.
    async fn until_unasked(&self, prompts: &[&str]) {
        let is_so = || {
            let health = self.testbed.retained("cam/gate/health").unwrap_or_default();
            let health: Value = serde_json::from_str(&health).unwrap_or_default();
            let Some(reason) = health["reason"].as_str() else {
                return prompts.is_empty() && health["state"] == "streaming";
            };
            let named = reason.matches("is not asked").count();
            let is_named = |name: &&str| reason.contains(&format!("adapter {name}: "));
            reason.starts_with("broken_adapter: ")
                && named == prompts.len()
                && prompts.iter().all(is_named)
        };
        until(&format!("{prompts:?} are not asked"), is_so).await;
    }

    /// Waits for a new detection of each of these prompts.
    async fn until_seen(&self, received: &mut ReceivedJson, prompts: &[&str]) {
        received.receive(&self.testbed);
        let topic = |name: &str| format!("cam/gate/det/{name}");
        for name in prompts {
            let before = received.of(&topic(name)).count();
            let is_more = |all: &ReceivedJson| all.of(&topic(name)).count() > before;
            received.until(&self.testbed, is_more).await;
        }
    }
}

async fn changes(test: &AdapterTest) {
    let reload = |names: &[&str], rate| test.testbed.reload(&test.text(names, rate));
    let (mut received, both) = (ReceivedJson::default(), ["plates", "dogs"]);
    // Broken at the start: the other adapter and the model alone answer.
    test.until_unasked(&["dogs"]).await;
    test.until_seen(&mut received, &["thing", "plates"]).await;
    assert_eq!(received.of("cam/gate/det/dogs").count(), 0);
    assert!(test.testbed.health_says("adapter dogs: "));
    // Mended: asked without a reload.
    test.put("dogs", true);
    test.until_unasked(&[]).await;
    test.until_seen(&mut received, &both).await;
    // Replaced by a file that is none: no reason to reject another change.
    test.put("plates", false);
    reload(&both, 4);
    test.until_unasked(&["plates"]).await;
    until("accepted", || test.errors().is_empty()).await;
    test.until_status(500, "plates").await;
    test.until_seen(&mut received, &["dogs"]).await;
    // A new adapter that does not fit is one.
    test.put("doors", false);
    let all = ["plates", "dogs", "doors"];
    reload(&all, 4);
    let is_of_doors =
        || matches!(&test.errors()[..], [error] if error.contains("adapter.doors.path"));
    until("rejected", is_of_doors).await;
    test.until_status(404, "doors").await;
    test.put("doors", true);
    test.put("plates", true);
    reload(&all, 4);
    test.until_unasked(&[]).await;
    test.until_seen(&mut received, &all).await;
    test.until_status(200, "doors").await;
    reload(&["doors"], 4);
    test.until_status(404, "dogs").await;
    test.until_seen(&mut received, &["thing", "doors"]).await;
}

async fn scenario() {
    let test = AdapterTest::new().await;
    test.put("plates", true);
    test.put("dogs", false);
    test.testbed.write(&test.text(&["plates", "dogs"], 5));
    let changes = async {
        changes(&test).await;
        signal("-TERM");
    };
    let engines: Arc<OpenEngines> = Arc::new(|plan| Box::pin(plan.open()));
    let running = test.testbed.run_with(machine_clock(), engines, changes);
    let (report, ()) = running.await;
    assert!(report.balanced(), "{report}");
}
