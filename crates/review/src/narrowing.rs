//! Which prompts report less with other shapes on their camera. Pure.
//!
//! Only what is narrower can be replayed: what was outside of the shapes in force is not recorded.

use spotter_config::{CameraConfig, PromptConfig, ZoneConfig};
use spotter_core::{NormBox, PromptRegion};
use spotter_history::{MaskAreas, is_covered};

/// A side of a region is no further out when it is by less than this: shares have four digits.
const SIDE_TOLERANCE: f64 = 1e-4;

/// A prompt that reports less.
#[derive(Clone, Debug, PartialEq)]
pub struct NarrowedPrompt<'a> {
    pub before: &'a PromptConfig,
    pub after: &'a PromptConfig,
    /// Where nothing is found any more.
    pub hidden: MaskAreas,
}

/// The prompts whose events may be fewer with the shapes of `after`. An error says what is wider.
pub fn narrowed<'a>(
    before: &'a CameraConfig,
    after: &'a CameraConfig,
) -> Result<Vec<NarrowedPrompt<'a>>, String> {
    if !before.mask.iter().all(|area| is_covered(area, &after.mask)) {
        return Err("a mask is smaller".to_owned());
    }
    let added = after.mask.iter().filter(|area| !before.mask.contains(area));
    let added: MaskAreas = added.cloned().collect();
    let mut all = Vec::new();
    let finding = before.prompts.iter();
    for prompt in finding.filter(|prompt| prompt.task.finds_objects()) {
        let same = after.prompts.iter().find(|other| other.id == prompt.id);
        let Some(other) = same else {
            continue;
        };
        let wanted =
            [(before, prompt), (after, other)].map(|(camera, prompt)| zones(camera, prompt));
        check_zones(prompt, &wanted)?;
        let mut hidden = added.clone();
        hidden.extend(beside_region(prompt, other)?);
        let [zones_before, zones_after] = wanted;
        if !hidden.is_empty() || !is_same(&zones_before, &zones_after) {
            all.push(NarrowedPrompt {
                before: prompt,
                after: other,
                hidden,
            });
        }
    }
    Ok(all)
}

/// The zones that objects of the prompt have to be in; none: they may be anywhere.
fn zones<'a>(camera: &'a CameraConfig, prompt: &PromptConfig) -> Vec<&'a ZoneConfig> {
    let zones = camera.zones.iter();
    zones
        .filter(|zone| prompt.zones.contains(&zone.id))
        .collect()
}

fn is_same(before: &[&ZoneConfig], after: &[&ZoneConfig]) -> bool {
    let has = |zones: &[&ZoneConfig], zone: &ZoneConfig| {
        let mut zones = zones.iter();
        zones.any(|other| (&other.polygon, other.point) == (&zone.polygon, zone.point))
    };
    before.iter().all(|zone| has(after, zone)) && after.iter().all(|zone| has(before, zone))
}

fn check_zones(
    prompt: &PromptConfig,
    [before, after]: &[Vec<&ZoneConfig>; 2],
) -> Result<(), String> {
    if before.is_empty() {
        return Ok(());
    }
    let id = &prompt.id;
    if after.is_empty() {
        return Err(format!("{id} counts in the whole picture"));
    }
    for zone in after {
        let same_point = before.iter().filter(|other| other.point == zone.point);
        let areas = Vec::from_iter(same_point.map(|other| other.polygon.clone()));
        if !is_covered(&zone.polygon, &areas) {
            return Err(format!("the zone {} of {id} is larger", zone.id));
        }
    }
    Ok(())
}

/// What a region leaves out that the one before had.
fn beside_region(before: &PromptConfig, after: &PromptConfig) -> Result<MaskAreas, String> {
    let id = &before.id;
    let whole = NormBox::from_corners(0.0, 0.0, 1.0, 1.0);
    let [seen, now] = match (before.region, after.region) {
        (one, other) if one == other => return Ok(Vec::new()),
        (PromptRegion::Motion, _) | (_, PromptRegion::Motion) => {
            return Err(format!("where {id} looks depends on motion"));
        }
        (one, other) => [one, other].map(|region| match region {
            PromptRegion::Fixed(part) => part.norm_box(),
            _ => whole,
        }),
    };
    let beyond = [
        seen.x0 - now.x0,
        seen.y0 - now.y0,
        now.x1 - seen.x1,
        now.y1 - seen.y1,
    ];
    if beyond.iter().any(|share| *share > SIDE_TOLERANCE) {
        return Err(format!("the region of {id} is larger"));
    }
    let beside = [
        (0.0, 0.0, 1.0, now.y0),
        (0.0, now.y1, 1.0, 1.0),
        (0.0, 0.0, now.x0, 1.0),
        (now.x1, 0.0, 1.0, 1.0),
    ];
    let beside = beside
        .into_iter()
        .filter(|(x0, y0, x1, y1)| x0 < x1 && y0 < y1);
    let area = |(x0, y0, x1, y1)| vec![(x0, y0), (x1, y0), (x1, y1), (x0, y1)];
    Ok(beside.map(area).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_config::{shapes_of, testing, with_shapes};
    use spotter_core::{CameraShapes, PromptId};

    /// A camera with two prompts, drawn on by the keys of the file.
    fn drawn(keys: &str) -> CameraConfig {
        let prompts = ["person", "car"].map(testing::prompt);
        let camera = testing::camera("gate", prompts.into());
        with_shapes(&camera, &CameraShapes(keys.parse().unwrap())).unwrap()
    }

    /// The prompts that report less, with the number of areas where nothing is found any more; or what is wider.
    fn narrowed_to(before: &str, after: &str) -> Result<Vec<(PromptId, usize)>, String> {
        let (before, after) = (drawn(before), drawn(after));
        let found = narrowed(&before, &after)?;
        let of = |prompt: &NarrowedPrompt| (prompt.before.id.clone(), prompt.hidden.len());
        Ok(found.iter().map(of).collect())
    }

    const LEFT: &str = "zone.left.polygon = [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]\n";
    const RIGHT: &str = "zone.right.polygon = [[0.5, 0], [1, 0], [1, 1], [0.5, 1]]\n";
    const MIDDLE: &str = "zone.middle.polygon = [[0.3, 0.1], [0.7, 0.1], [0.5, 0.9]]\n";
    const MASK: &str = "mask = [[[0, 0], [1, 0], [1, 0.2], [0, 0.2]]]\n";

    fn keys(parts: &[&str]) -> String {
        parts.concat()
    }

    #[test]
    fn prompts_that_report_less_are_found() {
        let person = |hidden| Ok(vec![(PromptId::new("person").unwrap(), hidden)]);
        let both = |hidden| {
            let of = |id| (PromptId::new(id).unwrap(), hidden);
            Ok(["car", "person"].map(of).into())
        };
        let in_zones = |zones: &str| format!("prompt.person.zones = [{zones}]\n");
        let halves = keys(&[LEFT, RIGHT, &in_zones("'left', 'right'")]);
        for (before, after, found) in [
            ("", "", Ok(vec![])),
            // No prompt has the zone, and a line changes no start.
            ("", LEFT, Ok(vec![])),
            (
                "",
                "line.door.points = [[0.1, 0.1], [0.9, 0.9]]\nprompt.person.lines = ['door']",
                Ok(vec![]),
            ),
            ("", &keys(&[LEFT, &in_zones("'left'")]), person(0)),
            (&halves, &keys(&[LEFT, &in_zones("'left'")]), person(0)),
            // In two zones together, and in none of them alone.
            (&halves, &keys(&[MIDDLE, &in_zones("'middle'")]), person(0)),
            (MASK, MASK, Ok(vec![])),
            ("", MASK, both(1)),
            (
                MASK,
                "mask = [[[0, 0], [1, 0], [1, 0.3], [0, 0.3]]]",
                both(1),
            ),
            ("", "prompt.person.region = [0, 0.5, 0.5, 1]", person(2)),
            (
                "prompt.person.region = [0.1, 0.1, 0.9, 0.9]",
                "prompt.person.region = [0.1, 0.1, 0.8, 0.9]",
                person(4),
            ),
        ] {
            let mut narrowed = narrowed_to(before, after);
            narrowed.as_mut().unwrap().sort();
            assert_eq!(narrowed, found, "{before} {after}");
        }
    }

    #[test]
    fn wider_shapes_are_refused_with_what_is_wider() {
        let left = keys(&[LEFT, "prompt.person.zones = ['left']\n"]);
        let centre = LEFT.replace("polygon", "point = 'centre'\nzone.left.polygon");
        for (before, after, wider) in [
            (MASK, "", "a mask is smaller"),
            (
                MASK,
                "mask = [[[0, 0], [1, 0], [1, 0.1], [0, 0.1]]]",
                "a mask is smaller",
            ),
            (&*left, LEFT, "person counts in the whole picture"),
            (
                &left,
                &left.replace("0.5", "0.501"),
                "the zone left of person is larger",
            ),
            (
                &left,
                &keys(&[MIDDLE, "prompt.person.zones = ['middle']\n"]),
                "the zone middle of person is larger",
            ),
            (
                &left,
                &left.replace(LEFT, &centre),
                "the zone left of person is larger",
            ),
            (
                "prompt.car.region = [0, 0, 0.5, 0.5]",
                "",
                "the region of car is larger",
            ),
            (
                "prompt.car.region = 'motion'",
                "",
                "where car looks depends on motion",
            ),
        ] {
            assert_eq!(
                narrowed_to(before, after),
                Err(wider.to_owned()),
                "{before} {after}"
            );
        }
    }

    #[test]
    fn shapes_of_the_file_are_narrower_with_four_digits() {
        let mut camera = drawn(&keys(&[LEFT, MASK, "prompt.person.zones = ['left']\n"]));
        camera.zones[0].polygon[1].0 = 0.50003;
        let rounded = with_shapes(&camera, &shapes_of(&camera)).unwrap();
        assert_eq!(narrowed(&rounded, &rounded), Ok(Vec::new()));
    }
}
