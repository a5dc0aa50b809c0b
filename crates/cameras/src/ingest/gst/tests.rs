//! Packets of a real encoder through a real jitter buffer and decoder, without a network: what is lost and what is renamed is
//! up to the test.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hasher},
    sync::atomic::AtomicU64,
    time::Duration,
};

use gstreamer_app::{AppSink, AppSrc};
use tokio::sync::mpsc;

use super::{packet::rename, sources::rtsp, *};
use spotter_config::{CameraTls, RtspConfig, SourceConfig, Transport};
use spotter_core::{Clock as _, Frame, ManualClock, SystemClock};

const LIMIT: Duration = Duration::from_secs(60);
const FRAMES: u32 = 80;
const GOP: u32 = 10;

/// One packet of a stream of 100 frames a second with a key frame in ten.
struct Sent {
    frame: u32,
    packet: gst::Buffer,
}

fn encode(frames: u32) -> Vec<Sent> {
    init().unwrap();
    let text = format!(
        "videotestsrc num-buffers={frames} pattern=ball ! video/x-raw,format=I420,width=160,height=120,framerate=100/1 \
         ! x264enc tune=zerolatency key-int-max={GOP} bitrate=1500 ! h264parse \
         ! rtph264pay name=pay config-interval=-1 mtu=400 ssrc=7 seqnum-offset=65500 timestamp-offset=0 \
         ! appsink name=sink sync=false"
    );
    let pipeline = parse("test", &text).unwrap();
    let sink = named(&pipeline, "sink").unwrap();
    let sink = sink.downcast::<AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut sent = Vec::new();
    while let Ok(sample) = sink.pull_sample() {
        let mut packet = sample.buffer().unwrap().copy_deep().unwrap();
        // They are timed when they arrive.
        let times = packet.make_mut();
        times.set_pts(None);
        times.set_dts(None);
        let (_, header) = packet::rtp_header(&packet).unwrap();
        sent.push(Sent {
            frame: header.rtp / 900,
            packet,
        });
    }
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(sent.last().unwrap().frame, frames - 1);
    sent
}

/// What came of packets: the pictures by their frame, and what was counted.
struct ReceivedStream {
    pictures: BTreeMap<u32, u64>,
    progress: Progress,
    decoders: usize,
    threads: i32,
    failure: Option<SourceEvent>,
}

/// Sends the packets at their pace; `change` gives what arrives of each, in its turn.
fn receive(
    sent: &[Sent],
    mut change: impl FnMut(usize, &Sent) -> Vec<gst::Buffer>,
) -> ReceivedStream {
    let (frames, shown) = std::sync::mpsc::channel::<Frame>();
    let (events, mut received) = mpsc::channel(16);
    let camera = CameraConfig {
        source: SourceConfig::Rtsp(RtspConfig {
            url: "rtsp://gate".into(),
            user: None,
            password: None,
            transport: Transport::Tcp,
            tls: CameraTls::Verify,
            redirect_hosts: Vec::new(),
        }),
        ..spotter_config::testing::camera("gate", Vec::new())
    };
    let outlet = SourceOutlet {
        camera: camera.id.clone(),
        // Nothing is ever late, however busy this machine is.
        clock: Arc::new(ManualClock::default()),
        sink: Arc::new(move |frame| drop(frames.send(frame))),
        numbers: Arc::new(AtomicU64::new(0)),
        events,
    };
    let opener = GstOpener::new(camera, None);
    let probes = PipelineProbes::new(outlet, &opener);
    let pipeline = gst::Pipeline::new();
    let manager = gst::ElementFactory::make("rtpbin");
    let manager = manager.property("latency", 30_u32).build().unwrap();
    let source = AppSrc::builder()
        .is_live(true)
        .do_timestamp(true)
        .format(gst::Format::Time)
        .caps(
            &gst::Caps::builder("application/x-rtp")
                .field("media", "video")
                .field("clock-rate", 90_000)
                .field("encoding-name", "H264")
                .field("payload", 96)
                .build(),
        )
        .build();
    pipeline.add(&manager).unwrap();
    pipeline.add(&source).unwrap();
    probes.watch_manager(&manager);
    rtsp::decode_when_added(&pipeline, &manager, &probes);
    watch_bus(&pipeline, &probes);
    let linked = source.link_pads(Some("src"), &manager, Some("recv_rtp_sink_0"));
    linked.unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut frame = 0;
    for (at, one) in sent.iter().enumerate() {
        if one.frame != frame {
            frame = one.frame;
            std::thread::sleep(Duration::from_millis(10));
        }
        for packet in change(at, one) {
            source.push_buffer(packet).unwrap();
        }
    }
    source.end_of_stream().unwrap();
    let mut pictures = BTreeMap::new();
    let ended = |received: &mut mpsc::Receiver<SourceEvent>| {
        std::iter::from_fn(|| received.try_recv().ok())
            .find(|event| matches!(event, SourceEvent::Failed(_)))
    };
    let clock = SystemClock::new();
    let start = clock.now();
    let failure = loop {
        let progress = probes.statistics().progress(probes.now());
        let in_time = clock.now().since(start) < LIMIT;
        assert!(in_time, "no end after {progress:?}");
        let failure = ended(&mut received);
        while let Ok(frame) = shown.recv_timeout(Duration::from_millis(20)) {
            pictures.insert(frame.times.rtp.unwrap() / 900, fingerprint(&frame));
        }
        if failure.is_some() {
            break failure;
        }
    };
    let decoders = pipeline.iterate_all_by_element_factory_name("rtph264depay");
    let decoders = decoders.into_iter().count();
    let threads = named(&pipeline, "decoder").unwrap().property("max-threads");
    let progress = probes.statistics().progress(probes.now());
    GstSource { pipeline, probes }.stop();
    ReceivedStream {
        pictures,
        progress,
        decoders,
        threads,
        failure,
    }
}

fn fingerprint(frame: &Frame) -> u64 {
    let mut hasher = DefaultHasher::new();
    for row in 0..frame.picture.height() {
        hasher.write(frame.picture.row(0, row));
    }
    hasher.finish()
}

fn as_sent(_: usize, one: &Sent) -> Vec<gst::Buffer> {
    vec![one.packet.copy_deep().unwrap()]
}

// Faults: C35.
#[test]
fn shown_pictures_of_a_lossy_stream_equal_the_complete_stream() {
    let sent = encode(FRAMES);
    let whole = receive(&sent, as_sent);
    assert_eq!(whole.pictures.len(), FRAMES as usize);
    let counters = whole.progress.counters;
    assert_eq!((counters.frames_corrupt, counters.rtp_foreign), (0, 0));
    assert_eq!((whole.decoders, whole.threads), (1, 4));
    let gop_s = whole.progress.stream.gop_s.unwrap();
    // The jitter buffer dates frames by their arrival too, which a busy machine delays.
    assert!(gop_s > 0.0, "{gop_s}");

    // Of six frames the first packet, one in the middle and the last, of key frames and of others.
    let lost = [
        (12, 0.0),
        (24, 0.5),
        (35, 1.0),
        (50, 0.0),
        (60, 0.5),
        (70, 1.0),
    ];
    let lost = lost.map(|(frame, share)| {
        let packets = (0..sent.len()).filter(|at| sent[*at].frame == frame);
        let packets: Vec<usize> = packets.collect();
        packets[((packets.len() - 1) as f64 * share) as usize]
    });
    let hurt = receive(&sent, |at, one| match lost.contains(&at) {
        true => Vec::new(),
        false => as_sent(at, one),
    });
    for (frame, picture) in &hurt.pictures {
        assert_eq!(whole.pictures.get(frame), Some(picture), "frame {frame}");
    }
    // All frames that are certainly whole are decoded, and none that is certainly broken.
    let shown =
        |frames: std::ops::Range<u32>| frames.filter(|n| hurt.pictures.contains_key(n)).count();
    assert_eq!((shown(0..12), shown(40..50)), (12, 10));
    let broken = [12..20, 24..30, 35..40, 50..60, 60..70, 70..80];
    assert_eq!(broken.map(shown), [0; 6]);
    let missing = u64::from(FRAMES) - hurt.pictures.len() as u64;
    let corrupt = hurt.progress.counters.frames_corrupt;
    assert!(corrupt >= missing - 6, "{corrupt} of {missing}");
}

// Faults: C39.
#[test]
fn delayed_frames_that_arrive_together_keep_their_own_times() {
    let sent = encode(3 * FRAMES);
    let whole = receive(&sent, as_sent);
    assert_eq!(whole.pictures.len(), 3 * FRAMES as usize);
    let mut waiting = Vec::new();
    let held_up = receive(&sent, |at, one| {
        waiting.extend(as_sent(at, one));
        // At 10 ms a frame, for more than the second from which on the jitter buffer gives one PTS to several frames.
        match (FRAMES / 2..2 * FRAMES).contains(&one.frame) {
            true => Vec::new(),
            false => std::mem::take(&mut waiting),
        }
    });
    assert_eq!(held_up.progress.counters.frames_corrupt, 0);
    assert!(held_up.pictures == whole.pictures, "each with its own time");
}

// Faults: C43.
#[test]
fn ssrc_change_keeps_one_decoder_and_drops_foreign_packets() {
    let sent = encode(FRAMES);
    let whole = receive(&sent, as_sent);
    let mut foreign = 0;
    let renamed = receive(&sent, |at, one| {
        let mut packet = one.packet.copy_deep().unwrap();
        let (_, header) = packet::rtp_header(&packet).unwrap();
        let gop = one.frame / GOP;
        // Another name and other numbers with each key frame.
        let seq = header.seq.wrapping_add(gop as u16 * 7_777);
        rename(packet.make_mut(), 7 + gop, seq);
        let mut arriving = vec![packet];
        // From the middle on, an ended session sends packets too.
        if one.frame > FRAMES / 2 + GOP / 2 {
            let mut other = one.packet.copy_deep().unwrap();
            rename(other.make_mut(), 1, at as u16);
            arriving.push(other);
            foreign += 1;
        }
        arriving
    });
    assert_eq!(renamed.decoders, 1);
    let Some(SourceEvent::Failed(failure)) = renamed.failure else {
        panic!("{:?}", renamed.failure);
    };
    assert_eq!(failure.fault, Fault::Disconnected);
    let first_foreign = FRAMES / 2 + GOP / 2 + 1;
    for frame in (0..first_foreign).chain(first_foreign + GOP..FRAMES) {
        let picture = renamed.pictures.get(&frame);
        assert_eq!(picture, whole.pictures.get(&frame), "frame {frame}");
    }
    for (frame, picture) in &renamed.pictures {
        assert_eq!(whole.pictures.get(frame), Some(picture), "frame {frame}");
    }
    let dropped = renamed.progress.counters.rtp_foreign;
    assert!(dropped.abs_diff(foreign) <= 5, "{dropped} of {foreign}");
}
