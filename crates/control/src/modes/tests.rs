//! A box with three modes over some days: schedules, choices, other files.

use super::*;
use spotter_config::testing::{camera, prompt};
use spotter_core::{CameraId, Setting, WeeklySchedule, testing::rate};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Monday, 2026-11-23, 00:00 in Berlin, one hour ahead of UTC.
const MONDAY_MS: i64 = 1_795_388_400_000;
/// Sunday, 2026-03-29, 00:00 in Berlin: at 02:00 the clocks go to 03:00.
const SHORT_NIGHT_MS: i64 = 1_774_738_800_000;

fn at(day: i64, hour: i64) -> WallTime {
    WallTime::from_unix_millis(MONDAY_MS + day * DAY_MS + hour * HOUR_MS)
}

fn id(text: &str) -> ModeId {
    ModeId::new(text).unwrap()
}

/// A mode that is due every day from one hour in Berlin to another; `None`: by choice alone.
fn mode(name: &str, hours: Option<(u16, u16)>) -> ModeConfig {
    let schedule = hours.map(|(from, to)| {
        let text = format!("Mon-Sun {from:02}:00-{to:02}:00 Europe/Berlin");
        WeeklySchedule::new(&text).unwrap()
    });
    let setting = ModeSetting {
        camera: CameraId::new("gate").unwrap(),
        setting: Setting::Rate(rate(name.len() as f64)),
    };
    ModeConfig {
        id: id(name),
        schedule,
        settings: vec![setting],
    }
}

/// Night from 22:00 to 06:00, evening from 18:00 to 23:00, and a mode without a schedule.
fn modes() -> Vec<ModeConfig> {
    let due = [("night", Some((22, 6))), ("evening", Some((18, 23)))];
    let all = due.into_iter().chain([("away", None)]);
    all.map(|(name, hours)| mode(name, hours)).collect()
}

/// A box that starts with these modes, and the first update.
fn switch_at(modes: Vec<ModeConfig>, now: WallTime) -> ModeSwitch {
    let mut switch = ModeSwitch::new(modes, StoredMode::default());
    switch.update(now);
    switch
}

fn active_of(modes: &[ModeConfig], choice: Option<ModeChoice>, now: WallTime) -> String {
    let active = None;
    let mut switch = ModeSwitch::new(modes.to_vec(), StoredMode { active, choice });
    switch.update(now);
    switch.active().map_or("none", ModeId::as_str).to_owned()
}

/// The active mode when `choice` was made on Monday at `hour`.
fn active(choice: Option<&str>, hour: i64, now: WallTime) -> String {
    let choice = choice.map(|mode| ModeChoice {
        mode: (mode != "none").then(|| id(mode)),
        at: at(0, hour),
    });
    active_of(&modes(), choice, now)
}

#[test]
fn schedule_decides_without_a_choice() {
    for (day, hour, expected) in [
        (0, 5, "night"),
        (0, 6, "none"),
        (0, 17, "none"),
        (0, 18, "evening"),
        // Both are due; the first one in the file is active.
        (0, 22, "night"),
        (0, 23, "night"),
        (1, 5, "night"),
        (1, 6, "none"),
    ] {
        assert_eq!(active(None, 0, at(day, hour)), expected, "{day} {hour}");
    }
}

#[test]
fn choice_is_active_until_the_schedules_change() {
    for (choice, hour, day, now, expected) in [
        ("away", 12, 0, 12, "away"),
        ("away", 12, 0, 17, "away"),
        ("away", 12, 0, 18, "evening"),
        ("none", 23, 1, 5, "none"),
        ("none", 23, 1, 6, "none"),
        // The change is over, and the schedules say the same again.
        ("none", 23, 1, 23, "night"),
        ("none", 23, 9, 23, "night"),
        // A choice of what is due ends as well.
        ("night", 23, 1, 7, "none"),
        ("evening", 20, 0, 21, "evening"),
        ("evening", 20, 0, 22, "night"),
        // Evening ends at 23:00 while night is active: no change.
        ("away", 22, 0, 23, "away"),
        ("away", 22, 1, 6, "none"),
        // The clock was set back.
        ("away", 12, -1, 19, "away"),
    ] {
        let now = at(day, now);
        assert_eq!(
            active(Some(choice), hour, now),
            expected,
            "{choice} {now:?}"
        );
    }
}

#[test]
fn choice_without_schedules_is_active_for_ever() {
    let modes = [mode("away", None), mode("always", Some((0, 24)))];
    for alone in [&modes[..1], &modes[..]] {
        let mode = Some(id("away"));
        let choice = ModeChoice {
            mode,
            at: at(0, 12),
        };
        assert_eq!(active_of(alone, Some(choice), at(4000, 0)), "away");
    }
}

#[test]
fn choice_ends_at_a_change_in_a_short_night() {
    let now = |minutes: i64| WallTime::from_unix_millis(SHORT_NIGHT_MS + minutes * 60_000);
    // 02:00 is skipped, so the mode ends when the clocks change.
    let modes = [mode("late", Some((1, 2))), mode("away", None)];
    let choice = ModeChoice {
        mode: Some(id("away")),
        at: now(90),
    };
    for (minute, expected) in [(90, "away"), (119, "away"), (120, "none"), (600, "none")] {
        let active = active_of(&modes, Some(choice.clone()), now(minute));
        assert_eq!(active, expected, "{minute}");
    }
    assert_eq!(active_of(&modes, None, now(119)), "late");
}

#[test]
fn chosen_mode_stays_in_a_new_file_that_has_it() {
    let mut switch = switch_at(modes(), at(0, 12));
    assert_eq!(switch.active(), None);
    assert_eq!(switch.choose(Some(&id("away")), at(0, 12)), Ok(true));
    assert_eq!(switch.choose(Some(&id("away")), at(0, 13)), Ok(false));
    // By its schedule, the new mode was due since the choice.
    let lunch = mode("lunch", Some((13, 14)));
    let with_lunch = modes().into_iter().chain([lunch]).collect();
    assert!(!switch.replace_modes(with_lunch, at(0, 15)));
    assert_eq!(switch.active(), Some(&id("away")));
    assert!(switch.replace_modes(modes().split_off(1)[..1].to_vec(), at(0, 16)));
    assert_eq!(switch.active(), None);
    // The choice has ended, also when the file has the mode again.
    assert!(!switch.replace_modes(modes(), at(0, 17)));
    assert_eq!(switch.active(), None);
}

#[test]
fn unknown_mode_is_refused_and_changes_nothing() {
    let mut switch = switch_at(modes(), at(0, 23));
    let stored = switch.stored().clone();
    let refusal = switch.choose(Some(&id("day")), at(0, 23)).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::UnknownMode);
    let text = "there is no mode day; there are night, evening, away";
    assert_eq!(refusal.text, text);
    assert_eq!(*switch.stored(), stored);
    let mut without = ModeSwitch::new(Vec::new(), StoredMode::default());
    let refusal = without.choose(Some(&id("day")), at(0, 23)).unwrap_err();
    assert!(refusal.text.contains("the file has no modes"), "{refusal}");
    assert_eq!(without.choose(None, at(0, 23)), Ok(false));
}

#[test]
fn stored_mode_goes_on_and_a_later_switch_is_seen() {
    let mut switch = ModeSwitch::new(modes(), StoredMode::default());
    switch.choose(Some(&id("away")), at(0, 12)).unwrap();
    let json = serde_json::to_string(switch.stored()).unwrap();
    // At the third day, the schedules have ended it meanwhile.
    for (now, is_switch, active) in [
        (at(0, 17), false, Some(id("away"))),
        (at(3, 12), true, None),
    ] {
        let stored = serde_json::from_str(&json).unwrap();
        let mut again = ModeSwitch::new(modes(), stored);
        assert_eq!(again.update(now), is_switch);
        assert_eq!(again.active(), active.as_ref());
    }
}

#[test]
fn choice_outlives_a_clock_that_is_wrong_at_first() {
    // The clock was ahead.
    let mut switch = switch_at(modes(), at(5, 12));
    switch.choose(Some(&id("away")), at(0, 12)).unwrap();
    assert_eq!(switch.active(), Some(&id("away")));
    let mut again = ModeSwitch::new(modes(), switch.stored().clone());
    assert!(switch.update(at(0, 18)));
    // A box without a battery starts in 1970, until it has the time of the network.
    assert!(!again.update(WallTime::from_unix_millis(60_000)));
    assert!(!again.update(at(0, 15)));
    assert_eq!(again.active(), Some(&id("away")));
    assert!(again.update(at(0, 18)));
}

#[test]
fn active_mode_replaces_the_values_of_the_file() {
    let file = vec![
        camera("gate", vec![prompt("person")]),
        camera("yard", vec![]),
    ];
    let mut switch = switch_at(modes(), at(0, 12));
    assert_eq!(switch.cameras(&file), file);
    switch.choose(Some(&id("night")), at(0, 12)).unwrap();
    let cameras = switch.cameras(&file);
    let rates = [cameras[0].rate, cameras[0].prompts[0].rate];
    assert_eq!(rates, [rate(5.0); 2]);
    assert_eq!(cameras[1], file[1]);
}
