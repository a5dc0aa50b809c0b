//! Packets that the network damages, and clocks that cameras report wrongly.

use super::*;
use crate::ingest::ClockNote;

/// Streams until the health is as wanted and this number of frames came; every frame is right.
async fn watched(name: &str, script: CameraScript, frames: u64, wanted: impl Fn(&Health) -> bool) {
    let enough = |health: &Health| health.frames >= frames && wanted(health);
    played(name, script, |_| {}, enough).await;
}

fn damaged(damage: Damage) -> CameraScript {
    CameraScript {
        damage,
        every: Duration::from_millis(25),
        ..good()
    }
}

// Faults: C23, C24, C35, C43.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_packets_are_counted_and_no_dependent_frame_is_shown() {
    tape(TapeCodec::H264);
    let hurt = |health: &Health| health.counters.rtp_lost > 0 && health.counters.frames_corrupt > 0;
    let whole =
        |health: &Health| health.counters.rtp_lost == 0 && health.counters.frames_corrupt == 0;
    let lossy = |of| watched("loss", damaged(Damage::LoseOneOf(of)), 100, hurt);
    let late = watched("reorder", damaged(Damage::DelayOneOf(20)), 300, whole);
    let counted =
        |health: &Health| health.counters.rtp_foreign > 150 && health.counters.rtp_lost == 0;
    let foreign = watched("foreign", damaged(Damage::Foreign), 200, counted);
    let wrapping = CameraScript {
        stamps: Stamps {
            sequence: u16::MAX - 50,
            rtp: u32::MAX - 90_000,
            ssrc: 1,
        },
        ..good()
    };
    let wrapped = watched("wrap", wrapping, 60, whole);
    let slices = CameraScript {
        reel: [sliced(TapeCodec::H264)].into(),
        ..damaged(Damage::LoseOneOf(20))
    };
    // A key picture every five seconds: after a loss, no good frame comes for longer than the stall limit.
    let recording = Recording {
        pictures: 200,
        gop: 200,
        ..Recording::of(TapeCodec::H264)
    };
    let rare = CameraScript {
        reel: [Arc::new(CameraTape::record(&recording))].into(),
        ..damaged(Damage::LosePicture(40))
    };
    let enough = |health: &Health| health.frames >= 50 && hurt(health);
    let rare = played(
        "rare key pictures",
        rare,
        |camera| camera.stall = STALL,
        enough,
    );
    let none_foreign = |health: &Health| whole(health) && health.counters.rtp_foreign == 0;
    let renamed = watched("renamed", damaged(Damage::Renamed), 100, none_foreign);
    let in_slices = watched("loss in slices", slices, 200, hurt);
    let lossy = async { tokio::join!(lossy(1000), lossy(100), lossy(20)) };
    tokio::join!(lossy, in_slices, rare, renamed, late, foreign, wrapped);
}

// Faults: C39.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delayed_frames_that_arrive_together_keep_their_own_times() {
    // For more than the second from which on the jitter buffer gives one PTS to several frames.
    let script = CameraScript {
        hold: Some((40, Duration::from_millis(1600))),
        ..damaged(Damage::None)
    };
    let (health, tally, _) = played("held up", script, |_| {}, streams(200)).await;
    assert_undamaged(&health, "held up");
    let left_out = tally.skipped as u64;
    assert!(left_out <= health.counters.frames_late, "{tally:?}");
}

// Faults: C34.
/// Pictures that a camera encodes wrongly cannot be distinguished from right ones: decoders conceal the error and report none.
/// The next key picture ends the error, and the session continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_byte_damages_pictures_only_until_the_next_keyframe() {
    tape(TapeCodec::H264);
    let flipped = async |of| {
        let script = damaged(Damage::FlipOneOf(of));
        let server = serve(&script).await;
        let watched = CheckedCamera::start(camera_of(&server), &script);
        watched.frames(300).await;
        let (health, tally) = (watched.health(), watched.tally());
        println!(
            "one byte wrong in {of} packets: {} right, {} not",
            tally.right,
            tally.wrong.len()
        );
        assert_eq!((health.losses, server.memory().connections), (0, 1));
        assert!(tally.right > 200, "{tally:?}");
        assert!(watched.handle.stop(LIMIT).await);
    };
    tokio::join!(flipped(1000), flipped(200));
}

// Faults: C36.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_sender_reports_do_not_move_the_capture_clock() {
    tape(TapeCodec::H264);
    let noted = async |reports, note: Option<ClockNote>| {
        let script = CameraScript {
            reports,
            report_every: Duration::from_millis(300),
            ..good()
        };
        let known =
            |health: &Health| health.clock.note == note && health.clock.trusted == note.is_none();
        let name = format!("{reports:?} {note:?}");
        watched(&name, script, 40, known).await;
    };
    tokio::join!(
        noted(Reports::Missing, Some(ClockNote::NoReports)),
        noted(Reports::Off(0), None),
        noted(Reports::Off(7200), Some(ClockNote::LooksLikeTimeZone)),
        noted(Reports::Off(400), Some(ClockNote::CameraAhead)),
        noted(Reports::Off(-400), Some(ClockNote::CameraBehind)),
        noted(Reports::Stepping(5), Some(ClockNote::Stepped)),
    );
}
