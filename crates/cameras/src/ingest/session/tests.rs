use proptest::prelude::*;

use super::*;

const POLICY: SessionPolicy = SessionPolicy {
    first_frame: Duration::from_secs(15),
    stall: Duration::from_secs(5),
    looped: false,
    pause_scale: 1.0,
};

fn at(seconds: f64) -> Mono {
    Mono::from_nanos((seconds * 1e9) as u64)
}

fn failed(fault: Fault) -> SessionInput {
    SessionInput::Failed(Failure::new(fault, "test"))
}

/// A tick of a source without packets.
fn frame_at(at: Mono) -> SessionInput {
    SessionInput::Tick(SourceActivity {
        frame: Some(at),
        ..SourceActivity::default()
    })
}

/// A tick of a source whose packets come without an end.
fn packets(now_s: f64, frame_s: Option<f64>, gop_s: Option<f64>) -> SessionInput {
    SessionInput::Tick(SourceActivity {
        packet: Some(at(now_s)),
        frame: frame_s.map(at),
        gop: gop_s.map(Duration::from_secs_f64),
    })
}

/// Ticks every half second from `from_s` on while packets come; when and for what it was given up.
fn given_up(
    session: &mut Session,
    from_s: f64,
    mut tick: impl FnMut(f64) -> SessionInput,
) -> Option<(f64, Fault)> {
    (0..2000)
        .map(|n| from_s + f64::from(n) * 0.5)
        .find_map(|now_s| {
            let actions = session.on(tick(now_s), at(now_s), 0.5);
            let fault = session.failure.as_ref()?.fault;
            (actions == [Action::Stop]).then_some((now_s, fault))
        })
}

/// A session that streams since `seconds`.
fn streaming(policy: SessionPolicy, seconds: f64) -> Session {
    let mut session = Session::new(policy);
    let actions = session.on(SessionInput::Enable, at(seconds), 0.5);
    assert_eq!(actions, [Action::Start]);
    assert!(
        session
            .on(SessionInput::FirstPacket, at(seconds), 0.5)
            .is_empty()
    );
    assert_eq!(session.phase(), Phase::WaitingKeyframe);
    assert!(
        session
            .on(SessionInput::FirstFrame, at(seconds), 0.5)
            .is_empty()
    );
    assert_eq!(session.phase(), Phase::Streaming);
    session
}

#[test]
fn absent_camera_is_retried_for_ever_with_growing_pauses() {
    let mut session = Session::new(POLICY);
    let mut now = at(0.0);
    let mut actions = session.on(SessionInput::Enable, now, 0.5);
    let mut pauses_s = Vec::new();
    for _ in 0..200 {
        assert_eq!(actions, [Action::Start]);
        assert_eq!(
            session.on(failed(Fault::Unreachable), now, 0.5),
            [Action::Stop]
        );
        assert!(session.on(SessionInput::Stopped, now, 0.5).is_empty());
        let due = session.next_deadline().unwrap();
        pauses_s.push(due.since(now).as_secs_f64());
        now = due;
        actions = session.on(SessionInput::Tick(SourceActivity::default()), now, 0.5);
    }
    assert_eq!(pauses_s[..7], [1.1, 2.0, 4.0, 8.0, 16.0, 32.0, 54.0]);
    assert!(pauses_s[7..].iter().all(|pause_s| *pause_s == 54.0));
}

#[test]
fn a_frozen_camera_is_rebuilt_and_counted() {
    let mut session = streaming(POLICY, 0.0);
    assert!(session.on(frame_at(at(3.0)), at(5.0), 0.5).is_empty());
    assert_eq!(session.next_deadline(), Some(at(8.0)));
    let actions = session.on(frame_at(at(3.0)), at(8.0), 0.0);
    assert_eq!(actions, [Action::Stop]);
    assert_eq!(session.phase(), Phase::Stalled);
    assert_eq!(session.failure.as_ref().unwrap().fault, Fault::Stalled);
    assert_eq!(session.on(SessionInput::Stopped, at(9.0), 0.5).len(), 1);
    let _ = session.on(SessionInput::FirstFrame, at(9.1), 0.5);
    assert!(session.failure.is_none());
    assert_eq!(session.last_hour(at(10.0)), (1, 1));
    assert_eq!(session.last_hour(at(3700.0)), (0, 0));
    let counts = session.counts;
    assert_eq!((counts.losses, counts.reconnects, counts.stalls), (1, 1, 1));
}

#[test]
fn packets_without_pictures_end_the_session_after_two_keyframe_distances() {
    for (gop_s, limit_s) in [
        (Some(1.0), 10.0),
        (Some(10.0), 20.0),
        (None, 15.0),
        (Some(1e6), 240.0),
    ] {
        let mut session = streaming(POLICY, 0.0);
        let seen = given_up(&mut session, 3.0, |now_s| packets(now_s, Some(3.0), gop_s));
        assert_eq!(seen, Some((3.0 + limit_s, Fault::Stalled)), "{gop_s:?}");
        assert_eq!(session.last_hour(at(500.0)), (0, 1));
    }
    // Without packets it is over after `stall`, at any distance.
    let mut session = streaming(POLICY, 0.0);
    let _ = session.on(packets(3.0, Some(2.0), Some(10.0)), at(3.0), 0.5);
    assert_eq!(session.next_deadline(), Some(at(8.0)));
    let seen = given_up(&mut session, 3.5, |_| packets(3.0, Some(2.0), Some(10.0)));
    assert_eq!(seen, Some((8.0, Fault::Stalled)));
    // A longer configured limit stays in force.
    let slow = SessionPolicy {
        stall: Duration::from_secs(30),
        ..POLICY
    };
    let mut session = streaming(slow, 0.0);
    let seen = given_up(&mut session, 3.0, |now_s| {
        packets(now_s, Some(3.0), Some(1.0))
    });
    assert_eq!(seen, Some((33.0, Fault::Stalled)));
}

#[test]
fn camera_with_rare_keyframes_streams_eventually() {
    // The camera sends a key frame a minute, and none on demand.
    let mut session = Session::new(POLICY);
    let (mut now_s, mut waits_s) = (0.0, Vec::new());
    let _ = session.on(SessionInput::Enable, at(0.0), 0.5);
    loop {
        let start_s = now_s;
        let _ = session.on(SessionInput::FirstPacket, at(now_s), 0.5);
        let key_s = (start_s / 60.0_f64).floor() * 60.0 + 60.0;
        let seen = given_up(&mut session, start_s, |now_s| {
            packets(now_s.min(key_s), None, None)
        });
        let (end_s, fault) = seen.unwrap();
        if end_s >= key_s {
            break;
        }
        waits_s.push(end_s - start_s);
        assert_eq!(fault, Fault::NoFrame);
        let _ = session.on(SessionInput::Stopped, at(end_s), 0.5);
        now_s = session.next_deadline().unwrap().as_nanos() as f64 * 1e-9;
        let actions = session.on(
            SessionInput::Tick(SourceActivity::default()),
            at(now_s),
            0.5,
        );
        assert!(matches!(actions[..], [Action::Start]), "{actions:?}");
    }
    assert!(waits_s.len() <= 2, "{waits_s:?}");
    assert!(waits_s.starts_with(&[15.0]), "{waits_s:?}");
}

#[test]
fn source_that_streamed_gets_the_first_back_off_again() {
    let mut session = streaming(POLICY, 0.0);
    let blind = |now_s: f64| packets(now_s, None, Some(1.0));
    let first = given_up(&mut session, 0.0, blind);
    assert_eq!(first, Some((10.0, Fault::Stalled)));
    let _ = session.on(SessionInput::Stopped, at(12.0), 0.5);
    let _ = session.on(SessionInput::FirstFrame, at(12.0), 0.5);
    let second = given_up(&mut session, 12.0, blind);
    assert_eq!(second, Some((32.0, Fault::Stalled)), "twice as long");
    let _ = session.on(SessionInput::Stopped, at(40.0), 0.5);
    let _ = session.on(SessionInput::FirstFrame, at(40.0), 0.5);
    for now_s in [41.0, 50.0, 60.0, 71.0] {
        let good = packets(now_s, Some(now_s), Some(1.0));
        assert!(session.on(good, at(now_s), 0.5).is_empty());
    }
    let third = given_up(&mut session, 71.0, blind);
    assert_eq!(third, Some((81.0, Fault::Stalled)));
}

#[test]
fn no_first_picture_is_a_failure_of_its_own() {
    let mut session = Session::new(POLICY);
    let _ = session.on(SessionInput::Enable, at(0.0), 0.5);
    let _ = session.on(SessionInput::FirstPacket, at(1.0), 0.5);
    assert!(
        session
            .on(SessionInput::Tick(SourceActivity::default()), at(14.9), 0.5)
            .is_empty()
    );
    assert_eq!(
        session.on(SessionInput::Tick(SourceActivity::default()), at(15.0), 0.5),
        [Action::Stop]
    );
    assert_eq!(session.failure.as_ref().unwrap().fault, Fault::NoFrame);
}

#[test]
fn attempts_are_forgotten_after_a_good_time_only() {
    let mut session = streaming(POLICY, 0.0);
    let _ = session.on(failed(Fault::Disconnected), at(10.0), 0.0);
    let _ = session.on(SessionInput::Stopped, at(11.0), 0.5);
    let _ = session.on(SessionInput::FirstFrame, at(12.0), 0.5);
    assert_eq!(session.attempts, 1);
    let _ = session.on(frame_at(at(41.0)), at(41.0), 0.5);
    assert_eq!(session.attempts, 1);
    let _ = session.on(frame_at(at(42.0)), at(42.0), 0.5);
    assert_eq!(session.attempts, 0);
}

#[test]
fn files_end_once_or_are_rewound() {
    let mut once = streaming(POLICY, 0.0);
    assert_eq!(once.on(SessionInput::Ended, at(9.0), 0.5), [Action::Stop]);
    assert_eq!((once.phase(), once.next_deadline()), (Phase::Ended, None));

    let looped = SessionPolicy {
        looped: true,
        ..POLICY
    };
    let mut session = streaming(looped, 0.0);
    assert_eq!(
        session.on(SessionInput::Ended, at(9.0), 0.5),
        [Action::Rewind]
    );
    assert_eq!(session.phase(), Phase::Streaming);

    let mut empty = Session::new(looped);
    let _ = empty.on(SessionInput::Enable, at(0.0), 0.5);
    let _ = empty.on(SessionInput::Ended, at(0.1), 0.5);
    assert_eq!(empty.phase(), Phase::Unsupported);
}

#[test]
fn each_stream_end_is_counted_once() {
    let mut session = streaming(POLICY, 0.0);
    let _ = session.on(frame_at(at(1.0)), at(1.0), 0.5);
    assert_eq!(session.counts.losses, 0);
    // The stream was lost and recovered between two reports: the phase is the same, the count differs.
    let _ = session.on(failed(Fault::Disconnected), at(2.0), 0.0);
    let _ = session.on(failed(Fault::Disconnected), at(2.0), 0.0);
    let _ = session.on(SessionInput::Stopped, at(3.5), 0.5);
    let _ = session.on(SessionInput::FirstFrame, at(3.6), 0.5);
    assert_eq!(
        (session.phase(), session.counts.losses),
        (Phase::Streaming, 1)
    );
    // Disabling the camera ends the stream too.
    let _ = session.on(SessionInput::Disable, at(4.0), 0.5);
    assert_eq!(session.counts.losses, 2);
    let _ = session.on(SessionInput::Disable, at(5.0), 0.5);
    assert_eq!(session.counts.losses, 2);
}

fn any_input() -> impl Strategy<Value = SessionInput> {
    prop_oneof![
        Just(SessionInput::Enable),
        Just(SessionInput::Disable),
        Just(SessionInput::Reconnect),
        Just(SessionInput::FirstPacket),
        Just(SessionInput::FirstFrame),
        Just(SessionInput::Ended),
        Just(SessionInput::Stopped),
        Just(SessionInput::Tick(SourceActivity::default())),
        Just(failed(Fault::Unreachable)),
        Just(failed(Fault::AuthFailed)),
        Just(failed(Fault::TooManySessions)),
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

    #[test]
    fn pauses_stay_in_bounds(attempts: u32, random in 0.0..1.0) {
        let pause_s = |fault| retry_after(fault, attempts, random).as_secs_f64();
        prop_assert!((1.0..=60.0).contains(&pause_s(Fault::Unreachable)));
        prop_assert!((30.0..=300.0).contains(&pause_s(Fault::AuthFailed)));
        prop_assert!((10.0..=120.0).contains(&pause_s(Fault::TooManySessions)));
    }

    #[test]
    fn cameras_that_fail_together_come_back_apart(
        attempts in 1u32..100, random in 0.0..0.9,
    ) {
        for fault in [Fault::Unreachable, Fault::AuthFailed, Fault::TooManySessions] {
            let (one, other) = (retry_after(fault, attempts, random), retry_after(fault, attempts, random + 0.1));
            prop_assert!(other.as_secs_f64() >= one.as_secs_f64() * 1.015, "{one:?} {other:?}");
        }
    }
}

#[test]
fn refused_login_is_tried_again_after_thirty_seconds() {
    let mut session = Session::new(POLICY);
    let _ = session.on(SessionInput::Enable, at(0.0), 0.5);
    let _ = session.on(failed(Fault::AuthFailed), at(0.0), 0.0);
    let _ = session.on(SessionInput::Stopped, at(0.0), 0.5);
    assert_eq!(session.phase(), Phase::AuthFailed);
    assert_eq!(session.next_deadline(), Some(at(30.0)));
}

#[test]
fn requested_reconnect_waits_for_the_first_pause() {
    let mut session = streaming(POLICY, 0.0);
    assert_eq!(
        session.on(SessionInput::Reconnect, at(0.1), 0.5),
        [Action::Stop]
    );
    assert!(session.on(SessionInput::Stopped, at(0.2), 0.5).is_empty());
    assert_eq!(session.next_deadline(), Some(at(1.0)));
}
