//! The classes and colours that the truth names, with their words.

use strum::{IntoStaticStr, VariantArray};

/// The kinds of things that count as objects; everything else in the picture is scenery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, VariantArray)]
pub enum Class {
    /// On foot or riding.
    Person,
    Car,
    Truck,
    Bus,
    /// With or without a rider.
    Bicycle,
    Dog,
    Cat,
    /// Flying or standing.
    Bird,
    Ball,
    Parcel,
    /// The head with its three lamps; its pole does not count.
    TrafficLight,
    /// The red octagon; its pole does not count.
    StopSign,
}

/// Of each class: one and several, whether the truth names a colour, and the number of its shapes.
const CLASSES: [(&str, &str, bool, u8); 12] = [
    ("person", "people", true, 4),
    ("car", "cars", true, 4),
    ("truck", "trucks", true, 4),
    ("bus", "buses", true, 3),
    ("bicycle", "bicycles", true, 3),
    ("dog", "dogs", false, 3),
    ("cat", "cats", false, 3),
    ("bird", "birds", true, 3),
    ("ball", "balls", true, 3),
    ("parcel", "parcels", false, 3),
    ("traffic light", "traffic lights", false, 2),
    ("stop sign", "stop signs", false, 3),
];

impl Class {
    /// Every class; a class's place here is its index in records and captions.
    pub const ALL: &[Self] = Self::VARIANTS;

    pub fn index(self) -> usize {
        self as usize
    }

    /// One of them, in lower case.
    pub fn name(self) -> &'static str {
        CLASSES[self.index()].0
    }

    pub fn plural(self) -> &'static str {
        CLASSES[self.index()].1
    }

    /// The truth names a [`Colour`] for it (of a person: the clothes).
    pub fn is_coloured(self) -> bool {
        CLASSES[self.index()].2
    }

    /// Number of shapes in which it is drawn; `SceneObject::variant` is below this.
    pub fn variants(self) -> u8 {
        CLASSES[self.index()].3
    }

    /// It has a pole.
    pub fn is_sign(self) -> bool {
        matches!(self, Self::TrafficLight | Self::StopSign)
    }

    /// It drives on a road.
    pub fn is_vehicle(self) -> bool {
        matches!(self, Self::Car | Self::Truck | Self::Bus)
    }
}

/// Colours that the truth names, well apart from each other also at night.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Colour {
    Red,
    Orange,
    Yellow,
    Green,
    Blue,
    Purple,
    White,
    Black,
}

impl Colour {
    /// Every colour; a colour's place here is its index in records.
    pub const ALL: &[Self] = Self::VARIANTS;

    pub fn index(self) -> usize {
        self as usize
    }

    /// In lower case.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
