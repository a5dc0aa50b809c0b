//! Outlines as answers: what the model drew in its box, as polygons in the picture. Pure.

use crate::model::{DrawnOutline, SequenceOutput, ValueBins, Vertex};
use spotter_core::{NormBox, NormPoint, OUTLINE_POINTS_MAX, Outline, simplified_rings};

/// Tokens after which a path is shown again: not each one, because it is read from its beginning.
const PIECE_TOKENS: usize = 4;

/// An outline while its tokens are decided: its box as soon as it is known, then pieces of its path.
#[derive(Default)]
pub(super) struct WrittenOutline {
    found: SequenceOutput,
    has_bounds: bool,
    /// Tokens of the path that is shown.
    shown: usize,
    /// What of it was handed out.
    path: String,
}

impl WrittenOutline {
    /// Takes the next values; `draw` reads the tokens and values so far. Returns the box when it becomes known.
    pub fn add_values(
        &mut self,
        values: Vec<ValueBins>,
        draw: impl FnOnce(&SequenceOutput) -> Option<DrawnOutline>,
    ) -> Option<NormBox> {
        self.found.values.extend(values);
        if self.has_bounds {
            return None;
        }
        let bounds = draw(&self.found)?.bounds;
        self.has_bounds = bounds.is_some();
        bounds
    }

    /// Takes the next tokens. Returns what the path goes on with, from time to time.
    pub fn add(
        &mut self,
        tokens: Vec<u32>,
        draw: impl FnOnce(&SequenceOutput) -> Option<DrawnOutline>,
    ) -> Option<String> {
        self.found.tokens.extend(tokens);
        let count = self.found.tokens.len();
        if !self.has_bounds || count < self.shown + PIECE_TOKENS {
            return None;
        }
        self.shown = count;
        let path = draw(&self.found)?.path;
        self.rest(&path)
    }

    /// What a path has behind the pieces that were handed out.
    pub fn rest(&mut self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(self.path.as_str())?;
        let rest = (self.has_bounds && !rest.is_empty()).then(|| rest.to_owned())?;
        self.path.push_str(&rest);
        Some(rest)
    }
}

/// The outline of an object in a picture of which the model saw `region`.
pub fn outline(drawn: DrawnOutline, region: Option<NormBox>, score: f64) -> Outline {
    let bounds = (drawn.bounds).map(|bounds| region.map_or(bounds, |r| r.box_in_picture(&bounds)));
    let rings = bounds.map(|bounds| {
        let place = |vertex: &Vertex| {
            let [x, y] = [vertex.x, vertex.y];
            bounds.point_in_picture(NormPoint { x, y })
        };
        let ring = |ring: &Vec<Vertex>| ring.iter().map(place).collect();
        drawn.polygons.iter().map(ring).collect()
    });
    Outline {
        bounds,
        path: drawn.path,
        polygons: simplified_rings(rings.unwrap_or_default(), OUTLINE_POINTS_MAX),
        parse_error: drawn.parse_error,
        score,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::rings_area;

    fn ring(centre: f64, radius: f64, count: usize) -> Vec<Vertex> {
        let angle = |i: usize| i as f64 / count as f64 * std::f64::consts::TAU;
        let vertex = |angle: f64| Vertex {
            x: centre + radius * angle.cos(),
            y: centre + radius * angle.sin(),
        };
        (0..count).map(|i| vertex(angle(i))).collect()
    }

    fn drawn(polygons: Vec<Vec<Vertex>>) -> DrawnOutline {
        DrawnOutline {
            bounds: Some(NormBox::from_corners(0.5, 0.5, 1.0, 0.75)),
            path: String::new(),
            polygons,
            parse_error: None,
        }
    }

    #[test]
    fn outline_has_few_points_and_the_area_of_its_path() {
        let few = outline(drawn(vec![ring(0.5, 0.5, 60)]), None, 1.0);
        assert_eq!(few.polygons[0].len(), 60, "nothing is lost");
        let exact = rings_area(&outline(drawn(vec![ring(0.5, 0.5, 64)]), None, 1.0).polygons);
        let many = outline(drawn(vec![ring(0.5, 0.5, 6000)]), None, 1.0);
        let points = many.polygons[0].len();
        assert!((12..=64).contains(&points), "{points}");
        assert!((rings_area(&many.polygons) / exact - 1.0).abs() < 0.03);
    }

    #[test]
    fn points_of_all_polygons_count_together() {
        let rings = (1..=40)
            .map(|i| ring(0.5, 0.01 * f64::from(i), 30))
            .collect();
        let outline = outline(drawn(rings), None, 1.0);
        let points: usize = outline.polygons.iter().map(Vec::len).sum();
        assert!((3..=64).contains(&points), "{points}");
        assert!(outline.polygons.iter().all(|ring| ring.len() >= 3));
    }

    #[test]
    fn polygons_are_in_the_seen_part_of_the_picture() {
        let region = NormBox::from_corners(0.0, 0.5, 0.5, 1.0);
        let triangle = [(0.0, 0.0), (1.0, 0.0), (2.0, 1.0)].map(|(x, y)| Vertex { x, y });
        let outline = outline(drawn(vec![triangle.to_vec()]), Some(region), 1.0);
        let bounds = NormBox::from_corners(0.25, 0.75, 0.5, 0.875);
        assert_eq!(outline.bounds, Some(bounds));
        // What is outside of the picture is on its edge; of the box alone it is not.
        let wanted = [(0.25, 0.75), (0.5, 0.75), (0.75, 0.875)].map(|(x, y)| NormPoint { x, y });
        assert_eq!(outline.polygons, [wanted.to_vec()]);
    }

    #[test]
    fn path_without_a_box_has_no_polygons() {
        let without = DrawnOutline {
            bounds: None,
            ..drawn(vec![ring(0.5, 0.5, 8)])
        };
        assert!(outline(without, None, 1.0).polygons.is_empty());
    }
}
