//! Drawn scenes as pictures with labels, in the forms that `spotter eval` reads.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{
    clip::{Clip, HEIGHT, WIDTH},
    progress::ProgressLine,
};
use spotter_core::Task;
use spotter_engine::model;
use spotter_pictures::{RgbPixels, png_file};
use spotter_street::{
    questions::{ExpectedAnswer, questions},
    truth,
    truth::{SeenObject, Truth, Visibility},
};

pub struct LabelOptions {
    pub folder: PathBuf,
    pub scenes: u64,
    /// Seed of the first; the others follow.
    pub first_seed: u64,
    /// Rate of the H.264 that every scene passes through; `None` for clean drawings.
    pub kbit_per_s: Option<u32>,
}

/// Writes a PNG for each scene, `labels.json` with its objects and `questions.jsonl` with its questions. Blocks.
pub fn write_labels(options: &LabelOptions, progress: &mut ProgressLine) -> anyhow::Result<()> {
    let folder = &options.folder;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let mut categories: Vec<&'static str> = Vec::new();
    let (mut images, mut annotations, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..options.scenes {
        let seed = options.first_seed.wrapping_add(index);
        let clip = Clip::new(seed);
        let truth = truth(clip.last());
        let file = format!("scene-{index:05}.png");
        write_picture(&folder.join(&file), clip, options.kbit_per_s)
            .with_context(|| format!("scene {seed}"))?;
        for seen in &truth.seen {
            let name = seen.class.name();
            let category = categories.iter().position(|known| *known == name);
            let category = category.unwrap_or_else(|| {
                categories.push(name);
                categories.len() - 1
            });
            annotations.push(annotation(annotations.len(), index, category, seen));
        }
        images.push(json!({"id": index, "file_name": file, "width": WIDTH, "height": HEIGHT}));
        write_questions(&mut lines, &file, &truth, seed)?;
        progress.step();
    }
    let names = categories.iter().enumerate();
    let categories: Vec<Value> = names
        .map(|(id, name)| json!({"id": id, "name": name}))
        .collect();
    let coco = json!({"images": images, "annotations": annotations, "categories": categories});
    fs::write(folder.join("labels.json"), serde_json::to_vec(&coco)?)?;
    fs::write(folder.join("questions.jsonl"), lines)?;
    Ok(())
}

fn annotation(id: usize, image: u64, category: usize, seen: &SeenObject) -> Value {
    let (width, height) = (f64::from(WIDTH), f64::from(HEIGHT));
    let bounds = seen.box_in_frame;
    let (x, y) = (bounds.x0 * width, bounds.y0 * height);
    let size = [
        (bounds.x1 - bounds.x0) * width,
        (bounds.y1 - bounds.y0) * height,
    ];
    json!({
        "id": id,
        "image_id": image,
        "category_id": category,
        "bbox": [x, y, size[0], size[1]],
        "iscrowd": u8::from(seen.visibility == Visibility::Ignored),
    })
}

fn write_questions(
    lines: &mut Vec<u8>,
    picture: &str,
    truth: &Truth,
    seed: u64,
) -> anyhow::Result<()> {
    for question in questions(truth, seed) {
        if let (
            Task::Query {
                question, choices, ..
            },
            ExpectedAnswer::Text(answer),
        ) = (&question.task, &question.expected)
        {
            let line = json!({"picture": picture, "question": question, "answer": answer, "choices": choices});
            writeln!(lines, "{line}")?;
        }
    }
    Ok(())
}

fn write_picture(path: &Path, clip: Clip, kbit_per_s: Option<u32>) -> anyhow::Result<()> {
    let picture = clip.picture(kbit_per_s)?;
    let file = png_file(RgbPixels {
        rgb: &model::rgb_from_picture(&picture),
        width: picture.width(),
        height: picture.height(),
    })?;
    Ok(fs::write(path, file)?)
}
