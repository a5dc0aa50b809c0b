//! What a commit means: decisions are given to their sequences, answers become events at once, pages are released. Pure.

use super::{
    backend::{PickResult, RowMask, StepResult},
    batch::{RowRecord, StepRecord},
    decision::Decision,
    draft,
    job::JobState,
    request::{LookEvent, LookFault, PromptResult},
    sequence::UnexpectedPick,
    still::KnownAnswer,
    working_set::WorkingSet,
};
use spotter_core::Mono;

/// The masks of a step, for a model with `vocab` tokens. Rows that ended meanwhile get none.
pub(super) fn masks(inside: &WorkingSet, record: &StepRecord, vocab: usize) -> Vec<RowMask> {
    let mut masks = Vec::new();
    for (row, launched) in record.rows.iter().enumerate() {
        let Some(i) = inside.active.index_of(launched.job) else {
            continue;
        };
        let job = inside.active.at(i);
        if job.state != JobState::Finalized && job.sequence.wants_mask() {
            let mask = job.sequence.mask(vocab);
            masks.push(RowMask { row, mask });
        }
    }
    masks
}

/// Settles the results of a step. A row whose decision is none that it can have fails its look.
pub(super) fn settle(
    inside: &mut WorkingSet,
    record: &StepRecord,
    results: &StepResult,
    now: Mono,
) {
    inside.work.crops_encoded += results.crops_encoded as u64;
    inside.work.crops_reused += results.crops_reused as u64;
    share_time(inside, record, results);
    for (image, size) in record.images.iter().zip(&results.model_sizes) {
        if let Some(look) = inside.admission.get_mut(image.look) {
            look.model_size = *size;
            look.image_times = Some(results.times);
        }
    }
    for (index, row) in record.rows.iter().enumerate() {
        let Some(i) = inside.active.index_of(row.job) else {
            continue;
        };
        let picked = results.picked.get(index).map_or(&[][..], Vec::as_slice);
        match advance(inside, i, row, picked) {
            Ok(false) => {}
            Ok(true) => {
                mark(inside, i, record.launched, now);
                report_pieces(inside, i);
                if inside.active.at(i).sequence.has_ended() {
                    finish(inside, i, now);
                }
                inside.report_end(row.job.0);
            }
            Err(unexpected) => {
                inside.fail_look(row.job.0, LookFault::Step(unexpected.to_string()));
            }
        }
    }
    inside.sweep();
}

/// Adds the step, and the device's time for it, to its looks: of the images by their pixels, of the rows in equal parts.
fn share_time(inside: &mut WorkingSet, record: &StepRecord, results: &StepResult) {
    let times = &results.times;
    let pixels = |size: &(u32, u32)| f64::from(size.0) * f64::from(size.1);
    let all_pixels: f64 = results.model_sizes.iter().map(pixels).sum();
    let of_images = times.prepare + times.encode;
    let of_row = (times.rows + times.sampling) / record.rows.len().max(1) as u32;
    inside.work.busy += times.prepare + times.encode + times.rows + times.sampling;
    inside.settled += 1;
    for (image, size) in record.images.iter().zip(&results.model_sizes) {
        if let Some(look) = inside.admission.get_mut(image.look) {
            look.device_time += of_images.mul_f64(pixels(size) / all_pixels.max(1.0));
        }
    }
    // The rows of a look are neighbours mostly, and so found at once.
    for rows in record.rows.chunk_by(|a, b| a.job.0 == b.job.0) {
        if let Some(look) = inside.admission.get_mut(rows[0].job.0) {
            look.device_time += of_row * rows.len() as u32;
            look.steps += u32::from(look.last_step != inside.settled);
            look.last_step = inside.settled;
        }
    }
}

/// Gives the row's decisions to the sequence of job `i`; false when the row was a zombie.
fn advance(
    inside: &mut WorkingSet,
    i: usize,
    row: &RowRecord,
    picked: &[PickResult],
) -> Result<bool, UnexpectedPick> {
    let job = inside.active.at_mut(i);
    job.committed();
    if job.state == JobState::Finalized {
        return Ok(false);
    }
    let decided: Vec<_> = picked.iter().map(|picked| Decision::of(*picked)).collect();
    let drafted = row.draft.as_deref().unwrap_or_default();
    if picked.is_empty() {
        job.sequence.advance(PickResult::Nothing)?;
    }
    let accepted = draft::accepted(drafted, &decided);
    for picked in &picked[..(accepted + 1).min(picked.len())] {
        job.sequence.advance(*picked)?;
        if job.sequence.has_ended() {
            break;
        }
    }
    if row.draft.is_some() {
        let guess = decided.iter().skip(accepted + 1).map_while(|d| *d);
        job.verified(drafted.len(), accepted, guess.collect());
        inside.work.accepted += accepted as u64;
    }
    Ok(true)
}

/// Counts what is new of the answer, and reports it if the prompt is in pieces.
fn report_pieces(inside: &mut WorkingSet, i: usize) {
    let job = inside.active.at_mut(i);
    let (id, prompt) = job.id;
    let found = job.sequence.found();
    // An evicted job that starts again has reported more than its sequence has.
    let reported = job.reported.max(found.length());
    inside.work.objects += (reported.objects - job.reported.objects) as u64;
    if job.in_pieces {
        let pieces = found.pieces_after(job.reported);
        let event = |piece| LookEvent::Piece(id, prompt, piece);
        inside.events.extend(pieces.map(event));
    }
    job.reported = reported;
}

/// Notes when the stages of job `i` ended.
fn mark(inside: &mut WorkingSet, i: usize, launched: Mono, now: Mono) {
    let job = inside.active.at_mut(i);
    let Some(look) = inside.admission.get(job.id.0) else {
        return;
    };
    let marks = &mut job.marks;
    if marks.prefilled == Mono::default() {
        let image = look.image_times.unwrap_or_default();
        marks.taken = look.started.unwrap_or(launched);
        marks.prepared = image.started.max(marks.taken).after(image.prepare).min(now);
        marks.encoded = marks.prepared.after(image.encode).min(now);
        marks.prefilled = now;
    }
    marks.generated = now;
}

/// Job `i` has its answer, which is reported; the row leaves when no step carries it any more.
fn finish(inside: &mut WorkingSet, i: usize, now: Mono) {
    let job = inside.active.at_mut(i);
    job.state = JobState::Finalized;
    let (id, prompt) = job.id;
    let (key, decisions) = (job.draft_key.take(), job.sequence.decisions().to_vec());
    let first_inputs = job.first_inputs();
    let (is_text, has_follow_up) = (job.is_text, job.has_follow_up);
    let mut result = PromptResult {
        found: job.sequence.found().clone(),
        tokens: job.token_counts(),
        marks: job.marks,
        unchanged: false,
    };
    let Some(look) = inside.admission.get_mut(id) else {
        return;
    };
    result.marks.device = look.device_time - look.reported_time;
    look.reported_time = look.device_time;
    look.unanswered.remove(is_text);
    if has_follow_up {
        look.open_follow_up(prompt, now);
    }
    let measured = look.request.measured.as_ref();
    if let (Some(key), Some(measured), Some(image)) = (&key, measured, look.image) {
        let answer = KnownAnswer {
            prompt: first_inputs,
            found: result.found.clone(),
        };
        (inside.kept).remember_answer(&measured.view, image, key.clone(), answer);
    }
    inside.events.push(LookEvent::Answer {
        look: id,
        prompt,
        result,
        model_size: look.model_size,
    });
    if let Some(key) = key {
        inside.admission.remember_answer(key, decisions);
    }
}
