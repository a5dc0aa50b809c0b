//! Cameras that send something else than they announce, or not as they should: what reaches the decoder.

use super::*;

// Faults: C25.
/// As some servers send pictures of several slices. The measured rate is the camera's, and none of its pictures is left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_are_whole_wherever_a_camera_sets_marks() {
    let mut running = JoinSet::new();
    for codec in [TapeCodec::H264, TapeCodec::H265] {
        for marks in [Marks::Pictures, Marks::Slices, Marks::Units, Marks::Nothing] {
            let script = CameraScript {
                marks,
                ..CameraScript::good(&sliced(codec))
            };
            running.spawn(async move {
                let name = format!("{codec:?} {marks:?}");
                let (health, tally, _) = played(&name, script, |_| {}, streams(60)).await;
                assert_undamaged(&health, &name);
                let fps = health.stream.fps_measured.unwrap();
                assert!(fps < 30.0, "{name}: {fps}");
                let left_out = tally.skipped as u64;
                assert!(left_out <= health.counters.frames_late, "{name}: {tally:?}");
            });
        }
    }
    running.join_all().await;
}

// Faults: C26.
/// Nothing is lost on the way, and decoders conceal what is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn picture_without_its_first_slice_is_not_shown() {
    let beheaded = async |codec, number, shown| {
        let script = CameraScript {
            damage: Damage::Behead(number),
            ..CameraScript::good(&sliced(codec))
        };
        let name = format!("{codec:?} without the beginning of {number}");
        let (health, tally, _) = played(&name, script, |_| {}, streams(40)).await;
        let counters = health.counters;
        assert_eq!(counters.rtp_lost, 0, "{name}");
        // Those that build on it are not shown either.
        let hidden = counters.frames_corrupt;
        let expected = hidden == shown && tally.skipped as u64 == shown + counters.frames_late;
        assert!(
            expected || counters.frames_late > 0,
            "{name}: {counters:?} {tally:?}"
        );
    };
    tokio::join!(
        beheaded(TapeCodec::H264, 14, 6),
        beheaded(TapeCodec::H265, 14, 6),
        beheaded(TapeCodec::H264, 20, 10),
    );
}

// Faults: C27.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codec_that_was_not_announced_is_named() {
    let announced = async |announced, sent| {
        let script = CameraScript {
            video: Some(media(&tape(announced), "video")),
            ..CameraScript::good(&tape(sent))
        };
        let server = serve(&script).await;
        let camera = rtsp(server.url(), Transport::Auto);
        let opener = GstOpener::new(camera.clone(), None);
        let watched = WatchedCamera::start_with(opener, &camera);
        let health = watched.failure().await;
        assert_eq!(health.phase, Phase::Unsupported);
        // The other transport would have the same codec, and its own failure would hide this one.
        watched.handle.reconnect();
        let again = |health: &Health| failed(health) && server.memory().count("PLAY") > 1;
        let health = watched.until("the same failure", again).await;
        assert_eq!(health.stream.transport, Some("tcp"));
        watched.stop().await;
        health.failure.unwrap().text
    };
    let (h264, h265) = (TapeCodec::H264, TapeCodec::H265);
    let (says_265, says_264) = tokio::join!(announced(h265, h264), announced(h264, h265));
    assert!(
        says_265.contains("announces H.265 in its SDP and sends H.264"),
        "{says_265}"
    );
    assert!(
        says_264.contains("announces H.264 in its SDP and sends H.265"),
        "{says_264}"
    );
}

// Faults: C28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn static_payload_type_needs_no_rtpmap() {
    let section = |payload_type| format!("m=video 0 RTP/AVP {payload_type}\r\na=control:video\r\n");
    let jpeg = CameraScript {
        video: Some(section(26)),
        ..CameraScript::good(&tape(TapeCodec::Jpeg))
    };
    let shown = async {
        let (health, ..) = played("JPEG without a name", jpeg, |_| {}, streams(20)).await;
        assert_eq!(health.stream.codec, Some("jpeg"));
    };
    let named = async |payload_type, name| {
        let script = CameraScript {
            video: Some(section(payload_type)),
            ..good()
        };
        let server = serve(&script).await;
        let watched = WatchedCamera::start(camera_of(&server));
        let health = watched.failure().await;
        watched.stop().await;
        let text = health.failure.unwrap().text;
        assert!(text.contains(&format!("its video is {name};")), "{text}");
        assert_eq!(health.phase, Phase::Unsupported);
    };
    tokio::join!(
        shown,
        named(31, "H261"),
        named(32, "MPV"),
        named(34, "H263")
    );
}

// Faults: C11, C29, C30.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_answers_and_late_beginnings_lose_nothing() {
    let announces = |rtp_info| CameraScript {
        rtp_info: Some(rtp_info),
        ..good()
    };
    let (mut unnamed, mut late) = (good(), good());
    unnamed.names_channels = false;
    late.first_after = Duration::from_secs(4);
    let mut running = JoinSet::new();
    for (name, script, frames) in [
        ("no channels", unnamed, 40),
        ("begins late", late, 10),
        ("number 0", announces("seq=0;rtptime=0"), 30),
        ("an earlier number", announces("seq=990"), 30),
        (
            "another number",
            announces("seq=65000;rtptime=4000000000"),
            30,
        ),
    ] {
        running.spawn(async move {
            let (health, _, server) = played(name, script, |_| {}, streams(frames)).await;
            assert_undamaged(&health, name);
            assert_eq!(server.memory().connections, 1, "{name}");
        });
    }
    running.join_all().await;
}

// Faults: C31.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_between_packets_are_an_interrupted_stream() {
    for script in [
        good().after(15, CameraFault::Babble),
        // Half of each packet from then on.
        good().within(15, CameraFault::Ignore),
    ] {
        let server = serve(&script).await;
        let watched = CheckedCamera::start(camera_of(&server), &script);
        let failure = watched.failure().await.failure.unwrap();
        assert_eq!(failure.fault, StreamFault::Protocol, "{failure}");
        let text = &failure.text;
        assert!(text.contains("the stream was interrupted"), "{text}");
        watched.stop().await;
    }
}
