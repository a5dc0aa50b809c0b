use proptest::prelude::*;
use spotter_core::testing::cases;

use super::*;
use crate::{
    entries::CAPACITY_HZ_RANGE,
    testing::{self, camera, listed},
};

fn node(n: usize) -> NodeId {
    testing::node(&format!("n{n}"))
}

fn offer(capacity_hz: f64) -> Heartbeat {
    Heartbeat {
        capacity_hz,
        ..Heartbeat::default()
    }
}

fn view(cameras: usize, nodes: usize) -> AssignmentInputs {
    AssignmentInputs {
        cameras: listed(cameras),
        nodes: (0..nodes).map(|n| (node(n), offer(60.0))).collect(),
        owners: BTreeMap::new(),
    }
}

#[test]
fn joining_node_takes_from_busy_nodes_only() {
    for (cameras, expected) in [(200, 0..=0), (580, 30..=60)] {
        let mut view = view(cameras, 10);
        view.owners = view.assign().owners;
        view.nodes.insert(node(10), offer(60.0));
        let joined = view
            .assign()
            .owners
            .into_values()
            .filter(|of| *of == node(10))
            .count();
        assert!(expected.contains(&joined), "{cameras} cameras: {joined}");
    }
}

#[test]
fn cameras_share_the_lack_and_it_is_reported() {
    let assignment = view(900, 10).assign();
    let mut work = BTreeMap::<_, usize>::new();
    for node in assignment.owners.values() {
        *work.entry(node).or_default() += 1;
    }
    assert!(
        work.values().all(|work| (70..=100).contains(work)),
        "{work:?}"
    );
    assert_eq!(assignment.missing_hz, 300.0);
}

#[test]
fn higher_priority_has_room_and_the_rest_waits() {
    let mut view = view(200, 2);
    for n in 0..50 {
        view.cameras.get_mut(&camera(n)).unwrap().priority = 1;
    }
    let assignment = view.assign();
    assert!((0..50).all(|n| assignment.owners.contains_key(&camera(n))));
    assert!(
        (100..=120).contains(&assignment.owners.len()),
        "{}",
        assignment.owners.len()
    );
    let left = 200 - assignment.owners.len();
    assert_eq!(assignment.missing_hz, left as f64);
    view.owners = assignment.owners.clone();
    assert_eq!(view.assign(), assignment);
}

#[test]
fn labels_and_refusals_restrict_nodes() {
    let mut view = view(3, 3);
    view.cameras.get_mut(&camera(0)).unwrap().label = Some("hall".into());
    view.cameras.get_mut(&camera(1)).unwrap().label = Some("yard".into());
    for (n, offer) in view.nodes.values_mut().enumerate() {
        if n == 2 {
            offer.labels.insert("hall".into());
        } else {
            offer.refused.insert(camera(2), "no login".into());
        }
    }
    let assignment = view.assign();
    let of_two = [camera(0), camera(2)].map(|camera| (camera, node(2)));
    assert_eq!(assignment.owners, BTreeMap::from(of_two));
    assert_eq!(assignment.missing_hz, 1.0);
}

prop_compose! {
    fn views()(
        works in prop::collection::vec((0.1..20.0f64, 0..4u8, 0..3u8), 0..60),
        capacities in prop::collection::vec((prop_oneof![1.0..200.0f64, CAPACITY_HZ_RANGE], 0..4u8), 1..8),
        owners in prop::collection::vec(0..12usize, 60),
    ) -> AssignmentInputs {
        let label = |n: u8| (n > 1).then(|| format!("l{n}"));
        AssignmentInputs {
            cameras: works.iter().enumerate().map(|(n, &(work_hz, in_room, priority))| {
                (camera(n), CameraNeed { work_hz, label: label(in_room), priority })
            }).collect(),
            nodes: capacities.iter().enumerate().map(|(n, &(capacity_hz, room))| {
                (node(n), Heartbeat { labels: label(room).into_iter().collect(), ..offer(capacity_hz) })
            }).collect(),
            owners: owners.iter().enumerate().map(|(n, &of)| (camera(n), node(of))).collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn assignment_is_allowed_complete_and_stable(mut view in views()) {
        let assignment = view.assign();
        prop_assert!(assignment.missing_hz.is_finite());
        for (camera, node) in &assignment.owners {
            prop_assert!(view.may_have(node, camera, &view.cameras[camera]));
        }
        let highest = view.cameras.values().map(|need| need.priority).max();
        for (camera, need) in &view.cameras {
            let is_possible = view.nodes.keys().any(|node| view.may_have(node, camera, need));
            let is_owned = assignment.owners.contains_key(camera);
            prop_assert!(is_owned || !is_possible || Some(need.priority) < highest, "{camera}");
        }
        // Its own result does not change it.
        view.owners = assignment.owners.clone();
        prop_assert_eq!(view.assign().owners, assignment.owners);
    }
}
