//! `spotter fleet apply` and `spotter fleet get` with a real nats-server.

use crate::support::{DONE, Ended, FAILED, file, spotter};
use spotter_fleet::testing::NatsServer;

const GATE: &str = "[camera.gate]\nurl = \"rtsp://192.0.2.10/a\"\nuser = \"u\"\npassword = { cred = \"camera_gate\" }\nlabel = \"hall2\"\nprompt.car.detect = \"car\"\n";
const YARD: &str = "[camera.yard]\nurl = \"rtsp://192.0.2.11/a\"\nprompt.car.detect = \"car\"\n";

fn fleet(server: &NatsServer, arguments: &[&str]) -> Ended {
    let url = format!("nats://127.0.0.1:{}", server.port());
    let store = ["--nats", &url, "--fleet", "hall"];
    let all = ["fleet"].into_iter().chain(arguments.iter().copied());
    spotter(all.chain(store))
}

#[test]
fn applied_list_is_printed_back_and_differences_are_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = NatsServer::start();
    let write = |text: String| {
        let path = file(directory.path(), "cameras.toml", text);
        path.to_str().expect("UTF-8").to_owned()
    };
    let none = fleet(&server, &["get"]).expect(FAILED);
    assert!(
        none.stderr
            .contains("the fleet hall has no list of cameras"),
        "{}",
        none.stderr
    );

    let path = write(format!("{}[mqtt]\n", GATE.replace("label", "lable")));
    let rejected = fleet(&server, &["apply", &path]).expect(FAILED);
    for said in [
        "camera.gate.lable: unknown key; did you mean \"label\"?",
        "mqtt: unknown key",
        "2 problems; nothing was written",
    ] {
        assert!(rejected.stderr.contains(said), "{}", rejected.stderr);
    }

    let path = write(format!("{GATE}{YARD}"));
    let tried = fleet(&server, &["apply", &path, "--dry-run"]).expect(DONE);
    assert_eq!(
        tried.stdout,
        "+ gate\n+ yard\n2 cameras: 2 added, 0 changed, 0 removed; nothing was written (--dry-run)"
    );
    fleet(&server, &["get"]).expect(FAILED);
    let applied = fleet(&server, &["apply", &path]).expect(DONE);
    assert!(
        applied.stdout.ends_with("written as revision 1"),
        "{}",
        applied.stdout
    );
    let again = fleet(&server, &["apply", &path]).expect(DONE);
    assert_eq!(again.stdout, "revision 1 is the same; nothing to do");

    let text = format!(
        "{}{}",
        GATE.replace("hall2", "hall3"),
        YARD.replace("yard", "door")
    );
    let path = write(text.clone());
    let changed = fleet(&server, &["apply", &path]).expect(DONE);
    assert_eq!(
        changed.stdout,
        "+ door\n~ gate\n- yard\n2 cameras: 1 added, 1 changed, 1 removed; written as revision 2"
    );
    let printed = fleet(&server, &["get"]).expect(DONE);
    assert_eq!(printed.stdout, text.trim_end());
    assert_eq!(printed.stderr, "revision 2");
}
