//! Pictures that encode their number in large black or white blocks. Pure.
//!
//! From one picture to the next, one block changes. So a decoder that lost one picture of a group shows a wrong block until the
//! end of the group, and [`read`] finds it.

/// Blocks across and down.
const GRID: (usize, usize) = (8, 8);
const BLOCKS: usize = GRID.0 * GRID.1;
/// Pictures after which they repeat.
pub const NUMBERS: usize = 2 * BLOCKS;
const BLACK: u8 = 30;
const WHITE: u8 = 220;
/// Allowed difference in the middle of a block after a codec.
const SLACK: u8 = 40;

/// Whether the block is white: each is repainted in its turn, white first.
fn is_white(number: usize, block: usize) -> bool {
    let painted = (number % NUMBERS + BLOCKS - 1 - block) / BLOCKS;
    painted % 2 == 1
}

/// The picture with this number, I420 with rows as GStreamer lays them out.
pub fn picture(number: usize, width: usize, height: usize) -> Vec<u8> {
    let stride = width.next_multiple_of(4);
    let chroma = width.div_ceil(2).next_multiple_of(4) * height.div_ceil(2);
    // Rows come in pairs, as each row of colour belongs to two.
    let mut bytes = vec![128; stride * height.next_multiple_of(2) + 2 * chroma];
    for (y, row) in bytes.chunks_mut(stride).take(height).enumerate() {
        for (x, value) in row[..width].iter_mut().enumerate() {
            let block = y * GRID.1 / height * GRID.0 + x * GRID.0 / width;
            *value = if is_white(number, block) {
                WHITE
            } else {
                BLACK
            };
        }
    }
    bytes
}

/// The number of a picture whose luma is `luma(x, y)`; `None` if there is no such picture.
pub fn read(width: usize, height: usize, luma: impl Fn(usize, usize) -> u8) -> Option<usize> {
    let mut white = [false; BLOCKS];
    for (block, white) in white.iter_mut().enumerate() {
        let middle = |at: usize, of: usize, pixels: usize| (2 * at + 1) * pixels / (2 * of);
        let x = middle(block % GRID.0, GRID.0, width);
        let y = middle(block / GRID.0, GRID.1, height);
        let value = luma(x, y);
        *white = value.abs_diff(WHITE) < SLACK;
        if !*white && value.abs_diff(BLACK) >= SLACK {
            return None;
        }
    }
    (0..NUMBERS).find(|number| (0..BLOCKS).all(|block| is_white(*number, block) == white[block]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn painted_numbers_are_read_and_damaged_blocks_are_rejected() {
        for number in 0..NUMBERS {
            let (width, height) = (66, 50);
            let mut bytes = picture(number, width, height);
            let found = read(width, height, |x, y| bytes[y * 68 + x]);
            assert_eq!(found, Some(number));
            // A block in the middle of those painted or unpainted, in the other colour.
            let block = (number + BLOCKS / 2) % BLOCKS;
            let (x, y) = (block % 8 * 66 / 8 + 4, block / 8 * 50 / 8 + 3);
            for value in [BLACK + WHITE - bytes[y * 68 + x], 128] {
                (y - 3..y + 3).for_each(|y| bytes[y * 68 + x - 3..y * 68 + x + 4].fill(value));
                assert_eq!(read(width, height, |x, y| bytes[y * 68 + x]), None);
            }
        }
    }
}
