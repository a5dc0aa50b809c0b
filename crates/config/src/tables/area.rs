//! Areas and lines in a camera's picture: `mask`, `[camera.NAME.zone.NAME]`, `[camera.NAME.line.NAME]`.

use crate::{
    forms::prelude::*,
    read::{prelude::*, value::ConfigValue},
};
use spotter_core::{
    DirectionId, LineId, NormBox, WeeklyTime, ZoneId, check_polygon, check_polyline,
};

/// A named area of a camera's picture.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneConfig {
    pub id: ZoneId,
    /// Corners in shares of the picture, at least three, edges do not cross.
    pub polygon: Vec<(f64, f64)>,
    /// Which point of a box must lie inside.
    pub point: ZonePoint,
}

impl ZoneConfig {
    /// The box around it; `None` of a polygon without corners.
    pub(crate) fn bounds(&self) -> Option<NormBox> {
        let &(x, y) = self.polygon.first()?;
        let first = NormBox::from_corners(x, y, x, y);
        let around = |area: NormBox, &(x, y): &(f64, f64)| NormBox {
            x0: area.x0.min(x),
            y0: area.y0.min(y),
            x1: area.x1.max(x),
            y1: area.y1.max(y),
        };
        Some(self.polygon.iter().fold(first, around))
    }
}

/// A named line in a camera's picture, at which objects are counted in two directions.
#[derive(Clone, Debug, PartialEq)]
pub struct LineConfig {
    pub id: LineId,
    /// In shares of the picture, at least two. The pieces between them do not touch, except at their common points.
    pub points: Vec<(f64, f64)>,
    /// From the left of the line to its right, seen along it from its first point; and back.
    pub directions: [DirectionId; 2],
    /// Which point of a box must cross.
    pub point: ZonePoint,
    /// When its counts return to 0; `None`: by a command only.
    pub reset: Option<WeeklyTime>,
}

/// Which point of a box decides whether it is in a zone or on which side of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZonePoint {
    /// Middle of the lower edge, where an object touches the ground.
    Bottom,
    Centre,
}

impl ZonePoint {
    /// As the file has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Bottom => "bottom",
            Self::Centre => "centre",
        }
    }
}

/// Areas and lines of a camera.
pub(crate) struct DrawnAreas {
    pub(crate) mask: Vec<Vec<(f64, f64)>>,
    pub(crate) zones: Vec<ZoneConfig>,
    pub(crate) lines: Vec<LineConfig>,
}

/// Reads what is drawn on a camera.
pub(crate) fn areas(table: &mut Reader<'_>) -> DrawnAreas {
    keys! { table;
        /// Areas that are blacked out before the model receives the picture.
        mask = polygons().or_as("none", Vec::new()), "mask = [[[0, 0], [1, 0], [1, 0.2], [0, 0.2]]]";
        /// Named areas of the picture.
        zone = tables(ZoneId::new, "zone", "none"), "[camera.gate.zone.drive]";
        /// Named lines in the picture, at which objects are counted in two directions.
        line = tables(LineId::new, "line", "none"), "[camera.gate.line.door]";
    }
    let zones = zone.into_iter().map(|(id, table)| self::zone(id, table));
    let lines = line.into_iter().map(|(id, table)| self::line(id, table));
    DrawnAreas {
        mask,
        zones: zones.collect(),
        lines: lines.collect(),
    }
}

fn box_points() -> Form<'static, ZonePoint> {
    words(&[("bottom", ZonePoint::Bottom), ("centre", ZonePoint::Centre)])
}

/// Areas of the mask.
fn polygons() -> Form<'static, Vec<Vec<(f64, f64)>>> {
    let text = "list of polygons, `[[[x, y], ...], ...]`, shares 0 to 1, origin top left";
    Form::new(text, |value| list(corners()).read(value))
}

/// A zone; with a wrong polygon it is still one, so that prompts may name it.
fn zone(id: ZoneId, mut table: Reader<'_>) -> ZoneConfig {
    keys! { table in "`[camera.NAME.zone.NAME]`", "A named area of the camera's picture.", "[camera.gate.zone.drive]\npolygon = [[0.05, 0.55], [0.95, 0.55], [0.95, 1.0], [0.05, 1.0]]";
        /// Corners in order around the area. Edges must not cross.
        polygon = corners().required("no polygon; add polygon = [[x, y], …], shares of the picture"), "polygon = [[0, 0.5], [1, 0.5], [1, 1], [0, 1]]";
        /// Which point of a box must be inside: the middle of its lower edge, or of the lowest edge of its outline, or its centre.
        point = box_points().or(ZonePoint::Bottom), r#"point = "centre""#;
    }
    table.finish();
    let polygon = polygon.unwrap_or_default();
    ZoneConfig { id, polygon, point }
}

/// A line; with wrong points it is still one, so that prompts may name it.
fn line(id: LineId, mut table: Reader<'_>) -> LineConfig {
    keys! { table in "`[camera.NAME.line.NAME]`", "A named line in the camera's picture. The objects of the prompts that name it in `lines` are counted when they cross it. Draw it where objects are seen well on both sides, at least a quarter of their size.",
            "[camera.gate.line.door]\npoints = [[0.3, 0.8], [0.7, 0.8]]\ndirections = [\"in\", \"out\"]\nreset = \"00:00 Europe/Berlin\"";
        /// The line from its first point to its last. It must not cross itself.
        points = line_points().required("no points; add points = [[x, y], [x, y]], shares of the picture"), "points = [[0.2, 0.9], [0.5, 0.7], [0.8, 0.9]]";
        /// Names of the two directions. The first is from left to right, seen along the line from its first point: of a line that is drawn from left to right, it is downwards in the picture.
        directions = directions().or(DirectionId::in_and_out()), r#"directions = ["east", "west"]"#;
        /// Which point of a box must cross: the middle of its lower edge, or of the lowest edge of its outline, or its centre.
        point = box_points().or(ZonePoint::Bottom), r#"point = "centre""#;
        /// When the counts return to 0: every day, or on these days.
        reset = text("`\"TIME ZONE\"` or `\"DAYS TIME ZONE\"`: days Mon to Sun, time 00:00 to 23:59, IANA time zone", WeeklyTime::new).optional("by command only"), r#"reset = "Mon 06:00 Europe/Berlin""#;
    }
    table.finish();
    LineConfig {
        id,
        points: points.unwrap_or_default(),
        directions,
        point,
        reset,
    }
}

/// Two different names.
fn directions() -> Form<'static, [DirectionId; 2]> {
    let form = Form::new("list of two names of a-z 0-9 _ -", |value| {
        let elements = value.list()?;
        let [first, second] = elements.as_slice() else {
            let count = elements.len();
            value.error(format!(
                "needs two names, has {count}; write [\"in\", \"out\"]"
            ));
            return None;
        };
        let directions = [first.id(DirectionId::new)?, second.id(DirectionId::new)?];
        if directions[0] == directions[1] {
            value.error("both directions have the same name");
        }
        Some(directions)
    });
    form.written(|[first, second]| format!("[\"{first}\", \"{second}\"]"))
}

/// Corners of an area in order around it.
fn corners() -> Form<'static, Vec<(f64, f64)>> {
    points(3, check_polygon)
}

/// Points of a line.
fn line_points() -> Form<'static, Vec<(f64, f64)>> {
    points(2, check_polyline)
}

fn points(
    least: usize,
    check: impl Fn(&[(f64, f64)]) -> Result<(), String> + 'static,
) -> Form<'static, Vec<(f64, f64)>> {
    let text = format!("`[[x, y], ...]`, at least {least} points, shares 0 to 1, origin top left");
    Form::new(text, move |value| {
        let mut points = Vec::new();
        for corner in value.list()? {
            let numbers = corner.list()?;
            let [x, y] = numbers.as_slice() else {
                let count = numbers.len();
                corner.error(format!("a point is [x, y], this one has {count} numbers"));
                return None;
            };
            // The range is checked with all points: the message counts them.
            let [x, y] = [x, y].map(ConfigValue::number);
            points.push((x?, y?));
        }
        value.checked(check(&points))?;
        Some(points)
    })
}
