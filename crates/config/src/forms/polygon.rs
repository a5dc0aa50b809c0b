//! Corners of areas and points of lines.

use super::form::Form;
use crate::read::value::ConfigValue;
use spotter_core::{check_polygon, check_polyline};

/// Corners of an area in order around it.
pub(crate) fn area() -> Form<'static, Vec<(f64, f64)>> {
    points(3, check_polygon)
}

/// Points of a line.
pub(crate) fn line() -> Form<'static, Vec<(f64, f64)>> {
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
