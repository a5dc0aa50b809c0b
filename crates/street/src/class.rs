//! The classes and colours that the truth names, with their words.

/// The kinds of things that count as objects; everything else in the picture is scenery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// One and several, by index.
const NAMES: [(&str, &str); 12] = [
    ("person", "people"),
    ("car", "cars"),
    ("truck", "trucks"),
    ("bus", "buses"),
    ("bicycle", "bicycles"),
    ("dog", "dogs"),
    ("cat", "cats"),
    ("bird", "birds"),
    ("ball", "balls"),
    ("parcel", "parcels"),
    ("traffic light", "traffic lights"),
    ("stop sign", "stop signs"),
];

impl Class {
    /// Every class; a class's place here is its index in records and captions.
    pub const ALL: [Self; 12] = [
        Self::Person,
        Self::Car,
        Self::Truck,
        Self::Bus,
        Self::Bicycle,
        Self::Dog,
        Self::Cat,
        Self::Bird,
        Self::Ball,
        Self::Parcel,
        Self::TrafficLight,
        Self::StopSign,
    ];

    pub fn index(self) -> usize {
        self as usize
    }

    /// One of them, in lower case.
    pub fn name(self) -> &'static str {
        NAMES[self.index()].0
    }

    pub fn plural(self) -> &'static str {
        NAMES[self.index()].1
    }

    /// The truth names a [`Colour`] for it (of a person: the clothes).
    pub fn is_coloured(self) -> bool {
        use Class::*;
        matches!(self, Person | Car | Truck | Bus | Bicycle | Ball | Bird)
    }

    /// Number of shapes in which it is drawn; `SceneObject::variant` is below this.
    pub fn variants(self) -> u8 {
        match self {
            Self::Person | Self::Car | Self::Truck => 4,
            Self::TrafficLight => 2,
            _ => 3,
        }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    pub const ALL: [Self; 8] = [
        Self::Red,
        Self::Orange,
        Self::Yellow,
        Self::Green,
        Self::Blue,
        Self::Purple,
        Self::White,
        Self::Black,
    ];

    pub fn index(self) -> usize {
        self as usize
    }

    /// In lower case.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 8] = [
            "red", "orange", "yellow", "green", "blue", "purple", "white", "black",
        ];
        NAMES[self.index()]
    }
}
