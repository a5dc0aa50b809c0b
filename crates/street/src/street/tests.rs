use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn at_ms(ms: i64) -> WallTime {
    WallTime::from_unix_millis(1_790_000_000_000 + ms)
}

/// Things may appear and go; while they are there, they move smoothly, and nothing else of them changes.
#[test]
fn things_move_smoothly() {
    let street = Street::new(3);
    let mut followed = 0;
    for tick in 0..3_000 {
        let [before, after] = [0, 40].map(|ms| street.at(at_ms(tick * 200 + ms)));
        for a in before.objects.iter().filter(|a| !a.class.is_sign()) {
            let mut objects = after.objects.iter();
            let Some(b) = objects.find(|b| (b.class, b.look) == (a.class, a.look)) else {
                continue;
            };
            followed += 1;
            assert!((a.x - b.x).abs() < 8.0, "{a:?} -> {b:?}");
            assert!((a.lift_m - b.lift_m).abs() < 0.2, "{a:?} -> {b:?}");
            let constant = |o: &SceneObject| (o.colour, o.foot_y, o.variant);
            assert_eq!(constant(a), constant(b));
        }
        assert_eq!(before.props, after.props);
        assert_eq!(before.backdrop, after.backdrop);
        assert!((before.darkness - after.darkness).abs() < 0.01);
    }
    assert!(followed > 5_000, "{followed}");
}

/// The score of a tracker needs it.
#[test]
fn an_identity_is_constant_during_a_stay_and_unique() {
    let street = Street::new(5);
    let mut known: BTreeMap<ObjectIdentity, SceneObject> = BTreeMap::new();
    let mut passed = BTreeSet::new();
    for tick in 0..1_500 {
        let objects = street.at(at_ms(tick * 400)).objects;
        let mut now: BTreeMap<ObjectIdentity, SceneObject> = Default::default();
        for object in objects {
            assert_eq!(now.insert(object.identity, object), None, "twice at a time");
        }
        for (identity, object) in &now {
            let Some(before) = known.get(identity) else {
                assert!(passed.insert(*identity), "{identity:?} appeared again");
                continue;
            };
            assert_eq!((before.class, before.look), (object.class, object.look));
        }
        known = now;
    }
    assert!(passed.len() > 150, "{}", passed.len());
}
