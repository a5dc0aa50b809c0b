//! Adapters of a whole daemon with a real model on the CPU: reloads add and remove them, and their files break.
//!
//! Faults: E10.

use serde_json::json;

use super::{
    api::{ApiCaller, picture},
    *,
};

#[test]
fn adapters_follow_reloads_and_broken_files_are_rejected() {
    let test =
        "app::daemon::testbed::adapters::adapters_follow_reloads_and_broken_files_are_rejected";
    alone_with_errors(
        test,
        &["new configuration rejected", "is not a safetensors file"],
        scenario(),
    );
}

fn golden(path: &str) -> PathBuf {
    let sets = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    sets.join(path)
}

/// A daemon with an API and adapters, whose camera is not there.
struct AdapterTest {
    testbed: Testbed,
    client: ApiCaller,
}

impl AdapterTest {
    async fn new() -> Self {
        Self {
            testbed: Testbed::new(vec!["rtsp://127.0.0.1:1/none".to_owned()], QUICK).await,
            client: ApiCaller::new(None),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.testbed.directory.path().join(name)
    }

    /// The configuration with these adapters. A request may have so many MB.
    fn text(&self, names: &[&str], max_body_mb: usize) -> String {
        let (api, model) = (self.client.api, golden("md2-micro"));
        let mut text = format!("model.path = {model:?}\nmodel.device = \"cpu\"\n");
        text += &self.testbed.text();
        text += &format!("[api]\nlisten = \"{api}\"\nmax_body_mb = {max_body_mb}\n");
        for name in names {
            text += &format!("[adapter.{name}]\npath = {:?}\n", self.file(name));
        }
        text
    }

    async fn detect(&self, settings: Value) -> (u16, Value) {
        let body = json!({"image_url": picture(), "object": "thing", "settings": settings});
        self.client.post("/v1/detect", body).await
    }

    async fn until_status(&self, expected: u16, adapter: &str) {
        let search = async {
            while self.detect(json!({"variant": adapter})).await.0 != expected {
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

    /// One error names all that are odd.
    async fn until_rejected(&self, adapters: &[&str]) {
        let is_of = |error: &String, name: &&str| error.contains(&format!("adapter.{name}.path"));
        let is_rejected = || matches!(&self.errors()[..], [error] if adapters.iter().all(|name| is_of(error, name)));
        until("rejected", is_rejected).await;
        let (status, answer) = self.detect(json!({})).await;
        assert_eq!(status, 200, "the running configuration stays: {answer}");
    }
}

async fn scenario() {
    let test = AdapterTest::new().await;
    let adapter = fs::read(golden("md2-lora-micro/variant.safetensors")).unwrap();
    fs::write(test.file("plates"), &adapter).unwrap();
    fs::write(test.file("doors"), "no adapter").unwrap();
    test.testbed.write(&test.text(&[], 20));
    let reload = |names: &[&str], max_body_mb| test.testbed.reload(&test.text(names, max_body_mb));
    let changes = async {
        test.until_status(404, "plates").await;
        reload(&["plates"], 20);
        test.until_status(200, "plates").await;
        // One that does not fit.
        reload(&["plates", "doors"], 20);
        test.until_rejected(&["doors"]).await;
        test.until_status(200, "plates").await;
        test.until_status(404, "doors").await;
        // The file breaks; a reload that would open the engine again is rejected, one that only removes the adapter is not.
        fs::write(test.file("plates"), "broken").unwrap();
        reload(&["plates", "doors"], 21);
        test.until_rejected(&["plates", "doors"]).await;
        reload(&[], 21);
        test.until_status(404, "plates").await;
        until("accepted", || test.errors().is_empty()).await;
        // It is mended and added again.
        fs::write(test.file("plates"), &adapter).unwrap();
        reload(&["plates"], 21);
        test.until_status(200, "plates").await;
        signal("-TERM");
    };
    let engines: Arc<OpenEngines> = Arc::new(|plan| Box::pin(plan.open()));
    let running = test.testbed.run_with(machine_clock(), engines, changes);
    let (report, ()) = running.await;
    assert!(report.balanced(), "{report}");
}
