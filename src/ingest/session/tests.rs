use proptest::prelude::*;

use super::*;

const POLICY: Policy = Policy {
    first_frame: Duration::from_secs(15),
    stall: Duration::from_secs(5),
    looped: false,
};

fn at(seconds: f64) -> Mono {
    Mono::from_nanos((seconds * 1e9) as u64)
}

fn failed(fault: Fault) -> Input {
    Input::Failed(Failure::new(fault, "test"))
}

/// A session that streams since `seconds`.
fn streaming(policy: Policy, seconds: f64) -> Session {
    let mut session = Session::new(policy);
    let actions = session.on(Input::Enable, at(seconds), 0.5);
    assert_eq!(actions, [Action::Start { attempt: 0 }]);
    assert!(session.on(Input::FirstPacket, at(seconds), 0.5).is_empty());
    assert_eq!(session.phase(), Phase::WaitingKeyframe);
    assert!(session.on(Input::FirstFrame, at(seconds), 0.5).is_empty());
    assert_eq!(session.phase(), Phase::Streaming);
    session
}

#[test]
fn a_camera_that_is_absent_at_the_start_is_tried_for_ever_with_growing_pauses() {
    let mut session = Session::new(POLICY);
    let mut now = at(0.0);
    let mut actions = session.on(Input::Enable, now, 0.5);
    let mut pauses_s = Vec::new();
    for attempt in 0..200 {
        assert_eq!(actions, [Action::Start { attempt }]);
        assert_eq!(
            session.on(failed(Fault::Unreachable), now, 0.5),
            [Action::Stop]
        );
        assert!(session.on(Input::Stopped, now, 0.5).is_empty());
        let due = session.next_deadline().unwrap();
        pauses_s.push(due.since(now).as_secs_f64());
        now = due;
        actions = session.on(Input::Tick(None), now, 0.5);
    }
    assert_eq!(pauses_s[..7], [1.1, 2.0, 4.0, 8.0, 16.0, 32.0, 54.0]);
    assert!(pauses_s[7..].iter().all(|pause_s| *pause_s == 54.0));
}

#[test]
fn a_frozen_camera_is_rebuilt_and_counted() {
    let mut session = streaming(POLICY, 0.0);
    assert!(
        session
            .on(Input::Tick(Some(at(3.0))), at(5.0), 0.5)
            .is_empty()
    );
    assert_eq!(session.next_deadline(), Some(at(8.0)));
    let actions = session.on(Input::Tick(Some(at(3.0))), at(8.0), 0.0);
    assert_eq!(actions, [Action::Stop]);
    assert_eq!(session.phase(), Phase::Stalled);
    assert_eq!(session.failure().unwrap().fault, Fault::Stalled);
    assert_eq!(session.on(Input::Stopped, at(9.0), 0.5).len(), 1);
    let _ = session.on(Input::FirstFrame, at(9.1), 0.5);
    assert!(session.failure().is_none());
    assert_eq!(session.last_hour(at(10.0)), (1, 1));
    assert_eq!(session.last_hour(at(3700.0)), (0, 0));
}

#[test]
fn no_first_picture_is_a_failure_of_its_own() {
    let mut session = Session::new(POLICY);
    let _ = session.on(Input::Enable, at(0.0), 0.5);
    let _ = session.on(Input::FirstPacket, at(1.0), 0.5);
    assert!(session.on(Input::Tick(None), at(14.9), 0.5).is_empty());
    assert_eq!(session.on(Input::Tick(None), at(15.0), 0.5), [Action::Stop]);
    assert_eq!(session.failure().unwrap().fault, Fault::NoFrame);
}

#[test]
fn attempts_are_forgotten_after_a_good_time_only() {
    let mut session = streaming(POLICY, 0.0);
    let _ = session.on(failed(Fault::Disconnected), at(10.0), 0.0);
    let _ = session.on(Input::Stopped, at(11.0), 0.5);
    let _ = session.on(Input::FirstFrame, at(12.0), 0.5);
    assert_eq!(session.attempts(), 1);
    let _ = session.on(Input::Tick(Some(at(41.0))), at(41.0), 0.5);
    assert_eq!(session.attempts(), 1);
    let _ = session.on(Input::Tick(Some(at(42.0))), at(42.0), 0.5);
    assert_eq!(session.attempts(), 0);
}

#[test]
fn a_refused_login_is_tried_rarely() {
    let mut session = Session::new(POLICY);
    let _ = session.on(Input::Enable, at(0.0), 0.5);
    let _ = session.on(failed(Fault::AuthFailed), at(0.0), 0.0);
    let _ = session.on(Input::Stopped, at(0.0), 0.5);
    assert_eq!(session.phase(), Phase::AuthFailed);
    assert_eq!(session.next_deadline(), Some(at(30.0)));
}

#[test]
fn files_end_once_or_are_rewound() {
    let mut once = streaming(POLICY, 0.0);
    assert_eq!(once.on(Input::Ended, at(9.0), 0.5), [Action::Stop]);
    assert_eq!((once.phase(), once.next_deadline()), (Phase::Ended, None));

    let looped = Policy {
        looped: true,
        ..POLICY
    };
    let mut session = streaming(looped, 0.0);
    assert_eq!(session.on(Input::Ended, at(9.0), 0.5), [Action::Rewind]);
    assert_eq!(session.phase(), Phase::Streaming);

    let mut empty = Session::new(looped);
    let _ = empty.on(Input::Enable, at(0.0), 0.5);
    let _ = empty.on(Input::Ended, at(0.1), 0.5);
    assert_eq!(empty.phase(), Phase::Unsupported);
}

#[test]
fn an_operator_cannot_make_it_spin() {
    let mut session = streaming(POLICY, 0.0);
    assert_eq!(session.on(Input::Reconnect, at(0.1), 0.5), [Action::Stop]);
    assert!(session.on(Input::Stopped, at(0.2), 0.5).is_empty());
    assert_eq!(session.next_deadline(), Some(at(1.0)));
}

#[test]
fn every_end_of_streaming_is_counted_once() {
    let mut session = streaming(POLICY, 0.0);
    let _ = session.on(Input::Tick(Some(at(1.0))), at(1.0), 0.5);
    assert_eq!(session.losses(), 0);
    // Lost, and back before anybody looked: the phase is the same, the count is not.
    let _ = session.on(failed(Fault::Disconnected), at(2.0), 0.0);
    let _ = session.on(failed(Fault::Disconnected), at(2.0), 0.0);
    let _ = session.on(Input::Stopped, at(3.5), 0.5);
    let _ = session.on(Input::FirstFrame, at(3.6), 0.5);
    assert_eq!((session.phase(), session.losses()), (Phase::Streaming, 1));
    // Switched off is an end too.
    let _ = session.on(Input::Disable, at(4.0), 0.5);
    assert_eq!(session.losses(), 2);
    let _ = session.on(Input::Disable, at(5.0), 0.5);
    assert_eq!(session.losses(), 2);
}

fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![
        Just(Input::Enable),
        Just(Input::Disable),
        Just(Input::Reconnect),
        Just(Input::FirstPacket),
        Just(Input::FirstFrame),
        Just(Input::Ended),
        Just(Input::Stopped),
        Just(Input::Tick(None)),
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
        let mut session = Session::new(Policy { looped, ..POLICY });
        let (mut running, mut stopping, mut enabled) = (false, false, false);
        let mut now_s = 0.0;
        let mut last_start_s = f64::NEG_INFINITY;
        for (input, pause_s, random) in steps {
            now_s += pause_s;
            match input {
                // A shell reports the end of a pipeline only after it was told to stop it.
                Input::Stopped if !stopping => continue,
                Input::Stopped => stopping = false,
                Input::Enable => enabled = true,
                Input::Disable => enabled = false,
                _ => {}
            }
            for action in session.on(input, at(now_s), random) {
                match action {
                    Action::Start { .. } => {
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
