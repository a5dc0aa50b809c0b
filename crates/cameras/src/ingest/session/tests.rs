use proptest::prelude::*;

use super::*;
use spotter_core::duration_from_secs;

const POLICY: SessionPolicy = SessionPolicy {
    first_frame: Duration::from_secs(15),
    stall: Duration::from_secs(5),
    looped: false,
    pause_scale: 1.0,
};

const IDLE: SessionInput = SessionInput::Tick(SourceActivity {
    frame: None,
    packet: None,
    gop: None,
});

const FIRST_PACKET: SessionInput = SessionInput::Source(SourceEvent::FirstPacket);
const FIRST_FRAME: SessionInput = SessionInput::Source(SourceEvent::FirstFrame);
const ENDED: SessionInput = SessionInput::Source(SourceEvent::Ended);

fn at(seconds: f64) -> Mono {
    Mono::from_nanos((seconds * 1e9) as u64)
}

fn failed(fault: StreamFault) -> SessionInput {
    SessionInput::Source(SourceEvent::Failed(Failure::new(fault, "test")))
}

/// A tick of a source without packets.
fn frame_at(frame_s: f64) -> SessionInput {
    SessionInput::Tick(SourceActivity {
        frame: Some(at(frame_s)),
        ..SourceActivity::default()
    })
}

/// A tick of a source whose packets come without an end.
fn packets(now_s: f64, frame_s: Option<f64>, gop_s: Option<f64>) -> SessionInput {
    SessionInput::Tick(SourceActivity {
        packet: Some(at(now_s)),
        frame: frame_s.map(at),
        gop: gop_s.map(duration_from_secs),
    })
}

impl Session {
    /// The actions after inputs at the same second, with pauses in the middle of their range.
    fn take<const N: usize>(&mut self, now_s: f64, inputs: [SessionInput; N]) -> Vec<Action> {
        let actions = inputs.map(|input| self.on(input, at(now_s), 0.5));
        actions.concat()
    }

    /// The pipeline is gone: the second at which the next one starts.
    fn restarts(&mut self, now_s: f64) -> f64 {
        self.take(now_s, [SessionInput::Stopped]);
        let due = self.next_deadline().unwrap();
        assert_eq!(self.on(IDLE, due, 0.5), [Action::Start]);
        due.as_nanos() as f64 * 1e-9
    }

    fn fault(&self) -> Option<StreamFault> {
        self.failure.as_ref().map(|failure| failure.fault)
    }

    /// Ticks every half second from `from_s` on while packets come; when and for what it was given up.
    fn given_up(
        &mut self,
        from_s: f64,
        mut tick: impl FnMut(f64) -> SessionInput,
    ) -> Option<(f64, StreamFault)> {
        let mut seconds = (0..2000).map(|n| from_s + f64::from(n) * 0.5);
        seconds.find_map(|now_s| {
            let actions = self.take(now_s, [tick(now_s)]);
            (actions == [Action::Stop]).then_some((now_s, self.fault()?))
        })
    }
}

/// A session that streams since the beginning.
fn streaming(policy: SessionPolicy) -> Session {
    let mut session = Session::new(policy);
    assert_eq!(session.take(0.0, [SessionInput::Enable]), [Action::Start]);
    assert_eq!(session.take(0.0, [FIRST_PACKET]), []);
    assert_eq!(session.phase(), Phase::WaitingKeyframe);
    assert_eq!(session.take(0.0, [FIRST_FRAME]), []);
    assert_eq!(session.phase(), Phase::Streaming);
    session
}

#[test]
fn absent_camera_is_retried_for_ever_with_growing_pauses() {
    let mut session = Session::new(POLICY);
    let mut now_s = 0.0;
    session.take(now_s, [SessionInput::Enable]);
    let mut pauses_s = Vec::new();
    for _ in 0..200 {
        let failed = session.take(now_s, [failed(StreamFault::Unreachable)]);
        assert_eq!(failed, [Action::Stop]);
        let next_s = session.restarts(now_s);
        pauses_s.push(next_s - now_s);
        now_s = next_s;
    }
    for (pause_s, expected_s) in pauses_s.iter().zip([1.1, 2.0, 4.0, 8.0, 16.0, 32.0]) {
        assert!((pause_s - expected_s).abs() < 1e-6, "{pauses_s:?}");
    }
    assert!(pauses_s[6..].iter().all(|s| (s - 54.0).abs() < 1e-6));
}

#[test]
fn a_frozen_camera_is_rebuilt_and_counted() {
    let mut session = streaming(POLICY);
    assert_eq!(session.take(5.0, [frame_at(3.0)]), []);
    assert_eq!(session.next_deadline(), Some(at(8.0)));
    assert_eq!(session.take(8.0, [frame_at(3.0)]), [Action::Stop]);
    assert_eq!(session.phase(), Phase::Stalled);
    assert_eq!(session.fault(), Some(StreamFault::Stalled));
    let restart = [SessionInput::Stopped, FIRST_FRAME];
    assert_eq!(session.take(9.5, restart), [Action::Start]);
    assert!(session.failure.is_none());
    assert_eq!(session.last_hour(at(10.0)), (1, 1));
    assert_eq!(session.last_hour(at(3700.0)), (0, 0));
    let counts = session.counts;
    assert_eq!((counts.losses, counts.reconnects, counts.stalls), (1, 1, 1));
}

#[test]
fn packets_without_pictures_end_the_session_after_two_keyframe_distances() {
    // A longer configured limit stays in force.
    for (stall_s, gop_s, limit_s) in [
        (5, Some(1.0), 10.0),
        (5, Some(10.0), 20.0),
        (5, None, 15.0),
        (5, Some(1e6), 240.0),
        (30, Some(1.0), 30.0),
    ] {
        let mut session = streaming(SessionPolicy {
            stall: Duration::from_secs(stall_s),
            ..POLICY
        });
        let seen = session.given_up(3.0, |now_s| packets(now_s, Some(3.0), gop_s));
        assert_eq!(
            seen,
            Some((3.0 + limit_s, StreamFault::Stalled)),
            "{gop_s:?}"
        );
        assert_eq!(session.last_hour(at(500.0)), (0, 1));
    }
    // Without packets it is over after `stall`, at any distance.
    let mut session = streaming(POLICY);
    let last = || packets(3.0, Some(2.0), Some(10.0));
    assert_eq!(session.take(3.0, [last()]), []);
    assert_eq!(session.next_deadline(), Some(at(8.0)));
    let seen = session.given_up(3.5, |_| last());
    assert_eq!(seen, Some((8.0, StreamFault::Stalled)));
}

// Faults: C44.
#[test]
fn camera_with_rare_keyframes_streams_eventually() {
    // The camera sends a key frame a minute, and none on demand.
    let mut session = Session::new(POLICY);
    let (mut now_s, mut waits_s) = (0.0_f64, Vec::new());
    session.take(0.0, [SessionInput::Enable]);
    loop {
        session.take(now_s, [FIRST_PACKET]);
        let key_s = (now_s / 60.0).floor() * 60.0 + 60.0;
        let seen = session.given_up(now_s, |now_s| packets(now_s.min(key_s), None, None));
        let (end_s, fault) = seen.unwrap();
        if end_s >= key_s {
            break;
        }
        waits_s.push(end_s - now_s);
        assert_eq!(fault, StreamFault::NoFrame);
        now_s = session.restarts(end_s);
    }
    assert!(waits_s.len() <= 2, "{waits_s:?}");
    assert!(waits_s.starts_with(&[15.0]), "{waits_s:?}");
}

#[test]
fn source_that_streamed_gets_the_first_back_off_again() {
    let mut session = streaming(POLICY);
    let again = || [SessionInput::Stopped, FIRST_FRAME];
    let blind = |now_s: f64| packets(now_s, None, Some(1.0));
    assert_eq!(
        session.given_up(0.0, blind),
        Some((10.0, StreamFault::Stalled))
    );
    session.take(12.0, again());
    let second = session.given_up(12.0, blind);
    assert_eq!(second, Some((32.0, StreamFault::Stalled)), "twice as long");
    session.take(40.0, again());
    for now_s in [41.0, 50.0, 60.0, 71.0] {
        let good = packets(now_s, Some(now_s), Some(1.0));
        assert_eq!(session.take(now_s, [good]), []);
    }
    assert_eq!(
        session.given_up(71.0, blind),
        Some((81.0, StreamFault::Stalled))
    );
}

// Faults: C31.
/// As a camera whose stream breaks every ten seconds.
#[test]
fn session_with_pictures_is_followed_by_the_first_pause() {
    let mut session = streaming(POLICY);
    let mut now_s = 0.0;
    for _ in 0..20 {
        session.take(now_s + 9.8, [frame_at(now_s + 9.8)]);
        session.take(now_s + 10.0, [failed(StreamFault::Protocol)]);
        let next_s = session.restarts(now_s + 10.0);
        let pause_s = next_s - now_s - 10.0;
        assert!((1.0..=1.2).contains(&pause_s), "{pause_s}");
        now_s = next_s;
        session.take(now_s, [FIRST_PACKET, FIRST_FRAME]);
    }
}

// Faults: C32.
/// One frame with each connection, then none for longer than `stall`.
#[test]
fn camera_slower_than_stall_gets_few_connections_and_the_key() {
    let mut session = streaming(POLICY);
    let (mut now_s, mut starts_s) = (0.0, Vec::new());
    while now_s < 600.0 {
        session.take(now_s, [frame_at(now_s)]);
        assert_eq!(session.take(now_s + 5.001, [IDLE]), [Action::Stop]);
        let text = session.failure.as_ref().unwrap().text.clone();
        assert!(text.contains("set a longer `stall`"), "{text}");
        now_s = session.restarts(now_s + 5.001);
        starts_s.push(now_s);
        session.take(now_s, [FIRST_PACKET, FIRST_FRAME]);
    }
    // The first failure may have been an accident.
    assert!((6.0..6.3).contains(&starts_s[0]), "{starts_s:?}");
    for (at, start_s) in starts_s.iter().enumerate() {
        let in_a_minute = starts_s[at..]
            .iter()
            .take_while(|later| **later < start_s + 60.0);
        assert!(in_a_minute.count() <= 3, "{starts_s:?}");
    }
}

#[test]
fn files_end_once_or_are_rewound() {
    let mut once = streaming(POLICY);
    assert_eq!(once.take(9.0, [ENDED]), [Action::Stop]);
    assert_eq!((once.phase(), once.next_deadline()), (Phase::Ended, None));

    let looped = SessionPolicy {
        looped: true,
        ..POLICY
    };
    let mut session = streaming(looped);
    assert_eq!(session.take(9.0, [ENDED]), [Action::Rewind]);
    assert_eq!(session.phase(), Phase::Streaming);

    let mut empty = Session::new(looped);
    empty.take(0.0, [SessionInput::Enable, ENDED]);
    assert_eq!(empty.phase(), Phase::Unsupported);
}

#[test]
fn each_stream_end_is_counted_once() {
    let mut session = streaming(POLICY);
    session.take(1.0, [frame_at(1.0)]);
    assert_eq!(session.counts.losses, 0);
    // The stream was lost and recovered between two reports: the phase is the same, the count differs.
    session.take(2.0, [(); 2].map(|()| failed(StreamFault::Disconnected)));
    session.take(3.5, [SessionInput::Stopped, FIRST_FRAME]);
    assert_eq!(session.phase(), Phase::Streaming);
    assert_eq!(session.counts.losses, 1);
    // Disabling the camera ends the stream too.
    for now_s in [4.0, 5.0] {
        session.take(now_s, [SessionInput::Disable]);
        assert_eq!(session.counts.losses, 2);
    }
}

#[test]
fn operator_makes_the_session_forget_connections_without_pictures() {
    for (input, is_again) in [
        (SessionInput::Reconnect, true),
        (SessionInput::Change(POLICY), true),
        (SessionInput::Disable, false),
    ] {
        let mut session = streaming(POLICY);
        (session.blind, session.silent, session.attempts) = (3, 3, 3);
        session.take(100.0, [input, SessionInput::Stopped]);
        let forgotten = (session.blind, session.silent, session.attempts);
        assert_eq!(forgotten, (0, 0, 0));
        assert_eq!(session.phase() == Phase::Connecting, is_again);
    }
}

fn any_input() -> impl Strategy<Value = SessionInput> {
    prop_oneof![
        Just(SessionInput::Enable),
        Just(SessionInput::Disable),
        Just(SessionInput::Reconnect),
        Just(FIRST_PACKET),
        Just(FIRST_FRAME),
        Just(ENDED),
        Just(SessionInput::Stopped),
        Just(SessionInput::Tick(SourceActivity::default())),
        Just(failed(StreamFault::Unreachable)),
        Just(failed(StreamFault::AuthFailed)),
        Just(failed(StreamFault::TooManySessions)),
    ]
}

proptest! {
    #[test]
    fn never_two_pipelines_and_always_a_next_step(
        steps in prop::collection::vec((any_input(), 0.0..20.0, 0.0..1.0), 1..200),
        looped: bool,
    ) {
        let mut session = Session::new(SessionPolicy { looped, ..POLICY });
        let (mut running, mut stopping, mut enabled) = (false, false, false);
        let mut now_s = 0.0;
        let mut last_start_s = f64::NEG_INFINITY;
        for (input, pause_s, random) in steps {
            now_s += pause_s;
            match input {
                // A shell reports the end of a pipeline only after the action to stop it.
                SessionInput::Stopped if !stopping => continue,
                SessionInput::Stopped => stopping = false,
                SessionInput::Enable => enabled = true,
                SessionInput::Disable => enabled = false,
                _ => {}
            }
            for action in session.on(input, at(now_s), random) {
                match action {
                    Action::Start => {
                        prop_assert!(!running && !stopping && enabled);
                        prop_assert!(now_s - last_start_s > 0.999);
                        (running, last_start_s) = (true, now_s);
                    }
                    Action::Stop => {
                        prop_assert!(running);
                        (running, stopping) = (false, true);
                    }
                    Action::Rewind => prop_assert!(running && looped),
                }
            }
            if enabled && session.phase() != Phase::Ended {
                prop_assert!(session.next_deadline().is_some() || stopping);
            } else {
                prop_assert!(!running && session.next_deadline().is_none());
            }
        }
    }
}
