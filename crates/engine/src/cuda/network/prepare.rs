//! Which products the steps to come will have.

use super::Network;
use crate::cuda::{error::CudaError, products::Product};

/// Positions of prompts and drafts beside an image in its first step, at most, for most looks.
const BESIDE_IMAGE: usize = 64;
/// Positions in a step without images, at most, for most.
const ROWS_ALONE: usize = 512;
/// Fewer are not for cuBLASLt, or planned in no time.
const ROWS_LEAST: usize = 17;

impl Network {
    /// Plans the products of all steps but rare ones, which plan theirs when they come. Blocks for some seconds the first
    /// time on a GPU.
    pub fn prepare(&self) -> Result<(), CudaError> {
        let crops = 1..=self.vision.crops;
        let patches = crops.map(|crops| crops * self.config.image_tokens());
        let cells = (1..=self.images).map(|images| images * self.config.image_tokens());
        let prefix = self.config.prefix_positions();
        let with_images =
            (1..=self.images).flat_map(|images| images * prefix..=images * (prefix + BESIDE_IMAGE));
        let positions = with_images.chain(ROWS_LEAST..=ROWS_ALONE);
        // All blocks have the same shapes.
        let mut expected: Vec<Product> = Vec::new();
        for rows in patches {
            expected.push(self.embedding(rows));
            if !self.weights.vision.is_empty() {
                expected.extend(self.vision_products(0, rows));
            }
        }
        expected.extend(cells.flat_map(|rows| self.projection(rows)));
        if !self.weights.text.is_empty() {
            expected.extend(positions.flat_map(|rows| self.text_products(0, (rows, rows))));
        }
        self.products.prepare(&expected)?;
        self.products.prepare(&self.detours(&expected)?)
    }
}
