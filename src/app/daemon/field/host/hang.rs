//! A device that answers no more.

use std::os::unix::net::UnixDatagram;

use super::*;

/// What systemd gives the loops, here. It is told four times as often that they live.
const WATCHDOG: Duration = Duration::from_secs(4);
const SOCKET: &str = "NOTIFY_SOCKET";

/// The only thing that can be done about it is to start again, which is systemd's.
#[test]
fn systemd_is_not_told_that_a_device_lives_that_hangs() {
    let test = "app::daemon::field::host::hang::systemd_is_not_told_that_a_device_lives_that_hangs";
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("systemd");
    let limit_us = WATCHDOG.as_micros().to_string();
    let environment = [
        (SOCKET, socket.to_str().unwrap()),
        ("WATCHDOG_USEC", &*limit_us),
    ];
    let judge = |log: &str| {
        let why = ["no progress; systemd will restart the daemon"];
        assert_eq!(lines_but(log, " ERROR ", &why), [""; 0]);
        let told = log.lines().find(|line| line.contains(why[0]));
        assert!(told.is_some_and(|line| line.contains("engine on cpu")));
    };
    if is_alone_with(test, &environment, judge) {
        let socket = UnixDatagram::bind(std::env::var_os(SOCKET).unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        crate::app::runtime().unwrap().block_on(hangs(socket));
    }
}

async fn hangs(systemd: UnixDatagram) {
    let (servers, field) = field_of_good().await;
    let is_petted = || {
        let mut bytes = [0; 4096];
        let mut petted = false;
        while let Ok(length) = systemd.recv(&mut bytes) {
            petted |= String::from_utf8_lossy(&bytes[..length]).contains("WATCHDOG=1");
        }
        petted
    };
    let story = async {
        all_see(&field).await;
        until("life", is_petted).await;
        field.stage.hang(true);
        // Time in which it is only busy, and a moment for what was on its way.
        sleep(WATCHDOG + Duration::from_secs(3)).await;
        is_petted();
        sleep(WATCHDOG).await;
        assert!(!is_petted(), "systemd believes that it lives");
        field.stage.hang(false);
        until("life again", is_petted).await;
        until("looks again", || all_present(&field)).await;
        signal("-TERM");
    };
    let (report, ()) = field.run_while(machine_clock(), story).await;
    assert!(report.balanced(), "{report}");
    for server in &servers {
        assert_eq!(server.memory().connections, 1, "no camera suffers from it");
    }
}
