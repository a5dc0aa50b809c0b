//! Counts at a line across the drawn street, compared with the true paths of its objects.

use spotter_config::{LineConfig, ZonePoint};
use spotter_core::{DirectionId, LineId};
use spotter_street::{
    Scene,
    scene::{CANVAS_WIDTH, Facing, SceneObject, View},
};

use super::*;

/// The middle of the line, and how far its ends are to the left and right, shares of the width.
const LINE_X: f32 = 0.5;
const LINE_SLOPE: f32 = 0.03;
/// How far behind the line and a quarter of its length an object turns back, shares of the width: a look each second sees it there.
const TURN_DEPTHS: RangeInclusive<f32> = 0.1..=0.14;
/// A crossing is reported when the object is clear of the line, so at most some looks after the truth.
const LATE_MAX_S: f64 = 4.0;
/// Time between two looks at the truth.
const TRUTH_STEP: Duration = Duration::from_millis(100);

/// Much worse than the embedded model: a tenth of the objects is missed, and boxes of one object are far enough apart for two tracks.
const ROUGH: SimulatedModel = SimulatedModel {
    recall: 0.9,
    recall_ignored: 0.5,
    jitter: 0.05,
    doubles: 0.02,
    inventions: 0.02,
};

/// Whether a third of the objects turn back behind the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    Through,
    TurningBack,
}

/// A true or counted crossing.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TrueCrossing {
    object: ObjectIdentity,
    class: Class,
    at_s: f64,
    rightwards: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct CrossingScore {
    /// True crossings to the right and to the left.
    truth: [usize; 2],
    counted: [usize; 2],
    /// Counted crossings of an object that did cross then, in the other direction.
    wrong: usize,
}

impl CrossingScore {
    /// Difference of the counts in both directions, as a share of the true ones.
    fn count_error(&self) -> f64 {
        let [right, left] = [0, 1].map(|way| self.counted[way].abs_diff(self.truth[way]));
        (right + left) as f64 / self.all() as f64
    }

    fn wrong_share(&self) -> f64 {
        self.wrong as f64 / self.all() as f64
    }

    fn all(&self) -> usize {
        self.truth.iter().sum()
    }
}

fn moment(since_start: Duration) -> WallTime {
    WallTime::from_unix_millis(1_790_000_000_000 + since_start.as_millis() as i64)
}

fn scene(traffic: Traffic, since_start: Duration) -> Scene {
    let mut scene = Street::new(23).at(moment(since_start));
    if traffic == Traffic::TurningBack {
        let view = scene.view;
        let objects = scene.objects.iter_mut();
        objects.for_each(|object| turn_back(object, &view));
    }
    scene
}

/// A third of the objects turn back behind the line.
fn turn_back(object: &mut SceneObject, view: &View) {
    let ObjectIdentity::Passing { route, slot, .. } = object.identity else {
        return;
    };
    let mut rng = Pcg32::seed_from_u64(slot as u64 ^ u64::from(route) << 48);
    if rng.random_bool(2.0 / 3.0) {
        return;
    }
    let quarter = length_m(object.class) / 4.0 * view.units_per_m(object.foot_y) / CANVAS_WIDTH;
    let depth = LINE_SLOPE + quarter + rng.random_range(TURN_DEPTHS);
    let (ahead, turn) = match object.facing {
        Facing::Right => (1.0, LINE_X + depth),
        Facing::Left => (-1.0, LINE_X - depth),
    };
    let turn = turn * CANVAS_WIDTH;
    if (object.x - turn) * ahead > 0.0 {
        object.x = 2.0 * turn - object.x;
    }
}

fn length_m(class: Class) -> f32 {
    match class {
        Class::Bus => 9.0,
        Class::Truck => 7.4,
        Class::Car => 4.8,
        Class::Bicycle => 2.2,
        _ => 1.0,
    }
}

/// Where the line is at this height.
fn line_x(foot_y: f32) -> f32 {
    let share = foot_y / spotter_street::scene::CANVAS_HEIGHT;
    LINE_X - LINE_SLOPE + 2.0 * LINE_SLOPE * share
}

/// The crossings of all objects on the ground, by the scene alone.
fn true_crossings(traffic: Traffic) -> Vec<TrueCrossing> {
    let mut sides: BTreeMap<ObjectIdentity, bool> = BTreeMap::new();
    let mut crossings = Vec::new();
    for step in 0..MINUTES * 600 {
        let since_start = TRUTH_STEP * step as u32;
        for object in scene(traffic, since_start).objects {
            let is_right = object.x / CANVAS_WIDTH >= line_x(object.foot_y);
            let before = sides.insert(object.identity, is_right);
            if before.is_some_and(|before| before != is_right) {
                crossings.push(TrueCrossing {
                    object: object.identity,
                    class: object.class,
                    at_s: since_start.as_secs_f64(),
                    rightwards: is_right,
                });
            }
        }
    }
    crossings
}

/// From the lower edge to the upper, so that the first direction is to the right of the picture.
fn street_line() -> LineConfig {
    let ends = [LINE_X + LINE_SLOPE, LINE_X - LINE_SLOPE].map(f64::from);
    LineConfig {
        id: LineId::new("middle").unwrap(),
        points: vec![(ends[0], 1.0), (ends[1], 0.0)],
        directions: ["right", "left"].map(|name| DirectionId::new(name).unwrap()),
        point: ZonePoint::Bottom,
        reset: None,
    }
}

/// What the tracker counts.
fn counted_crossings(
    looks: &[Vec<SeenObject>],
    looks_per_s: usize,
    model: SimulatedModel,
) -> Vec<TrueCrossing> {
    let mut site = site(looks_per_s);
    site.lines = vec![street_line()];
    for prompt in &mut site.prompts {
        prompt.lines = vec![site.lines[0].id.clone()];
    }
    let mut tracker = Tracker::new("b7c1".into(), std::slice::from_ref(&site));
    let mut rng = Pcg32::seed_from_u64(looks_per_s as u64);
    let mut shown: BTreeMap<TrackId, ObjectIdentity> = BTreeMap::new();
    let mut counted = Vec::new();
    let skip = 2 / looks_per_s;
    for (look, all) in looks.iter().step_by(skip).enumerate() {
        let frame = frame_at(&site.id, TICK * (look * skip) as u32);
        for (class, prompt) in Class::ALL.iter().copied().zip(&site.prompts) {
            let of_class = all.iter().filter(|seen| seen.class == class);
            let found = found(of_class, model, &mut rng);
            let boxes = found.iter().map(|(_, found)| *found).collect();
            let tracked = tracker
                .update(&frame, &boxes_answer(prompt, boxes))
                .unwrap();
            note_shown(&mut shown, &tracked, &found);
            for event in tracked.change.events {
                let Some(crossing) = event.crossing else {
                    continue;
                };
                counted.push(TrueCrossing {
                    object: shown
                        .get(&event.track)
                        .copied()
                        .unwrap_or(ObjectIdentity::Anonymous),
                    class,
                    at_s: crossing.at.unix_nanos() as f64 * 1e-9,
                    rightwards: crossing.direction.as_str() == "right",
                });
            }
        }
    }
    counted
}

fn score(truth: &[TrueCrossing], counted: &[TrueCrossing]) -> CrossingScore {
    let ways = |all: &[TrueCrossing]| {
        let right = all.iter().filter(|crossing| crossing.rightwards).count();
        [right, all.len() - right]
    };
    let mut score = CrossingScore {
        truth: ways(truth),
        counted: ways(counted),
        ..CrossingScore::default()
    };
    let mut left = truth.to_vec();
    let mut take = |crossing: &TrueCrossing, rightwards: bool| {
        let is = |other: &TrueCrossing| {
            let near = (other.at_s - crossing.at_s).abs() <= LATE_MAX_S;
            other.object == crossing.object && near && other.rightwards == rightwards
        };
        let index = left.iter().position(is)?;
        Some(left.swap_remove(index))
    };
    let unmatched = counted
        .iter()
        .filter(|crossing| take(crossing, crossing.rightwards).is_none());
    for crossing in unmatched.collect::<Vec<_>>() {
        score.wrong += usize::from(take(crossing, !crossing.rightwards).is_some());
    }
    score
}

/// The true objects at each tick.
fn street_looks(traffic: Traffic) -> Vec<Vec<SeenObject>> {
    let ticks = MINUTES * 60 * 1000 / TICK.as_millis() as u64;
    let ticks: Vec<u64> = (0..ticks).collect();
    let seen = |tick| truth(&scene(traffic, TICK * tick as u32)).seen;
    ticks.into_par_iter().map(seen).collect()
}

/// The figures of BENCHMARKS.md are those that this prints.
#[test]
fn counts_at_a_line_equal_the_true_crossings() {
    let models = [
        ("the truth", PERFECT, 0.02),
        ("as the embedded model", EMBEDDED, 0.02),
        ("much rougher", ROUGH, 0.04),
    ];
    for traffic in [Traffic::Through, Traffic::TurningBack] {
        let looks = street_looks(traffic);
        let true_crossings = true_crossings(traffic);
        for (label, model, error_max) in models {
            for looks_per_s in [1, 2] {
                let counted = counted_crossings(&looks, looks_per_s, model);
                let score = score(&true_crossings, &counted);
                let (error, wrong) = (score.count_error(), score.wrong_share());
                println!(
                    "{traffic:?}, {label}, {looks_per_s} looks/s: {:?} crossings, {:?} counted, {:.2} % count error, {:.2} % in the wrong direction",
                    score.truth,
                    score.counted,
                    100.0 * error,
                    100.0 * wrong,
                );
                assert!(score.all() > 500, "{label}: {score:?}");
                assert!(error <= error_max, "{label}: {score:?}");
                assert!(wrong <= 0.005, "{label}: {score:?}");
            }
        }
    }
}
