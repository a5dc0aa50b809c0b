//! The time in a zone across the drawn street, compared with the true paths of its objects.

use super::*;
use spotter_config::{ZoneConfig, ZonePoint};
use spotter_core::{Event, EventStep, UpdateReason, ZoneId, duration_from_secs};

/// The zone is a strip of the picture, shares of the width.
const ZONE_X: (f64, f64) = (0.25, 0.75);
const NEEDED: Duration = Duration::from_secs(2);
const STREET_MINUTES: u64 = 15;
/// Pictures of the truth in a second.
const TRUTH_HZ: usize = 10;

/// The true visit of an object in full view: each picture shows it, from a second before to a second after the visit.
#[derive(Clone, Copy, Debug)]
struct TrueVisit {
    entered_s: f64,
    left_s: f64,
}

impl TrueVisit {
    /// From the numbers of the pictures that show the object as present, and of those that show it inside.
    fn of(present: &[usize], inside: &[usize]) -> Option<Self> {
        let (entered, left) = (*inside.first()?, *inside.last()?);
        let around = entered.saturating_sub(TRUTH_HZ)..=left + TRUTH_HZ;
        let shown = present
            .iter()
            .filter(|picture| around.contains(*picture))
            .count();
        (shown == around.count()).then(|| Self {
            entered_s: seconds_of(entered),
            left_s: seconds_of(left),
        })
    }
}

/// What the tracker reported of a visit.
#[derive(Clone, Copy, Debug, Default)]
struct ReportedVisit {
    /// The time at the end.
    time_s: f64,
    /// When `dwell` was published.
    dwelling_at_s: Option<f64>,
}

impl ReportedVisit {
    fn add(&mut self, event: &Event, at_s: f64) {
        if let Some(dwell) = event.dwell.first() {
            self.time_s = dwell.time.as_secs_f64();
        }
        if event.step == EventStep::Update(UpdateReason::Dwell) {
            self.dwelling_at_s = Some(at_s);
        }
    }
}

fn strip() -> ZoneConfig {
    let (from, to) = ZONE_X;
    ZoneConfig {
        id: ZoneId::new("middle").unwrap(),
        polygon: vec![(from, 0.0), (to, 0.0), (to, 1.0), (from, 1.0)],
        point: ZonePoint::Bottom,
    }
}

fn seconds_of(picture: usize) -> f64 {
    picture as f64 / TRUTH_HZ as f64
}

/// Everything that the street's pictures show.
fn pictures() -> Vec<Vec<SeenObject>> {
    let street = Street::new(23);
    let pictures: Vec<usize> = (0..STREET_MINUTES as usize * 60 * TRUTH_HZ).collect();
    let seen = |picture: usize| {
        let start = WallTime::from_unix_millis(1_790_000_000_000);
        truth(&street.at(start.plus_seconds(seconds_of(picture)))).seen
    };
    pictures.into_par_iter().map(seen).collect()
}

/// The visits of passing objects in full view.
fn true_visits(pictures: &[Vec<SeenObject>]) -> BTreeMap<ObjectIdentity, TrueVisit> {
    let mut present: BTreeMap<ObjectIdentity, Vec<usize>> = BTreeMap::new();
    let mut inside = present.clone();
    for (picture, seen) in pictures.iter().enumerate() {
        // The routes after the tenth are stays, which end where they begin.
        let passes = |seen: &&SeenObject| {
            matches!(seen.identity, ObjectIdentity::Passing { route: 0..=9, .. })
        };
        for seen in seen.iter().filter(passes) {
            if seen.visibility == Visibility::Present {
                present.entry(seen.identity).or_default().push(picture);
            }
            if (ZONE_X.0..=ZONE_X.1).contains(&seen.box_in_frame.centre().x) {
                inside.entry(seen.identity).or_default().push(picture);
            }
        }
    }
    let visits = inside.iter().filter_map(|(object, inside)| {
        let visit = TrueVisit::of(present.get(object)?, inside)?;
        Some((*object, visit))
    });
    visits.collect()
}

/// What the tracker reports of each object that is followed as one track, and when looks did not find an object.
struct ReportedVisits {
    visits: BTreeMap<ObjectIdentity, ReportedVisit>,
    missed_at_s: BTreeMap<ObjectIdentity, Vec<f64>>,
}

impl ReportedVisits {
    /// True when each look within a period of one of these times found the object.
    fn is_found_around(&self, object: &ObjectIdentity, times_s: [f64; 2], period_s: f64) -> bool {
        let missed = self.missed_at_s.get(object).into_iter().flatten();
        let is_near = |at_s: &f64| {
            times_s
                .iter()
                .any(|time_s| (at_s - time_s).abs() <= period_s)
        };
        missed.filter(|at_s| is_near(at_s)).count() == 0
    }
}

fn reported_visits(
    pictures: &[Vec<SeenObject>],
    looks_per_s: usize,
    model: SimulatedModel,
) -> ReportedVisits {
    let mut site = site(looks_per_s);
    site.zones = vec![strip()];
    for prompt in &mut site.prompts {
        prompt.dwell = [(site.zones[0].id.clone(), NEEDED)].into();
    }
    let mut tracker = Tracker::new("b7c1".into(), std::slice::from_ref(&site));
    let mut rng = Pcg32::seed_from_u64(looks_per_s as u64);
    let mut objects: BTreeMap<TrackId, ObjectIdentity> = BTreeMap::new();
    let mut visits: BTreeMap<TrackId, ReportedVisit> = BTreeMap::new();
    let mut missed_at_s: BTreeMap<ObjectIdentity, Vec<f64>> = BTreeMap::new();
    let skip = TRUTH_HZ / looks_per_s;
    for (picture, all) in pictures.iter().enumerate().step_by(skip) {
        let at_s = seconds_of(picture);
        let frame = frame_at(&site.id, duration_from_secs(at_s));
        for (class, prompt) in Class::ALL.iter().copied().zip(&site.prompts) {
            let of_class = all.iter().filter(|seen| seen.class == class);
            let found = found(of_class.clone(), model, &mut rng);
            let is_missed = |seen: &&SeenObject| {
                let mut found = found.iter();
                !found.any(|(identity, _)| *identity == Some(seen.identity))
            };
            for seen in of_class.filter(is_missed) {
                missed_at_s.entry(seen.identity).or_default().push(at_s);
            }
            let boxes = found.iter().map(|(_, found)| *found).collect();
            let tracked = tracker
                .update(&frame, &boxes_answer(prompt, boxes))
                .unwrap();
            note_shown(&mut objects, &tracked, &found);
            for event in tracked.change.events {
                let visit = visits.entry(event.track.clone()).or_default();
                visit.add(&event, at_s);
            }
        }
    }
    let end_s = seconds_of(pictures.len());
    for event in tracker.shutdown(WallTime::default()) {
        let visit = visits.entry(event.track.clone()).or_default();
        visit.add(&event, end_s);
    }
    let mut by_object: BTreeMap<ObjectIdentity, Vec<ReportedVisit>> = BTreeMap::new();
    for (track, visit) in visits.into_iter().filter(|(_, visit)| visit.time_s > 0.0) {
        if let Some(&object) = objects.get(&track) {
            by_object.entry(object).or_default().push(visit);
        }
    }
    let one_track = by_object
        .into_iter()
        .filter(|(_, visits)| visits.len() == 1);
    ReportedVisits {
        visits: one_track
            .map(|(object, visits)| (object, visits[0]))
            .collect(),
        missed_at_s,
    }
}

/// Errors in seconds, each with whether the looks around found the object.
#[derive(Clone, Debug, Default)]
struct DwellErrors(Vec<(f64, bool)>);

/// The shares of errors that are at most one look.
struct WithinALook {
    of_all: f64,
    /// Of those whose looks found the object.
    of_found: f64,
    largest_s: f64,
}

impl DwellErrors {
    fn within_a_look(&self, looks_per_s: usize) -> WithinALook {
        // The truth is as exact as its pictures are near.
        let most = 1.0 / looks_per_s as f64 + seconds_of(1) + 1e-9;
        let share = |is_of: fn(&&(f64, bool)) -> bool| {
            let errors: Vec<f64> = self
                .0
                .iter()
                .filter(is_of)
                .map(|(error, _)| *error)
                .collect();
            let near = errors.iter().filter(|error| error.abs() <= most).count();
            near as f64 / errors.len() as f64
        };
        let sizes = self.0.iter().map(|(error, _)| error.abs());
        WithinALook {
            of_all: share(|_| true),
            of_found: share(|(_, is_found)| *is_found),
            largest_s: sizes.fold(0.0, f64::max),
        }
    }
}

/// The figures of BENCHMARKS.md are those that this prints.
#[test]
fn time_in_a_zone_is_true_within_one_look() {
    let pictures = pictures();
    let truth = true_visits(&pictures);
    for (label, model, share_min) in [
        ("the truth", PERFECT, 1.0),
        ("as the embedded model", EMBEDDED, 0.97),
    ] {
        for looks_per_s in [1, 2] {
            let (mut times, mut starts) = (DwellErrors::default(), DwellErrors::default());
            let reported = reported_visits(&pictures, looks_per_s, model);
            let period_s = 1.0 / looks_per_s as f64;
            for (object, visit) in &truth {
                let Some(of_object) = reported.visits.get(object) else {
                    continue;
                };
                let is_found = |until_s| {
                    reported.is_found_around(object, [visit.entered_s, until_s], period_s)
                };
                let error_s = of_object.time_s - (visit.left_s - visit.entered_s);
                times.0.push((error_s, is_found(visit.left_s)));
                let due_s = visit.entered_s + NEEDED.as_secs_f64();
                let start = of_object.dwelling_at_s;
                starts
                    .0
                    .extend(start.map(|at_s| (at_s - due_s, is_found(due_s))));
            }
            for (what, errors) in [("time", times), ("start of dwelling", starts)] {
                let shares = errors.within_a_look(looks_per_s);
                println!(
                    "{label}, {looks_per_s} looks/s: {} of {what}, within one look {:.1} %, of those whose looks found the object {:.1} % (largest error {:.2} s)",
                    errors.0.len(),
                    100.0 * shares.of_all,
                    100.0 * shares.of_found,
                    shares.largest_s,
                );
                assert!(errors.0.len() > 150, "{label}, {what}");
                assert!(
                    shares.of_all >= share_min,
                    "{label}, {looks_per_s} looks/s, {what}: {errors:?}"
                );
                assert_eq!(
                    shares.of_found, 1.0,
                    "{label}, {looks_per_s} looks/s, {what}: {errors:?}"
                );
            }
        }
    }
}
