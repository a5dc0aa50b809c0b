//! Cameras as they are sold: what they encode with, and what they send beside the video.

use super::*;

const AAC: &str = "m=audio 0 RTP/AVP 97\r\na=rtpmap:97 MPEG4-GENERIC/16000/1\r\n\
    a=fmtp:97 streamtype=5;profile-level-id=1;mode=AAC-hbr;sizelength=13;indexlength=3;indexdeltalength=3;config=1408\r\n\
    a=control:audio1\r\n";
const SOUND_AND_METADATA: &str = "m=audio 0 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\na=control:audio2\r\n\
    m=application 0 RTP/AVP 107\r\na=rtpmap:107 vnd.onvif.metadata/90000\r\na=control:metadata\r\n";

fn recorded(recording: Recording) -> CameraScript {
    CameraScript::good(&Arc::new(CameraTape::record(&recording)))
}

/// Streams this number of frames, all of them right.
async fn shown(name: &str, script: CameraScript, frames: u64) -> (Health, Tally, Server) {
    let full_width = |camera: &mut CameraConfig| camera.width = 4096;
    let shown = played(name, script, full_width, streams(frames)).await;
    assert_undamaged(&shown.0, name);
    shown
}

// Faults: C46.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_video_stream_is_set_up_at_any_position() {
    let mut running = JoinSet::new();
    for (before, after) in [
        (AAC, ""),
        (SOUND_AND_METADATA, ""),
        (AAC, SOUND_AND_METADATA),
    ] {
        let script = CameraScript {
            before,
            after,
            ..good()
        };
        running.spawn(async move {
            let name = format!("between {before:?} and {after:?}");
            let (_, _, server) = shown(&name, script, 10).await;
            let requests = server.memory().requests.into_iter();
            let setups = requests.filter(|(_, request, _)| request == "SETUP");
            let urls: Vec<String> = setups.map(|(_, _, url)| url).collect();
            let only_video = urls.len() == 1 && urls[0].ends_with("/video");
            assert!(only_video, "{name}: {urls:?}");
        });
    }
    running.join_all().await;
}

// Faults: C47.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_of_each_camera_encoding_are_correct() {
    let h264 = Recording::of(TapeCodec::H264);
    const USUAL: (u32, u32) = (320, 192);
    let of_codec = |codec| CameraScript::good(&tape(codec));
    let of_size = |codec, size| {
        recorded(Recording {
            size,
            ..Recording::of(codec)
        })
    };
    // An H.264 message that a player is to turn the picture by a quarter (display orientation).
    let turn = [6, 47, 3, 0x20, 0x00, 0x88, 0x80];
    let mut turned = (*tape(TapeCodec::H264)).clone();
    turned = turned.with_before_keys(&turn);
    let mut late = (*tape(TapeCodec::H265)).clone();
    late.fmtp.clear();
    let large = recorded(Recording {
        size: (3840, 2160),
        pictures: 4,
        gop: 2,
        ..h264.clone()
    });
    let unrated = recorded(Recording {
        says_rate: false,
        ..h264.clone()
    });
    let interlaced = recorded(Recording {
        interlaced: true,
        ..h264
    });
    const SLOWEST: Duration = Duration::from_secs(1);
    let slowly = |script: CameraScript, every| CameraScript { every, ..script };
    let zoo = [
        ("4K", slowly(large, SLOWEST / 2), (3840, 2160)),
        ("one a second", slowly(good(), SLOWEST), USUAL),
        ("H.265", of_codec(TapeCodec::H265), USUAL),
        ("JPEG", of_codec(TapeCodec::Jpeg), USUAL),
        ("no rate", unrated, USUAL),
        ("odd size", of_size(TapeCodec::H264, (322, 182)), (322, 182)),
        (
            "odd size H.265",
            of_size(TapeCodec::H265, (328, 184)),
            (328, 184),
        ),
        ("interlaced", interlaced, USUAL),
        ("turned", CameraScript::good(&Arc::new(turned)), USUAL),
        (
            "H.265 parameters in the stream alone",
            CameraScript::good(&Arc::new(late)),
            USUAL,
        ),
    ];
    let mut running = JoinSet::new();
    for (name, script, size) in zoo {
        running.spawn(async move {
            let frames = if script.every == SLOWEST { 5 } else { 8 };
            let (health, tally, _) = shown(name, script, frames).await;
            assert_eq!(tally.sizes, [size], "{name}");
            let codec = match name {
                "JPEG" => "jpeg",
                name if name.contains("H.265") => "h265",
                _ => "h264",
            };
            assert_eq!(health.stream.codec, Some(codec), "{name}");
        });
    }
    running.join_all().await;
}
