//! A step as the kernels read it: tables of integers in one block, which is uploaded in one copy. Pure.
//!
//! ```text
//!   positions   │ rows of the step, position by position │ image 0: BOS, tokens │ image 1 …
//!                 0 ..................... row_positions    ....................... positions
//!
//!   tiles       rows that read one prefix, 16 positions to a tile       row 3 ─┐
//!                                                                       row 5 ─┴▶ tile 0 ─▶ prefix of look 7
//! ```
//!
//! Every table has a fixed place in the block, so that a slot's kernels read from fixed addresses.

use std::{collections::HashMap, ops::Range, sync::Arc};

use super::{
    memory::Pointer,
    tensor::{PAGE, TILE, bucket},
};
use crate::scheduler::backend::{
    AdapterNumber, BackendError, BackendLimits, DecoderInput, Feed, ImageJob, KvTable,
    LoadedAdapter, MaskSource, Pick, Row, SlotId, Step,
};

/// Crops that an image of a step has on average, at most.
const CROPS_MAX: usize = 64;
/// Ids that a row may ban.
const BANNED: usize = 4;

/// Where a table begins in the block, and its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    pub start: usize,
    pub len: usize,
}

/// The most entries of a step, and where its tables are.
#[derive(Clone, Debug)]
pub struct TableLayout {
    pub limits: BackendLimits,
    pub row_positions: usize,
    /// Positions of rows and images.
    pub positions: usize,
    pub picks: usize,
    /// Tiles of `attend_prefix`.
    pub tiles: usize,
    /// Of each position: position in its sequence.
    pub position: Table,
    /// Of each position: slot of the cache, or -1.
    pub slot: Table,
    /// The same: slot of its adapter, or -1. Empty where there are none.
    pub adapter: Table,
    /// Of each row position: kind of input, as in `embed.cu`.
    pub kind: Table,
    /// The same: first value.
    pub a: Table,
    /// The same: second value.
    pub b: Table,
    /// The same: its own page table.
    pub own_table: Table,
    /// The same: how many own positions it attends to.
    pub own_length: Table,
    /// The same: its tile and row.
    pub place: Table,
    pub pages: Table,
    /// Rows of the tiles.
    pub tile_row: Table,
    /// Prefixes of the tiles.
    pub tile_table: Table,
    pub tile_length: Table,
    /// Decisions, four words each.
    pub pick: Table,
    /// Positions whose coordinate is decoded.
    pub coord_rows: Table,
    /// Positions whose size is decoded.
    pub size_rows: Table,
    /// Positions whose token is chosen.
    pub token_rows: Table,
    /// Choices of tokens, eight words each.
    pub choice: Table,
    /// Banned ids of the choices.
    pub banned: Table,
    /// Crops and tiling of the images, three words each.
    pub image: Table,
    /// Where the features of each crop are, as in `combine.cu`.
    pub crop_source: Table,
    /// Words of the block.
    pub words: usize,
}

impl TableLayout {
    /// For steps within `limits`.
    pub fn new(limits: &BackendLimits) -> Self {
        let row_positions = limits.positions;
        let positions = row_positions + limits.images * limits.prefix_positions;
        let picks = limits.picks;
        // At worst each row is a tile of its own, and the last tile of each row is not full.
        let tiles = limits.rows + row_positions / TILE;
        let pages = limits.rows * limits.context.div_ceil(PAGE) * 2;
        let mut words = 0;
        let mut table = |len: usize| {
            let start = words;
            // 16-byte alignment, for kernels that read four words at once.
            words += len.next_multiple_of(4);
            Table { start, len }
        };
        Self {
            limits: *limits,
            row_positions,
            positions,
            picks,
            tiles,
            position: table(positions),
            slot: table(positions),
            adapter: table(if limits.adapters > 0 { positions } else { 0 }),
            kind: table(row_positions),
            a: table(row_positions),
            b: table(row_positions),
            own_table: table(row_positions),
            own_length: table(row_positions),
            place: table(row_positions),
            pages: table(pages),
            tile_row: table(tiles * TILE),
            tile_table: table(tiles),
            tile_length: table(tiles),
            pick: table(picks * 4),
            coord_rows: table(picks),
            size_rows: table(picks),
            token_rows: table(limits.tokens),
            choice: table(limits.tokens * 8),
            banned: table(limits.tokens * BANNED),
            image: table(limits.images * 3),
            crop_source: table(limits.images * CROPS_MAX),
            words,
        }
    }
}

/// Numbers of entries of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    pub row_positions: usize,
    pub images: usize,
    pub tiles: usize,
    /// Positions of rows that are in no tile, because no image is in front of them.
    pub without_prefix: usize,
    pub picks: usize,
    /// Of these, with a coordinate or with a token that may stand for one.
    pub coords: usize,
    /// The same of a size.
    pub sizes: usize,
    /// Of these, tokens.
    pub tokens: usize,
    /// At least one position has an adapter.
    pub has_adapters: bool,
    /// At least one token needs a mask of the host.
    pub needs_masks: bool,
    /// The decisions of each row.
    pub row_picks: Vec<Range<usize>>,
    /// For each token its row in the step, when it wants a mask.
    pub masked_rows: Vec<Option<usize>>,
}

/// The tables of a step on the GPU, and the numbers of their entries.
#[derive(Clone, Copy)]
pub struct StepTables<'a> {
    /// Where they are in the block.
    pub layout: &'a TableLayout,
    pub block: Pointer<i32>,
    pub counts: &'a StepCounts,
}

impl StepTables<'_> {
    pub fn at(&self, table: Table) -> Pointer<i32> {
        self.block.at(table.start)
    }
}

/// The adapter in each slot.
#[derive(Debug)]
pub struct HeldAdapters(Vec<Option<AdapterNumber>>);

impl HeldAdapters {
    pub fn empty(slots: usize) -> Self {
        Self(vec![None; slots])
    }

    /// Where it is.
    pub fn slot_of(&self, number: AdapterNumber) -> Option<usize> {
        self.0.iter().position(|held| *held == Some(number))
    }

    /// A slot whose adapter is none of these, from now on without one; an empty slot, if there is one.
    pub fn take_slot(&mut self, wanted: &[AdapterNumber]) -> Option<usize> {
        let empty = self.0.iter().position(Option::is_none);
        let is_free = |held: &Option<AdapterNumber>| held.is_none_or(|n| !wanted.contains(&n));
        let slot = empty.or_else(|| self.0.iter().position(is_free))?;
        self.0[slot] = None;
        Some(slot)
    }

    /// It is there from now on.
    pub fn put(&mut self, slot: usize, number: AdapterNumber) {
        self.0[slot] = Some(number);
    }
}

/// Where a step runs, and where the adapters are.
#[derive(Clone, Copy, Debug)]
pub struct StepPlace<'a> {
    pub slot: SlotId,
    /// `None`: there are none.
    pub adapters: Option<&'a HeldAdapters>,
}

/// Fills `block` with the tables of `step`, which runs in `place`.
pub fn write(
    step: &Step,
    place: StepPlace<'_>,
    layout: &TableLayout,
    block: &mut [i32],
) -> Result<StepCounts, BackendError> {
    let mut writer = TableWriter {
        layout,
        block,
        place,
        counts: StepCounts::default(),
        page_words: 0,
        prefixes: HashMap::new(),
    };
    let row_positions: usize = step.rows.iter().map(|row| row.inputs.positions()).sum();
    let picks: usize = step.rows.iter().map(|row| row.picks.len()).sum();
    if row_positions > layout.row_positions || picks > layout.picks {
        return Err(BackendError::Step(format!(
            "a step of {row_positions} positions and {picks} decisions is more than the GPU's {} and {}; use shorter prompts",
            layout.row_positions, layout.picks
        )));
    }
    for (index, row) in step.rows.iter().enumerate() {
        writer.row(index, row)?;
    }
    for image in &step.images {
        writer.image(image)?;
    }
    Ok(writer.counts)
}

/// Pads the tables of a step without images, so that such steps have few numbers of positions and tiles: launches take the padded
/// numbers. A position of padding writes no key and no value, reads nothing, and nothing is decided from it; a tile of padding has no
/// prefix. Results of the step's own positions have the same bits, because the padded numbers select the same kernels.
///
/// Steps with images are left exact: their images' positions follow those of the rows.
pub fn pad(counts: &mut StepCounts, layout: &TableLayout, block: &mut [i32]) {
    if counts.images > 0 {
        return;
    }
    let positions = padded_positions(counts.row_positions).min(layout.row_positions);
    let tiles = padded_tiles(counts.tiles).min(layout.tiles);
    let mut fill = |table: Table, range: Range<usize>, value: i32| {
        block[table.start..][..table.len][range].fill(value);
    };
    let added = counts.row_positions..positions;
    if counts.has_adapters {
        fill(layout.adapter, added.clone(), -1);
    }
    for (table, value) in [
        (layout.position, 0),
        (layout.slot, -1),
        (layout.kind, -1),
        (layout.own_length, 0),
        (layout.place, -1),
    ] {
        fill(table, added.clone(), value);
    }
    fill(layout.tile_length, counts.tiles..tiles, 0);
    (counts.row_positions, counts.tiles) = (positions, tiles);
}

/// Kernels for few rows are made for 8 and for 16; from there on products are computed for a [`bucket`] of rows anyway.
fn padded_positions(positions: usize) -> usize {
    match positions {
        0 => 0,
        1..=8 => positions.next_power_of_two(),
        9..=16 => positions.next_multiple_of(4),
        _ => bucket(positions),
    }
}

/// Blocks of a tile of padding end at once, but each takes a moment to start.
pub fn padded_tiles(tiles: usize) -> usize {
    match tiles {
        0 => 0,
        _ => tiles.next_power_of_two(),
    }
}

struct TableWriter<'a> {
    layout: &'a TableLayout,
    block: &'a mut [i32],
    place: StepPlace<'a>,
    counts: StepCounts,
    page_words: usize,
    /// By first page: where its table begins, its last tile, and the rows in it.
    prefixes: HashMap<u32, PrefixTile>,
}

#[derive(Clone, Copy)]
struct PrefixTile {
    table: usize,
    tile: usize,
    rows: usize,
}

/// A decision that chooses a token.
struct TokenPick {
    /// Its number in the step.
    pick: i32,
    /// Index into the carried decisions; -1: none.
    carried: i32,
    position: i32,
    /// Its row in the step.
    row: usize,
    /// Id of a token that means a coordinate, and the row of its logits; -1: there is none.
    coord: [i32; 2],
    /// The same for a size.
    size: [i32; 2],
}

impl TableWriter<'_> {
    fn put(&mut self, table: Table, index: usize, value: usize) {
        self.word(table, index, value as i32);
    }

    fn word(&mut self, table: Table, index: usize, value: i32) {
        self.words(table, index, &[value]);
    }

    fn words(&mut self, table: Table, index: usize, words: &[i32]) {
        debug_assert!(index + words.len() <= table.len);
        self.block[table.start + index..][..words.len()].copy_from_slice(words);
    }

    /// Copies a page table. Returns where it begins.
    fn pages(&mut self, pages: impl Iterator<Item = u32>) -> Result<usize, BackendError> {
        let start = self.page_words;
        for page in pages {
            if self.page_words == self.layout.pages.len {
                return Err(BackendError::Step(
                    "a step's page tables are longer than the GPU's; use shorter prompts".into(),
                ));
            }
            self.word(self.layout.pages, self.page_words, page as i32);
            self.page_words += 1;
        }
        Ok(start)
    }

    /// Writes the slot of the adapter of these positions.
    fn adapter(
        &mut self,
        positions: Range<usize>,
        adapter: &Option<Arc<LoadedAdapter>>,
    ) -> Result<(), BackendError> {
        let table = self.layout.adapter;
        let slot = match (adapter, self.place.adapters) {
            (None, _) => None,
            (Some(adapter), Some(held)) => held.slot_of(adapter.number),
            (Some(_), None) => None,
        };
        if slot.is_none() && adapter.is_some() {
            return Err(BackendError::Step(
                "a row's adapter is not in the GPU's memory".into(),
            ));
        }
        self.counts.has_adapters |= slot.is_some();
        if table.len > 0 {
            let slot = slot.map_or(-1, |slot| slot as i32);
            self.block[table.start..][..table.len][positions].fill(slot);
        }
        Ok(())
    }

    fn row(&mut self, index: usize, row: &Row) -> Result<(), BackendError> {
        let slot = self.place.slot;
        let own_table = self.pages(row.kv.own.iter().map(|page| page.0))?;
        let first = self.counts.row_positions;
        self.adapter(first..first + row.inputs.positions(), &row.adapter)?;
        for i in 0..row.inputs.positions() {
            let (at, position) = (first + i, row.position + i);
            self.put(self.layout.position, at, position);
            self.word(self.layout.slot, at, cache_slot(&row.kv, position));
            let (kind, a, b) = match &row.inputs {
                Feed::Host(inputs) => input(inputs[i]),
                Feed::Carry(from) => (
                    3,
                    (from.slot.0 * self.layout.limits.rows + from.row) as i32,
                    0,
                ),
            };
            self.word(self.layout.kind, at, kind);
            self.word(self.layout.a, at, a);
            self.word(self.layout.b, at, b);
            self.put(self.layout.own_table, at, own_table);
            let own_length = position + 1 - row.kv.prefix_positions;
            self.put(self.layout.own_length, at, own_length);
            let place = self.place(&row.kv, at)?;
            self.word(self.layout.place, at, place);
        }
        self.counts.row_positions += row.inputs.positions();
        let picks = row.picks.len();
        let first_pick = self.counts.picks;
        let row_picks = first_pick..first_pick + picks;
        self.counts.row_picks.push(row_picks);
        for (i, pick) in row.picks.iter().enumerate() {
            let position = self.counts.row_positions - picks + i;
            // Only the decision of a row with one decision can be carried to a later step.
            let carried = (picks == 1).then_some(slot.0 * self.layout.limits.rows + index);
            self.pick(pick, position, carried, index)?;
        }
        Ok(())
    }

    /// The tile that reads the row's prefix for position `at`: its number times 16 plus the row in it; -1 without a prefix.
    fn place(&mut self, kv: &KvTable, at: usize) -> Result<i32, BackendError> {
        let Some(first) = kv.prefix.first().filter(|_| kv.prefix_positions > 0) else {
            self.counts.without_prefix += 1;
            return Ok(-1);
        };
        let known = self.prefixes.get(&first.0).copied();
        let tile = match known {
            Some(tile) if tile.rows < TILE => tile,
            _ => {
                let table = match known {
                    Some(full) => full.table,
                    None => self.pages(kv.prefix.iter().map(|page| page.0))?,
                };
                let tile = self.counts.tiles;
                self.counts.tiles += 1;
                self.put(self.layout.tile_table, tile, table);
                self.put(self.layout.tile_length, tile, kv.prefix_positions);
                self.words(self.layout.tile_row, tile * TILE, &[-1; TILE]);
                PrefixTile {
                    table,
                    tile,
                    rows: 0,
                }
            }
        };
        let place = tile.tile * TILE + tile.rows;
        self.put(self.layout.tile_row, place, at);
        let rows = tile.rows + 1;
        self.prefixes.insert(first.0, PrefixTile { rows, ..tile });
        Ok(place as i32)
    }

    fn pick(
        &mut self,
        pick: &Pick,
        position: usize,
        carried: Option<usize>,
        row: usize,
    ) -> Result<(), BackendError> {
        let (kind, logits) = match pick {
            Pick::CoordOrEnd => (0, self.coord_row(position)),
            Pick::Coord => (1, self.coord_row(position)),
            Pick::Size => (2, self.size_row(position)),
            Pick::Token { .. } => (3, -1),
        };
        let carried = carried.map_or(-1, |carried| carried as i32);
        let index = self.counts.picks;
        let words = [kind, position as i32, logits, carried];
        self.words(self.layout.pick, index * 4, &words);
        if let Pick::Token { mask, values } = pick {
            let coord = values.coord.map(|id| [id as i32, self.coord_row(position)]);
            let size = values.size.map(|id| [id as i32, self.size_row(position)]);
            let token = TokenPick {
                pick: index as i32,
                carried,
                position: position as i32,
                row,
                coord: coord.unwrap_or([-1; 2]),
                size: size.unwrap_or([-1; 2]),
            };
            self.token(mask, token)?;
        }
        self.counts.picks += 1;
        Ok(())
    }

    /// The row of the logits of a coordinate that is decoded at a position.
    fn coord_row(&mut self, position: usize) -> i32 {
        let row = self.counts.coords;
        self.put(self.layout.coord_rows, row, position);
        self.counts.coords += 1;
        row as i32
    }

    /// The same of a size.
    fn size_row(&mut self, position: usize) -> i32 {
        let row = self.counts.sizes;
        self.put(self.layout.size_rows, row, position);
        self.counts.sizes += 1;
        row as i32
    }

    fn token(&mut self, mask: &MaskSource, token_pick: TokenPick) -> Result<(), BackendError> {
        let TokenPick {
            pick,
            carried,
            position,
            row,
            coord,
            size,
        } = token_pick;
        let token = self.counts.tokens;
        let banned = match mask {
            MaskSource::Banned(banned) => banned.as_slice(),
            MaskSource::Host => &[],
        };
        if banned.len() > BANNED || token == self.layout.token_rows.len {
            return Err(BackendError::Step(format!(
                "a step with {} banned ids in a row and {token} tokens is more than the GPU's {BANNED} and {}",
                banned.len(),
                self.layout.token_rows.len
            )));
        }
        let masked = *mask == MaskSource::Host;
        let count = if masked { -1 } else { banned.len() as i32 };
        let words = [pick, carried, count, position];
        self.words(self.layout.choice, token * 8, &words);
        let values = [coord, size].concat();
        self.words(self.layout.choice, token * 8 + 4, &values);
        for (i, &id) in banned.iter().enumerate() {
            self.put(self.layout.banned, token * BANNED + i, id as usize);
        }
        self.word(self.layout.token_rows, token, position);
        self.counts.needs_masks |= masked;
        self.counts.masked_rows.push(masked.then_some(row));
        self.counts.tokens += 1;
        Ok(())
    }

    fn image(&mut self, image: &ImageJob) -> Result<(), BackendError> {
        let prefix = self.layout.limits.prefix_positions;
        let first = self.counts.row_positions + self.counts.images * prefix;
        let kv = KvTable {
            prefix: Arc::clone(&image.pages),
            prefix_positions: prefix,
            own: Vec::new(),
        };
        self.adapter(first..first + prefix, &image.adapter)?;
        for position in 0..prefix {
            self.put(self.layout.position, first + position, position);
            let slot = cache_slot(&kv, position);
            self.word(self.layout.slot, first + position, slot);
        }
        self.counts.images += 1;
        Ok(())
    }
}

/// Slot of a position in the cache; -1 when it has no page.
fn cache_slot(kv: &KvTable, position: usize) -> i32 {
    let (pages, at) = match position.checked_sub(kv.prefix_positions) {
        Some(own) => (&kv.own[..], own),
        None => (&kv.prefix[..], position),
    };
    let page = pages.get(at / PAGE);
    page.map_or(-1, |page| (page.0 as usize * PAGE + at % PAGE) as i32)
}

fn input(input: DecoderInput) -> (i32, i32, i32) {
    match input {
        DecoderInput::Token(id) => (0, id as i32, 0),
        DecoderInput::Coord(x) => (1, x.to_bits() as i32, 0),
        DecoderInput::Size(width, height) => (2, width.to_bits() as i32, height.to_bits() as i32),
    }
}

#[cfg(test)]
mod tests;
