//! Into how many local crops a picture is cut (docs/moondream.md section 4).

use crate::model::config::VisionConfig;
use spotter_core::PromptView;

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

/// The tiling of a picture of `size` pixels that `view` looks at. A limit keeps the rows and columns that the model's own rule
/// would choose or fewer: as many tiles as fit, and of equally many the ones whose shape is nearest to a square in the picture.
pub fn view_tiling(size: (usize, usize), view: &PromptView, vision: &VisionConfig) -> Tiling {
    let (width, height) = match view.width_max.map(|most| most as usize) {
        // As the decoder scales: to an even height.
        Some(most) if most < size.0 => (most, (size.1 * most / size.0).next_multiple_of(2)),
        _ => size,
    };
    let own = tiling(width, height, vision);
    let most = view.crops_max.map_or(usize::MAX, usize::from);
    if own.crops() <= most {
        return own;
    }
    let all = (1..=own.rows).flat_map(|rows| (1..=own.cols).map(move |cols| Tiling { rows, cols }));
    let fit = all.filter(|tiling| tiling.crops() <= most);
    let stretch = |tiling: &Tiling| {
        let tile = (width as f64 / tiling.cols as f64) / (height as f64 / tiling.rows as f64);
        tile.ln().abs()
    };
    let better = |a: &Tiling, b: &Tiling| {
        let order = a.crops().cmp(&b.crops());
        order.then(stretch(b).total_cmp(&stretch(a)))
    };
    fit.max_by(better).unwrap_or(Tiling { rows: 1, cols: 1 })
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

    #[test]
    fn limit_makes_the_most_tiles_that_fit() {
        let vision = VisionConfig::default();
        let of = |size, crops_max| {
            let view = PromptView {
                crops_max,
                ..PromptView::default()
            };
            let Tiling { rows, cols } = view_tiling(size, &view, &vision);
            (rows, cols)
        };
        let hd = (1280, 720);
        assert_eq!(of(hd, None), (2, 4));
        for (most, expected) in [
            (12, (2, 4)),
            (9, (2, 4)),
            (8, (2, 3)),
            (7, (2, 3)),
            (6, (2, 2)),
            (4, (1, 3)),
            (3, (1, 2)),
            (2, (1, 1)),
            (1, (1, 1)),
        ] {
            assert_eq!(of(hd, Some(most)), expected, "{most}");
        }
        // As a camera that is scaled to 640 pixels while decoding.
        let narrow = PromptView {
            width_max: Some(640),
            ..PromptView::default()
        };
        assert!(view_tiling((1920, 1080), &narrow, &vision).is_single());
    }

    proptest! {
        #[test]
        fn limited_tiling_keeps_its_limit_and_no_limit_changes_nothing(
            size in (1usize..9000, 1usize..9000),
            crops_max in 1u8..=12,
        ) {
            let vision = VisionConfig::default();
            let mut view = PromptView::default();
            let own = tiling(size.0, size.1, &vision);
            prop_assert_eq!(view_tiling(size, &view, &vision), own);
            view.crops_max = Some(crops_max);
            let limited = view_tiling(size, &view, &vision);
            prop_assert!(limited.crops() <= usize::from(crops_max));
            prop_assert!(limited.rows <= own.rows && limited.cols <= own.cols);
        }

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
