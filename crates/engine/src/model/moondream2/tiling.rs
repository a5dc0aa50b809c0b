//! Into how many local crops a picture is cut (docs/moondream.md section 4).

use super::config::VisionConfig;

/// Rows and columns of local crops; at least one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// Crops down.
    pub rows: usize,
    /// Crops across.
    pub cols: usize,
}

impl Tiling {
    /// True when the only local crop is the whole picture, so that it equals the global crop.
    pub fn is_single(self) -> bool {
        self.rows == 1 && self.cols == 1
    }

    /// Crops that are encoded: the whole picture and its tiles. A single tile equals the whole picture and is not encoded.
    pub fn crops(self) -> usize {
        if self.is_single() {
            1
        } else {
            1 + self.rows * self.cols
        }
    }

    /// Width and height in pixels to which the picture is scaled before the local crops are cut.
    pub fn resized(self, vision: &VisionConfig) -> (usize, usize) {
        let (window, margins) = (vision.window_pixels(), 2 * vision.margin_pixels());
        (self.cols * window + margins, self.rows * window + margins)
    }
}

/// Chooses the tiling of a picture of `width` x `height` pixels. As in the reference, a picture whose one side is at
/// most a window (without its margins) is one tile, and very long ones exceed `max_crops`.
pub fn tiling(width: usize, height: usize, vision: &VisionConfig) -> Tiling {
    let (window, margins) = (vision.window_pixels(), 2 * vision.margin_pixels());
    let inner_width = width.saturating_sub(margins).max(1);
    let inner_height = height.saturating_sub(margins).max(1);
    if inner_height <= window || inner_width <= window {
        return Tiling { rows: 1, cols: 1 };
    }
    let (min_rows, min_cols) = (inner_height.div_ceil(window), inner_width.div_ceil(window));
    let max_crops = vision.max_crops as f64;
    let (rows, cols) = if min_rows * min_cols > vision.max_crops {
        let shrink = (max_crops / (min_rows * min_cols) as f64).sqrt();
        (
            (min_rows as f64 * shrink) as usize,
            (min_cols as f64 * shrink) as usize,
        )
    } else {
        let (w, h) = (inner_width as f64, inner_height as f64);
        let rows = min_rows.max((max_crops * h / w).sqrt() as usize);
        let cols = min_cols.max((max_crops * w / h).sqrt() as usize);
        if rows * cols <= vision.max_crops {
            (rows, cols)
        } else if cols > rows {
            (rows, vision.max_crops / rows)
        } else {
            (vision.max_crops / cols, cols)
        }
    };
    Tiling {
        rows: rows.max(1),
        cols: cols.max(1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{golden_set, json};

    #[test]
    fn each_golden_size_has_its_tiling() {
        let ops = json(&golden_set("ops").join("ops.json"));
        let mut rows_seen = 0;
        for table in ["tiling_378", "tiling_84_max6"].map(|name| &ops[name]) {
            let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
            let vision = VisionConfig {
                crop_size: number(&table["crop_size"]),
                enc_patch_size: number(&table["patch"]),
                overlap_margin: number(&table["overlap_margin"]),
                max_crops: number(&table["max_crops"]),
                ..VisionConfig::default()
            };
            for row in table["rows"].as_array().unwrap() {
                let [width, height, rows, cols] = std::array::from_fn(|i| number(&row[i]));
                let got = tiling(width, height, &vision);
                assert_eq!(got, Tiling { rows, cols }, "{width}x{height}");
                rows_seen += 1;
            }
        }
        assert!(rows_seen > 300, "only {rows_seen} golden sizes");
    }

    proptest! {
        /// Only a picture far longer than wide may exceed the limit.
        #[test]
        fn there_are_always_tiles(width in 1usize..20_000, height in 1usize..20_000) {
            let vision = VisionConfig::default();
            let tiling = tiling(width, height, &vision);
            prop_assert!(tiling.rows >= 1 && tiling.cols >= 1);
            if width.max(height) <= 12 * width.min(height) && width.min(height) > 1000 {
                prop_assert!(tiling.rows * tiling.cols <= vision.max_crops);
            }
        }
    }
}
