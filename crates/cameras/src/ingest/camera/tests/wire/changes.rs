//! Cameras whose settings change while they stream.

use super::*;

/// Plays one script to the first connection and another to all others.
async fn first_then(first: CameraScript, then: CameraScript) -> Server {
    Server::start(move |connection| match connection {
        0 => first.clone(),
        _ => then.clone(),
    })
    .await
}

fn reel(tapes: &[Arc<CameraTape>]) -> CameraScript {
    CameraScript {
        reel: tapes.into(),
        ..CameraScript::good(&tapes[0])
    }
}

fn larger() -> Arc<CameraTape> {
    Arc::new(CameraTape::record(&Recording {
        size: (480, 272),
        ..Recording::of(TapeCodec::H264)
    }))
}

fn watch(server: &Server, script: &CameraScript) -> CheckedCamera {
    CheckedCamera::start(camera_of(server), script)
}

/// The same with a camera that must fail.
fn watch_impatiently(server: &Server, script: &CameraScript) -> CheckedCamera {
    let mut camera = camera_of(server);
    impatient(&mut camera);
    CheckedCamera::start(camera, script)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn camera_that_changes_its_encoding_continues() {
    tokio::join!(
        a_new_size_or_codec_is_taken_in_the_stream_or_with_the_next_connection(),
        parameters_that_come_late_are_awaited_and_those_that_never_come_are_no_frame(),
        a_new_sender_in_the_same_connection_is_watched_on(),
    );
}

// Faults: C27, C42.
async fn a_new_size_or_codec_is_taken_in_the_stream_or_with_the_next_connection() {
    let [h264, h265, jpeg] = [TapeCodec::H264, TapeCodec::H265, TapeCodec::Jpeg].map(tape);
    let larger = larger();
    let in_the_stream = async {
        let script = reel(&[h264.clone(), larger.clone()]);
        let (health, tally, _) = played("sizes", script, |_| {}, streams(90)).await;
        assert_undamaged(&health, "sizes");
        assert_eq!(tally.sizes[..3], [(320, 192), (480, 272), (320, 192)]);
    };
    let between = async |tapes: [&Arc<CameraTape>; 2], codec: &str, size: (u32, u32)| {
        // Tapes of one length, so the number of a picture is the same in each.
        let first = CameraScript::good(tapes[0]);
        let server = first_then(
            first.clone().after(15, CameraFault::Close),
            CameraScript::good(tapes[1]),
        )
        .await;
        let watched = watch(&server, &first);
        let changed = |health: &Health| {
            let is_other = health.stream.codec == Some(codec) && health.reconnects_1h == 1;
            is_other && is_streaming(health)
        };
        let health = watched.until("another stream", changed).await;
        assert_eq!(health.stream.size, Some(size));
        watched.frames(health.frames + 20).await;
        watched.stop().await;
    };
    let codec_in_the_stream = async {
        // The camera announces H.264 and sends H.265 with the same payload type after the first second.
        let mut tapes = vec![h264.clone()];
        tapes.extend(vec![h265.clone(); 30]);
        let first = reel(&tapes);
        let server = first_then(first.clone(), CameraScript::good(&h265)).await;
        let watched = watch_impatiently(&server, &CameraScript::good(&h264));
        let health = watched.failure().await;
        println!("another codec in the stream: {:?}", health.failure);
        let changed = |health: &Health| health.stream.codec == Some("h265") && health.frames > 40;
        watched.until("another codec", changed).await;
        watched.stop().await;
    };
    tokio::join!(
        in_the_stream,
        between([&h264, &larger], "h264", (480, 272)),
        between([&h264, &h265], "h265", (320, 192)),
        between([&h265, &jpeg], "jpeg", (320, 192)),
        codec_in_the_stream,
    );
}

// Faults: C45.
async fn parameters_that_come_late_are_awaited_and_those_that_never_come_are_no_frame() {
    // Types of H.265's parameter sets: VPS, SPS, PPS.
    let bare = |types: &[u8]| {
        let mut tape = (*tape(TapeCodec::H265)).clone().without(types);
        tape.fmtp = tape.fmtp.split(";sprop-pps").next().unwrap().to_owned();
        Arc::new(tape)
    };
    let (whole, without) = (bare(&[]), bare(&[34]));
    let late = async {
        let script = reel(&[&without, &without, &whole, &whole].map(Arc::clone));
        played("late", script, |_| {}, streams(20)).await;
    };
    let never = async {
        let script = CameraScript::good(&without);
        let server = first_then(script.clone(), CameraScript::good(&whole)).await;
        let watched = watch_impatiently(&server, &script);
        let failure = watched.failure().await.failure.unwrap();
        println!("no PPS: {failure:?}");
        assert_eq!(failure.fault, StreamFault::NoFrame, "{failure}");
        watched.frames(20).await;
        watched.stop().await;
    };
    tokio::join!(late, never);
}

// Faults: C43.
/// As after the camera's own restart behind a box that keeps the connection.
async fn a_new_sender_in_the_same_connection_is_watched_on() {
    let restarted = Stamps {
        sequence: 7,
        rtp: good().stamps.rtp,
        ssrc: 0x0bad_cafe,
    };
    let script = CameraScript {
        restart: Some((20, restarted)),
        ..good()
    };
    let server = Server::start(move |_| script.clone()).await;
    let watched = watch(&server, &good());
    watched.frames(60).await;
    assert_eq!(server.memory().connections, 1);
    watched.stop().await;
}
