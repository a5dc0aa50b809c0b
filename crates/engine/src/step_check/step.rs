//! What a step must fulfil before it may run. Pure: limits and a step in, an error that names the violation out.

use std::collections::BTreeSet;

use crate::scheduler::backend::{
    BackendError, BackendLimits, CropSource, DecoderInput, Feed, ImageJob, KvTable, MaskSource,
    PageId, Pick, Row, Step,
};

/// `Err` names the first violation. A step that passes reads and writes inside of the cache and the tables only.
pub fn check(step: &Step, limits: &BackendLimits, vocab: usize) -> Result<(), BackendError> {
    at_most("images", step.images.len(), limits.images)?;
    at_most("rows", step.rows.len(), limits.rows)?;
    let positions = step.rows.iter().map(|row| row.inputs.positions());
    at_most("positions of rows", positions.sum(), limits.positions)?;
    let picks = step.rows.iter().flat_map(|row| &row.picks);
    at_most("decisions", picks.clone().count(), limits.picks)?;
    let tokens = picks.filter(|pick| pick.is_token()).count();
    at_most("tokens to choose", tokens, limits.tokens)?;
    at_most("adapters", adapters(step), limits.adapters)?;
    let mut written = WrittenPages(vec![false; limits.pages]);
    for (i, image) in step.images.iter().enumerate() {
        check_size(i, image, limits)?;
        let who = format!("image {i} of the step");
        room(&who, &image.pages, limits.prefix_positions, limits)?;
        written.add(&who, &image.pages)?;
        check_entries(&who, image, limits)?;
    }
    for (i, row) in step.rows.iter().enumerate() {
        let who = format!("row {i} of the step");
        check_positions(&who, row, limits)?;
        check_values(&who, row, vocab)?;
        // Pages that are full before the row's first position are only read.
        let read_only = (row.position - row.kv.prefix_positions) / limits.page_tokens;
        written.add(&who, row.kv.own.get(read_only..).unwrap_or_default())?;
    }
    Ok(())
}

/// Different ones.
fn adapters(step: &Step) -> usize {
    let of_images = step.images.iter().flat_map(|image| &image.adapter);
    let of_rows = step.rows.iter().flat_map(|row| &row.adapter);
    let numbers = of_images.chain(of_rows).map(|adapter| adapter.number);
    numbers.collect::<BTreeSet<_>>().len()
}

fn check_size(index: usize, image: &ImageJob, limits: &BackendLimits) -> Result<(), BackendError> {
    let (width, height) = image.picture.size();
    match width.saturating_mul(height) > limits.picture_pixels {
        true => Err(BackendError::Image {
            image: index,
            reason: format!(
                "a picture of {width} x {height} pixels is larger than the {} that the device accepts; scale it down",
                limits.picture_pixels
            ),
        }),
        false => Ok(()),
    }
}

fn check_entries(who: &str, image: &ImageJob, limits: &BackendLimits) -> Result<(), BackendError> {
    let entry = |source: &CropSource| match source {
        CropSource::Encoded(entry) => *entry,
        CropSource::Kept(entry) => Some(*entry),
    };
    let mut entries = image.crops.iter().filter_map(entry);
    match entries.find(|entry| entry.0 as usize >= limits.kept_crops) {
        None => Ok(()),
        Some(entry) => violation(format!(
            "{who} names entry {}, the backend has {}",
            entry.0, limits.kept_crops
        )),
    }
}

fn check_positions(who: &str, row: &Row, limits: &BackendLimits) -> Result<(), BackendError> {
    let KvTable {
        prefix,
        prefix_positions,
        own,
    } = &row.kv;
    let (start, end) = (
        row.position,
        row.position.saturating_add(row.inputs.positions()),
    );
    if row.inputs.positions() == 0 {
        return violation(format!("{who} has no inputs, needs at least one"));
    }
    if row.picks.len() > row.inputs.positions() {
        return violation(format!(
            "{who} has {} decisions after {} inputs",
            row.picks.len(),
            row.inputs.positions()
        ));
    }
    if row.picks.len() > 1 && row.wants_mask() {
        return violation(format!("{who} wants a host mask and verifies a draft"));
    }
    if end > limits.context {
        let context = limits.context;
        return violation(format!(
            "{who} reaches position {}, the context has {context}",
            end - 1
        ));
    }
    if start < *prefix_positions {
        return violation(format!(
            "{who} starts at position {start}, inside of its shared prefix of {prefix_positions} positions"
        ));
    }
    room(who, prefix, *prefix_positions, limits)?;
    room(who, own, end - prefix_positions, limits)
}

fn check_values(who: &str, row: &Row, vocab: usize) -> Result<(), BackendError> {
    let inputs: &[DecoderInput] = match &row.inputs {
        Feed::Host(inputs) => inputs,
        Feed::Carry(_) => &[],
    };
    let read = inputs.iter().filter_map(|input| match input {
        DecoderInput::Token(id) => Some(id),
        DecoderInput::Coord(_) | DecoderInput::Size(..) => None,
    });
    let picked = row.picks.iter().flat_map(|pick| match pick {
        Pick::Token { mask, values } => {
            let banned = match mask {
                MaskSource::Banned(banned) => banned.as_slice(),
                MaskSource::Host => &[],
            };
            let values = [&values.coord, &values.size].into_iter().flatten();
            banned.iter().chain(values).collect()
        }
        _ => Vec::new(),
    });
    if let Some(id) = read.chain(picked).find(|&&id| id as usize >= vocab) {
        return violation(format!(
            "{who} names token {id}, the vocabulary has {vocab}"
        ));
    }
    Ok(())
}

/// Pages exist and have room for `positions`.
fn room(
    who: &str,
    pages: &[PageId],
    positions: usize,
    limits: &BackendLimits,
) -> Result<(), BackendError> {
    if let Some(page) = pages.iter().find(|page| page.0 as usize >= limits.pages) {
        return violation(format!(
            "{who} names page {}, the cache has {}",
            page.0, limits.pages
        ));
    }
    let capacity = pages.len() * limits.page_tokens;
    if capacity < positions {
        let count = pages.len();
        return violation(format!(
            "{who} has {count} pages for {capacity} positions, needs {positions}"
        ));
    }
    Ok(())
}

/// Pages that one row or image of the step writes; no other may.
struct WrittenPages(Vec<bool>);

impl WrittenPages {
    fn add(&mut self, who: &str, pages: &[PageId]) -> Result<(), BackendError> {
        for page in pages {
            if std::mem::replace(&mut self.0[page.0 as usize], true) {
                return violation(format!(
                    "{who} writes page {}, which the step already writes",
                    page.0
                ));
            }
        }
        Ok(())
    }
}

fn at_most(what: &str, found: usize, limit: usize) -> Result<(), BackendError> {
    if found > limit {
        return violation(format!(
            "the step has {found} {what}, the backend accepts {limit}"
        ));
    }
    Ok(())
}

fn violation<T>(message: String) -> Result<T, BackendError> {
    Err(BackendError::Step(message))
}
