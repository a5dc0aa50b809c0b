//! Sky, ground and what is at the far end. Everything follows from the scene and its backdrop's seed.

use rand::RngExt;
use rand_pcg::Pcg32;

use super::{
    figure::{Figure, FigureShape},
    shade::{Rgb, Shade, mix, sky_high, sky_low, tone},
};
use crate::{
    chance,
    scene::{Backdrop, CANVAS_HEIGHT, CANVAS_WIDTH, Scene, SceneLayout, Weather},
};

/// Full rows of the canvas from `y.0` to `y.1`, canvas units, blended from `top` to `bottom`.
pub(super) struct Band {
    pub y: (f32, f32),
    pub top: Rgb,
    pub bottom: Rgb,
}

/// What is behind all items: bands first, then shapes.
pub(super) fn backdrop(scene: &Scene) -> (Vec<Band>, Vec<FigureShape>) {
    let place = &scene.backdrop;
    let mut rng = chance::rng(place.seed, chance::HOUSES);
    let mut bands = vec![Band {
        y: (0.0, place.ground_y),
        top: sky_high(scene),
        bottom: sky_low(scene),
    }];
    ground(scene, &mut bands);
    let mut shapes = sky_things(scene);
    let mut far = Figure::on_canvas(Shade::at(scene, place.ground_y + 12.0));
    let has_houses = match place.layout {
        SceneLayout::Park => false,
        SceneLayout::CarPark => rng.random_bool(0.5),
        _ => true,
    };
    match has_houses {
        true => houses(&mut far, place, &mut rng),
        false => tree_line(&mut far, place, &mut rng),
    }
    match place.layout {
        SceneLayout::Avenue => avenue_road(&mut far, scene),
        SceneLayout::CarPark => wall(&mut far, place),
        _ => {}
    }
    shapes.extend(far.into_shapes());
    let mut marks = Figure::on_canvas(Shade::at(scene, place.road_y.1));
    ground_marks(&mut marks, scene);
    shapes.extend(marks.into_shapes());
    (bands, shapes)
}

fn ground(scene: &Scene, bands: &mut Vec<Band>) {
    let place = &scene.backdrop;
    let mut rng = chance::rng(place.seed, chance::GROUND);
    let wet = match scene.weather {
        Weather::Rain => 1.0 - 0.22 * scene.weather_strength,
        _ => 1.0,
    };
    let vary = rng.random_range(0.88..1.08) * wet;
    let asphalt = tone([92, 94, 98], vary);
    let stones = [[148, 150, 154], [164, 158, 150]][usize::from(rng.random_bool(0.5))];
    let paving = tone(stones, vary);
    let grass = tone([98, 142, 70], vary);
    let sand = tone([190, 170, 134], vary);
    let (outer, road) = match place.layout {
        SceneLayout::Street => (paving, asphalt),
        SceneLayout::Avenue => (if rng.random_bool(0.5) { paving } else { grass }, asphalt),
        SceneLayout::Park => (grass, sand),
        SceneLayout::CarPark => (asphalt, asphalt),
        SceneLayout::Square => (paving, paving),
    };
    let mut band = |y: (f32, f32), colour: Rgb| {
        let top = Shade::at(scene, y.0).apply(colour);
        let bottom = Shade::at(scene, y.1).apply(tone(colour, 0.95));
        bands.push(Band { y, top, bottom });
    };
    let (top, low) = place.road_y;
    match place.layout {
        SceneLayout::Avenue => band((place.ground_y, CANVAS_HEIGHT), outer),
        _ => {
            band((place.ground_y, top), outer);
            band((top, low), road);
            band((low, CANVAS_HEIGHT), outer);
        }
    }
}

fn sky_things(scene: &Scene) -> Vec<FigureShape> {
    let mut rng = chance::rng(scene.backdrop.seed, chance::SKY);
    let far = Shade::at(scene, scene.backdrop.ground_y);
    let mut sky = Figure::on_canvas(far.shining());
    let height = scene.backdrop.ground_y;
    let (x, y) = (
        rng.random_range(40.0..600.0),
        rng.random_range(14.0..height * 0.6),
    );
    let sunny = rng.random_bool(0.5);
    // Moon and stars appear as it gets dark, the sun disappears; clouds of other weather hide both.
    let clear = match scene.weather {
        Weather::Clear => 1.0,
        _ => 1.0 - scene.weather_strength,
    };
    let moon = (255.0 * clear * ((scene.darkness - 0.55) / 0.3).clamp(0.0, 1.0)) as u8;
    let sun = (255.0 * clear * ((0.6 - scene.darkness) / 0.3).clamp(0.0, 1.0)) as u8;
    sky.haze_ellipse((x, y), (10.0, 10.0), [232, 232, 214], moon);
    for _ in 0..24 {
        let star = (
            rng.random_range(0.0..CANVAS_WIDTH),
            rng.random_range(0.0..height * 0.8),
        );
        sky.haze_ellipse(star, (0.9, 0.9), [190, 194, 208], moon);
    }
    if sunny {
        sky.haze_ellipse((x, y), (13.0, 13.0), [255, 240, 190], sun);
    }
    let cloud = mix(sky_low(scene), far.apply([255, 255, 255]), 0.5);
    for _ in 0..rng.random_range(0..5) {
        let (x, y) = (
            rng.random_range(0.0..CANVAS_WIDTH),
            rng.random_range(8.0..height * 0.7),
        );
        let size = rng.random_range(14.0..40.0);
        for (dx, dy, share) in [(-1.0, 0.1, 0.7), (0.0, 0.0, 1.0), (1.1, 0.12, 0.75)] {
            sky.haze_ellipse(
                (x + dx * size, y + dy * size),
                (size * share * 1.2, size * share * 0.36),
                cloud,
                130,
            );
        }
    }
    sky.into_shapes()
}

fn houses(figure: &mut Figure, place: &Backdrop, rng: &mut Pcg32) {
    const WALLS: [Rgb; 6] = [
        [176, 142, 118],
        [196, 184, 160],
        [150, 154, 162],
        [164, 112, 94],
        [206, 196, 180],
        [132, 140, 130],
    ];
    let mut x = -rng.random_range(0.0..40.0);
    while x < CANVAS_WIDTH {
        let wide = rng.random_range(70.0..150.0);
        let top = place.ground_y - rng.random_range(0.45..0.98) * place.ground_y;
        let colour = WALLS[rng.random_range(0..WALLS.len())];
        house(figure, rng, [x, top, wide, place.ground_y], colour);
        x += wide;
        if rng.random_bool(0.25) {
            x += rng.random_range(8.0..40.0);
        }
    }
}

/// Share of the windows that are lit at night.
const LIT: f64 = 0.35;

/// `bounds`: left, top, width and foot, canvas units.
fn house(figure: &mut Figure, rng: &mut Pcg32, bounds: [f32; 4], colour: Rgb) {
    let [x, top, wide, base] = bounds;
    if rng.random_bool(0.4) {
        let roof = [
            (x - 3.0, top),
            (x + wide * 0.2, top - 20.0),
            (x + wide * 0.8, top - 20.0),
            (x + wide + 3.0, top),
        ];
        figure.poly(&roof, [110, 70, 60]);
    }
    figure.rect((x, top), (x + wide, base), colour);
    figure.rect((x, top), (x + wide, top + 3.0), tone(colour, 0.8));
    let columns = (wide / rng.random_range(20.0..30.0)) as usize;
    let step = wide / columns as f32;
    let (pane_w, pane_h) = (step * 0.46, rng.random_range(12.0..17.0));
    let storey = rng.random_range(25.0..32.0);
    let mut y = top + 9.0;
    while y + pane_h < base - 26.0 {
        for column in 0..columns {
            let left = x + step * (column as f32 + 0.27);
            let lit = rng.random_bool(LIT);
            figure.window((left, y), (left + pane_w, y + pane_h), lit);
        }
        y += storey;
    }
    // ground floor: a door and a shop window
    let door = x + step * 0.25;
    figure.rect((door, base - 22.0), (door + 11.0, base), tone(colour, 0.45));
    if wide > 90.0 {
        let (left, top) = (door + 20.0, base - 21.0);
        let lit = rng.random_bool(LIT);
        figure.window((left, top), (left + wide * 0.5, top + 14.0), lit);
    }
}

fn tree_line(figure: &mut Figure, place: &Backdrop, rng: &mut Pcg32) {
    let mut x = -20.0;
    while x < CANVAS_WIDTH + 20.0 {
        let size = rng.random_range(18.0..42.0);
        let leaf = tone([66, 112, 56], rng.random_range(0.75..1.12));
        figure.ellipse((x, place.ground_y - size * 0.6), (size * 1.1, size), leaf);
        x += size * rng.random_range(0.6..1.1);
    }
    let foot_y = place.ground_y;
    strip(figure, foot_y - 6.0, foot_y + 1.0, [72, 104, 56]);
}

fn wall(figure: &mut Figure, place: &Backdrop) {
    let foot_y = place.ground_y;
    strip(figure, foot_y - 12.0, foot_y + 1.0, [150, 146, 140]);
    strip(figure, foot_y - 14.0, foot_y - 11.0, [120, 118, 114]);
}

/// From one side of the picture to the other.
fn strip(figure: &mut Figure, top: f32, low: f32, colour: Rgb) {
    figure.rect((0.0, top), (CANVAS_WIDTH, low), colour);
}

fn avenue_road(figure: &mut Figure, scene: &Scene) {
    let (top, middle) = (scene.backdrop.ground_y, CANVAS_WIDTH / 2.0);
    let (left, right) = ((-60.0, CANVAS_HEIGHT), (700.0, CANVAS_HEIGHT));
    let road = [(middle - 70.0, top), (middle + 70.0, top), right, left];
    figure.poly(&road, [92, 94, 98]);
    for i in 0..5 {
        let near = |share: f32| top + (CANVAS_HEIGHT - top) * share * share;
        let (from, to) = (near(0.1 + i as f32 * 0.2), near(0.2 + i as f32 * 0.2));
        let half = |y: f32| 1.0 + 4.0 * (y - top) / (CANVAS_HEIGHT - top);
        let dash = [
            (middle - half(from), from),
            (middle + half(from), from),
            (middle + half(to), to),
            (middle - half(to), to),
        ];
        figure.poly(&dash, [222, 220, 208]);
    }
}

fn ground_marks(figure: &mut Figure, scene: &Scene) {
    let place = &scene.backdrop;
    let mut rng = chance::rng(place.seed, chance::MARKS);
    let (top, low) = place.road_y;
    for _ in 0..6 {
        let at = (
            rng.random_range(0.0..CANVAS_WIDTH),
            rng.random_range(place.ground_y + 6.0..CANVAS_HEIGHT),
        );
        let size = rng.random_range(10.0..60.0);
        let stain = [[220, 220, 214], [30; 3]][usize::from(rng.random_bool(0.6))];
        figure.haze_ellipse(at, (size, size * 0.16), stain, 22);
    }
    match place.layout {
        SceneLayout::Street => {
            for (y, high) in [(top, 3.0), (low, 5.0)] {
                strip(figure, y - 1.0, y + high, [190, 188, 182]);
            }
            let middle = top + (low - top) * 0.46;
            for i in 0..9 {
                let x = i as f32 * 80.0 - 20.0;
                figure.rect((x, middle - 1.5), (x + 42.0, middle + 1.5), [226, 224, 214]);
            }
            crossing(figure, place, &mut rng);
        }
        SceneLayout::CarPark => {
            for i in 0..9 {
                let x = (i as f32 - 4.0) * 90.0;
                let at = |y: f32| {
                    320.0 + x * (0.5 + (y - place.ground_y) / (CANVAS_HEIGHT - place.ground_y))
                };
                let stripe = [
                    (at(top), top),
                    (at(top) + 3.0, top),
                    (at(low) + 5.0, low),
                    (at(low), low),
                ];
                figure.poly(&stripe, [222, 220, 210]);
            }
        }
        SceneLayout::Square => {
            for i in 1..8 {
                let share = i as f32 / 8.0;
                let y = place.ground_y + (CANVAS_HEIGHT - place.ground_y) * share * share;
                strip(figure, y, y + 1.0 + share, [128, 124, 118]);
            }
            for i in -8..=8 {
                let x = i as f32;
                let line = [
                    (320.0 + x * 46.0, place.ground_y),
                    (320.0 + x * 130.0, CANVAS_HEIGHT),
                ];
                figure.line(&line, 1.2, [130, 126, 120]);
            }
        }
        SceneLayout::Avenue | SceneLayout::Park => {}
    }
}

/// White stripes across the road, in half of the streets.
fn crossing(figure: &mut Figure, place: &Backdrop, rng: &mut Pcg32) {
    if !rng.random_bool(0.5) {
        return;
    }
    let (x, (top, low)) = (rng.random_range(120.0..520.0), place.road_y);
    for i in 0..6 {
        let share = |k: f32| top + 5.0 + (low - top - 10.0) * k / 6.0;
        let (from, to) = (share(i as f32), share(i as f32 + 0.55));
        figure.rect((x - 24.0, from), (x + 24.0, to), [218, 216, 208]);
    }
}
