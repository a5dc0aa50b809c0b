//! Shapes that are changed while Spotter runs: `shapes.txt`, which explains them, and hostile ones.

use toml::{Table, Value};

use super::*;
use spotter_core::{
    CameraShapes, PromptRegion, check_polygon, check_polyline,
    testing::{cases, check_stories},
};

const SITE: &str = r#"
[mqtt]
url = "mqtt://broker"
[camera.gate]
url = "test://"
mask = [[[0, 0], [0.123456, 0], [0.123456, 0.2]]]
zone.drive.polygon = [[0, 0.5], [1, 0.5], [1, 1]]
zone.door = { polygon = [[0.5, 0], [0.75, 0], [0.75, 0.5]], point = "centre" }
line.kerb = { points = [[0, 0.7], [1, 0.7]], directions = ["out", "in"], reset = "Mon,Sun 06:00 Europe/Berlin" }
prompt.person = { detect = "person", rate = 0.5, zones = ["drive"], lines = ["kerb"], dwell = { drive = "30s" } }
prompt.dog = { detect = "dog", region = "door" }
prompt.open = { query = "Is it open?", refs = ["door"], region = [0.4, 0, 1, 0.6] }
"#;

fn gate(file: &str) -> CameraConfig {
    loaded(file).config.cameras.remove(0)
}

/// The file after a person has put these lines into it and removed what they say.
fn edited(lines: &str) -> String {
    fn at<'a>(file: &'a mut Table, path: &str) -> &'a mut Table {
        path.split('.').fold(file, |table, name| {
            let below = table.entry(name).or_insert(Value::Table(Table::new()));
            below.as_table_mut().unwrap()
        })
    }
    let mut file: Table = toml::from_str(SITE).unwrap();
    let mut section = String::new();
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let bracketed = |text: &str| Some(text.strip_prefix('[')?.strip_suffix(']')?.to_owned());
        match line.strip_prefix("# remove ") {
            Some(gone) => {
                let (table, key) = match bracketed(gone) {
                    Some(path) => path
                        .rsplit_once('.')
                        .map(|(up, key)| (up.to_owned(), key.to_owned()))
                        .unwrap(),
                    None => (section.clone(), gone.to_owned()),
                };
                assert!(at(&mut file, &table).remove(&key).is_some(), "{line}");
            }
            None => match bracketed(line) {
                Some(path) => section = path,
                None => at(&mut file, &section).extend(toml::from_str::<Table>(line).unwrap()),
            },
        }
    }
    toml::to_string(&file).unwrap()
}

fn step((): &mut (), line: &str) -> String {
    let file = gate(SITE);
    let keys = toml::from_str::<Table>(&format!("shapes = {{ {line} }}")).unwrap();
    let shapes = CameraShapes(keys["shapes"].as_table().unwrap().clone());
    let drawn = match with_shapes(&file, &shapes) {
        Ok(drawn) => drawn,
        Err(wrong) => return wrong.iter().map(|text| format!("> {text}\n")).collect(),
    };
    // What is stored, and what is copied into the file, are the same camera.
    let stored = shapes_of(&drawn);
    let drawn = with_shapes(&file, &stored).unwrap();
    assert_eq!(shapes_of(&drawn), stored);
    let lines = shapes_toml(&drawn, &file);
    let [of_file, of_store] = [gate(&edited(&lines)), drawn].map(|mut camera| {
        camera.zones.sort_by_key(|zone| zone.id.to_string());
        camera.prompts.sort_by_key(|prompt| prompt.id.to_string());
        camera
    });
    assert_eq!(of_file, of_store, "{lines}");
    lines.lines().map(|line| format!("> {line}\n")).collect()
}

#[test]
fn shapes_are_checked_and_written_as_those_of_the_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/shapes.txt");
    check_stories(path, step);
}

#[test]
fn too_many_shapes_or_points_are_refused() {
    let gate = gate(SITE);
    let circle = |points: usize| {
        let angle = |n: usize| n as f64 / points as f64 * std::f64::consts::TAU;
        let corner = |n| Value::from(vec![0.5 + 0.4 * angle(n).cos(), 0.5 + 0.4 * angle(n).sin()]);
        Value::Array((0..points).map(corner).collect())
    };
    let tables = |count: usize, key: &str, points: usize| {
        let table = |n| {
            let keys = [(key.to_owned(), circle(points))];
            (format!("z{n}"), Value::Table(keys.into_iter().collect()))
        };
        Value::Table((0..count).map(table).collect())
    };
    let mut whole = shapes_of(&gate).0;
    whole["zone"]
        .as_table_mut()
        .unwrap()
        .extend(tables(62, "polygon", 100).as_table().unwrap().clone());
    assert_eq!(
        with_shapes(&gate, &CameraShapes(whole.clone())).map(drop),
        Ok(())
    );
    for (key, value, expected) in [
        (
            "zone",
            tables(65, "polygon", 3),
            "zone: has 65 tables, limit 64",
        ),
        (
            "zone",
            tables(1, "polygon", 101),
            "zone.z0.polygon: has 101 points, limit 100",
        ),
        (
            "line",
            tables(1, "points", 4000),
            "line.z0.points: has 4000 points, limit 100",
        ),
        (
            "mask",
            Value::Array(vec![circle(101)]),
            "mask: has 101 points, limit 100",
        ),
        (
            "mask",
            Value::Array(vec![circle(3); 65]),
            "mask: has 65 areas, limit 64",
        ),
    ] {
        let mut beyond = whole.clone();
        beyond.insert(key.to_owned(), value);
        let wrong = with_shapes(&gate, &CameraShapes(beyond)).unwrap_err();
        assert_eq!(wrong, [expected]);
    }
}

/// Shapes as a program that means harm writes them, with names that a reader knows.
fn value() -> impl Strategy<Value = Value> {
    let share = || {
        prop_oneof![
            (0u8..=10).prop_map(|tenth| Value::from(f64::from(tenth) / 10.0)),
            any::<f64>().prop_map(Value::from),
            (-1i64..=2).prop_map(Value::from)
        ]
    };
    let point = proptest::collection::vec(share(), 2..=2).prop_map(Value::from);
    let leaf = prop_oneof![
        3 => proptest::collection::vec(point, 0..6).prop_map(Value::from),
        1 => proptest::collection::vec(share(), 4..=4).prop_map(Value::from),
        1 => ".{0,6}".prop_map(Value::from),
        1 => "[^a-z]{1,500}".prop_map(Value::from),
        1 => prop::sample::select(vec!["drive", "door", "kerb", "bottom", "motion"]).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 24, 4, |inner| {
        let names = "zone line mask prompt polygon points directions point reset zones lines region drive door kerb person open";
        let name = prop_oneof![
            9 => prop::sample::select(names.split(' ').collect::<Vec<_>>()).prop_map(str::to_owned),
            1 => ".{0,40}",
        ];
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => proptest::collection::btree_map(name, inner, 0..5)
                .prop_map(|table| Value::Table(table.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    #[test]
    fn accepted_shapes_obey_the_rules_of_the_file(
        changed in proptest::collection::btree_map("zone|line|mask|prompt", value(), 0..4),
        whole in any::<bool>(),
    ) {
        let file = gate(SITE);
        let mut keys = if whole { shapes_of(&file).0 } else { Table::new() };
        keys.extend(changed);
        match with_shapes(&file, &CameraShapes(keys)) {
            Ok(drawn) => {
                // Rounding may make two points one: the store is checked again.
                let stored = shapes_of(&drawn);
                if let Ok(again) = with_shapes(&file, &stored) {
                    prop_assert_eq!(shapes_of(&again), stored);
                }
                let regions = drawn.prompts.iter().map(|prompt| prompt.region);
                let is_inside = |region: PromptRegion| match region {
                    PromptRegion::Fixed(area) => area.norm_box().x1 <= 1.0,
                    _ => true,
                };
                prop_assert!(regions.into_iter().all(is_inside));
                prop_assert!(drawn.zones.iter().all(|zone| check_polygon(&zone.polygon).is_ok()));
                prop_assert!(drawn.lines.iter().all(|line| check_polyline(&line.points).is_ok()));
                prop_assert!(file.mask.iter().all(|area| drawn.mask.contains(area)));
            }
            Err(wrong) => {
                prop_assert!(!wrong.is_empty());
                let is_line = |text: &String| text.chars().count() < 500 && !text.chars().any(char::is_control);
                prop_assert!(wrong.iter().all(is_line), "{wrong:?}");
            }
        }
    }
}
