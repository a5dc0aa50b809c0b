//! What is in the street: plain data, without drawing and randomness. Places are in **canvas units**: a canvas of
//! [`CANVAS_WIDTH`] x [`CANVAS_HEIGHT`], origin top left, for every size of the drawn picture.

pub use super::class::{Class, Colour};

/// Canvas units across.
pub const CANVAS_WIDTH: f32 = 640.0;
/// Canvas units down.
pub const CANVAS_HEIGHT: f32 = 360.0;

/// [`SceneObject::variant`] of a person on a bicycle: drawn to fit a bicycle of the same place and size.
pub const RIDER: u8 = 3;

/// Which way a thing looks or moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facing {
    Left,
    Right,
}

/// Identifies a thing in a live street: unique, and constant during one stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectIdentity {
    /// In a scene of one moment.
    Anonymous,
    /// A permanent object, by its place among the fixtures.
    Fixture(u8),
    /// A thing that passes in a time slot of a route.
    Passing {
        /// Place among the routes.
        route: u8,
        slot: i64,
        /// The person on the thing, not the thing itself.
        rider: bool,
    },
}

/// A thing of one of the classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SceneObject {
    pub identity: ObjectIdentity,
    pub class: Class,
    /// Its colour, for classes that have one.
    pub colour: Option<Colour>,
    /// Middle of the thing, canvas units; may be outside of the canvas.
    pub x: f32,
    /// Where it touches the ground, or would without its lift, canvas units. Larger is nearer.
    pub foot_y: f32,
    /// Height above the ground, metres: a flying bird, a bouncing ball.
    pub lift_m: f32,
    /// Factor of the class's usual size.
    pub size: f32,
    /// Which way it looks.
    pub facing: Facing,
    /// Which of the class's shapes, below [`Class::variants`].
    pub variant: u8,
    /// Place in its cycle of movement, 0..1: gait, wing beat, lamp of a traffic light.
    pub phase: f32,
    /// Chooses among natural looks: hair, fur, trousers, patterns.
    pub look: u32,
}

/// Scenery on the ground that is none of the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum PropKind {
    Tree,
    Fir,
    Bush,
    Bench,
    Bin,
    /// A street lamp, lit when it is dark.
    Lamp,
    /// A round or triangular road sign, or a square one.
    Sign,
    /// A piece of fence.
    Fence,
    Hydrant,
    Cone,
    /// Water on the ground.
    Puddle,
}

/// One piece of scenery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prop {
    pub kind: PropKind,
    /// Middle, canvas units.
    pub x: f32,
    /// Where it touches the ground, canvas units.
    pub foot_y: f32,
    /// Factor of its usual size.
    pub size: f32,
    /// Chooses among its looks.
    pub look: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum SceneLayout {
    /// Houses behind a road that runs across the picture.
    Street,
    /// A road that runs away from the camera between houses.
    Avenue,
    /// Grass, a path, trees.
    Park,
    /// Marked bays on asphalt.
    #[strum(serialize = "car park")]
    CarPark,
    Square,
}

impl SceneLayout {
    /// Its name without an article, as in "a dog in a park".
    pub fn place(self) -> &'static str {
        self.into()
    }
}

/// The ground and what is at its far end. Details (windows, roofs) follow from `seed` when it is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backdrop {
    pub layout: SceneLayout,
    /// Where houses or trees meet the ground, canvas units.
    pub ground_y: f32,
    /// Upper and lower edge of the road or path, canvas units.
    pub road_y: (f32, f32),
    pub seed: u64,
}

/// The camera's place, which decides how large a thing at a given foot is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// The horizon, canvas units.
    pub horizon_y: f32,
    /// Height of the camera above the ground, metres.
    pub camera_m: f32,
}

impl View {
    /// Canvas units per metre for a thing at `foot_y`: a pinhole camera that looks level over flat ground
    /// sees a point that far below the horizon at a depth where its own height spans that distance.
    pub fn units_per_m(&self, foot_y: f32) -> f32 {
        ((foot_y - self.horizon_y) / self.camera_m).max(3.0)
    }
}

/// Time of the day in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Daylight {
    Day,
    Dusk,
    Night,
}

impl Daylight {
    /// From [`Scene::darkness`].
    pub fn from_darkness(darkness: f32) -> Self {
        match darkness {
            ..0.35 => Self::Day,
            ..0.7 => Self::Dusk,
            _ => Self::Night,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::VariantArray)]
pub enum Weather {
    /// Sun or stars.
    Clear,
    /// Grey sky, soft shadows.
    Overcast,
    /// Streaks, wet ground.
    Rain,
    /// Far things fade.
    Fog,
}

/// How the camera changes the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lens {
    /// Added to every sample, levels of 255.
    pub brightness: f32,
    /// Factor around the middle grey.
    pub contrast: f32,
    /// Standard deviation of the grain, levels of 255.
    pub grain: f32,
    /// A slight blur, as of a cheap lens.
    pub soft: bool,
    /// Loss of light in the corners, 0..1.
    pub vignette: f32,
    pub seed: u64,
}

/// Everything that a picture is drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Where the camera is.
    pub view: View,
    pub backdrop: Backdrop,
    /// 0 noon .. 1 midnight.
    pub darkness: f32,
    pub weather: Weather,
    /// Strength of the weather, 0..1.
    pub weather_strength: f32,
    pub lens: Lens,
    /// Scenery, in no order.
    pub props: Vec<Prop>,
    /// Things of the classes, in no order, at most [`super::records::MAX_OBJECTS`].
    pub objects: Vec<SceneObject>,
}
