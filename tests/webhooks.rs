//! The whole daemon with a receiver of webhooks and a broker beside it.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::support::{
    DONE, Program,
    broker::{Consumer, broker},
    file, free_address, get,
    schemas::Schemas,
    until,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

use spotter_scripted::receiver::{ReceiverFault, ScriptedReceiver};

const CAMERA: &str = "[camera.gate]\nurl = \"test://\"\nrate = 4\n[camera.gate.prompt.ball]\ndetect = \"white ball\"\nsnapshot = true\n\
                      events = { confirm = \"1 of 1\", end_after = \"500ms\" }\n";

struct Site {
    directory: tempfile::TempDir,
    broker: SocketAddr,
    page: SocketAddr,
}

impl Site {
    fn write(&self, url: &str) -> PathBuf {
        let state = self.directory.path().join("state");
        let text = format!(
            "node = {{ name = \"edge1\", state_dir = {state:?} }}\nhttp.listen = \"{}\"\nmodel.budget = \"60s\"\nmqtt.url = \"mqtt://{}\"\n\
             [webhook.door]\nurl = \"{url}\"\ncameras = [\"gate\"]\nsteps = [\"new\"]\nsnapshot = true\n{CAMERA}",
            self.page, self.broker
        );
        file(self.directory.path(), "site.toml", text)
    }

    fn start(&self, url: &str) -> Program {
        let path = self.write(url);
        Program::start(["run", "--config", path.to_str().expect("UTF-8")])
    }
}

/// The body of the first request that is as `wanted`.
fn posted(receiver: &ScriptedReceiver, wanted: impl Fn(&Value) -> bool) -> Value {
    until("an event at the receiver", || {
        let requests = receiver.requests().into_iter();
        let mut bodies = requests
            .map(|request| serde_json::from_slice::<Value>(&request.body).expect("a body is JSON"));
        bodies.find(|body| wanted(body))
    })
}

/// Folders and files that other users of this machine may read.
fn readable_by_others(folder: &Path) -> Vec<String> {
    let mode = |path: &Path| path.metadata().expect("a file").permissions().mode();
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("a folder");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a name").path()).collect();
        folders.extend(paths.iter().filter(|path| path.is_dir()).cloned());
        paths.push(folder);
        let open = paths.iter().filter(|path| mode(path) & 0o077 != 0);
        found.extend(open.map(|path| path.display().to_string()));
    }
    found
}

// Faults: K12, W6.
#[test]
fn confirmed_events_reach_the_receiver_with_their_pictures() {
    let address = free_address();
    let _broker = broker(address, "");
    let site = Site {
        directory: tempfile::tempdir().expect("a directory"),
        broker: address,
        page: free_address(),
    };
    let (consumer, first) = (Consumer::on(address), ScriptedReceiver::start());
    let program = site.start(&first.url());
    let body = posted(&first, |body| body["snapshot_jpeg"].is_string());
    assert_eq!(Schemas::load().faults("event", &body), [""; 0]);
    let picture = body["snapshot_jpeg"].as_str().expect("text");
    let jpeg = BASE64_STANDARD.decode(picture).expect("base64");
    assert!(jpeg.starts_with(&[0xff, 0xd8]) && body["type"] == "new");
    let id = body["id"].as_str().expect("an id");
    let event = consumer.wait_for("gate/event/ball", |payload| payload.contains(id));
    let mut of_broker = event.json();
    // It may have happened before the broker accepted the connection.
    of_broker["delayed"] = false.into();
    of_broker["snapshot_jpeg"] = picture.into();
    assert_eq!(of_broker, body, "the same event at the broker");

    // A reload changes the receiver. The new one fails, which health reports, and the daemon ends.
    let second = ScriptedReceiver::start();
    second.will(vec![ReceiverFault::Status(503, ""); 1000]);
    site.write(&second.url());
    program.signal("HUP");
    until("a webhook that fails", || {
        let page = get(site.page, "/healthz")?;
        page.contains("webhook door: ").then_some(())
    });
    program.terminate().expect(DONE);
    assert_eq!(
        readable_by_others(&site.directory.path().join("state")),
        [""; 0]
    );

    // What waited is posted by the next run.
    let third = ScriptedReceiver::start();
    let program = site.start(&third.url());
    let body = posted(&third, |body| body["delayed"] == true);
    assert_eq!(body["type"], "new");
    until("events that are counted", || {
        let page = get(site.page, "/metrics")?;
        let posted = "spotter_webhook_events_total{webhook=\"door\",outcome=\"posted\"} ";
        (page.contains(posted) && !page.contains(&format!("{posted}0\n"))).then_some(())
    });
    program.terminate().expect(DONE);
}
