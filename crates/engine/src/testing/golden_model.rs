//! Golden models on any backend: what a set holds, and its cases run to their ends without the engine.

use std::{path::Path, sync::Arc};

use serde_json::Value;

use crate::{
    model::{
        ConfigFile, FamilyClues, ModelConfig, SequenceOutput, Skill, Weights, WeightsError,
        WeightsFile,
    },
    scheduler::{
        backend::{
            Backend, DecoderInput, Feed, ImageJob, KvTable, LoadedAdapter, PageId, Pick, Row,
            SlotId, Step, StepResult,
        },
        sequence::{Bounds, Sequence},
    },
};
use spotter_core::Picture;

/// Dimensions of the model of a set.
pub fn config(set: &Path) -> ModelConfig {
    let weights = WeightsFile::open(&set.join("model.safetensors"));
    let tensors = weights.map(|file| file.names().map(str::to_owned).collect());
    let tensors: Vec<String> = tensors.unwrap_or_default();
    let json = String::from_utf8(super::bytes(&set.join("config.json"))).unwrap();
    let config = ConfigFile {
        json: &json,
        origin: "config.json",
        tensors: &tensors,
    };
    let clues = FamilyClues {
        recorded: None,
        config,
    };
    clues.parse().unwrap()
}

pub fn weights(set: &Path, config: &ModelConfig) -> Weights {
    weights_in(&set.join("model.safetensors"), config).unwrap()
}

pub fn weights_in(file: &Path, config: &ModelConfig) -> Result<Weights, WeightsError> {
    let file = WeightsFile::open(file)?;
    let mut file = file.renamed(&|name| config.family.own_name(name))?;
    Weights::load(config, &mut file)
}

/// One of its pictures.
pub fn picture(set: &Path, image: &str) -> Picture {
    let path = set.join("images").join(format!("{image}.png"));
    spotter_pictures::read(&path).unwrap()
}

/// Pages of the image prefix, and of row `row`: 160 positions.
pub fn pages(backend: &dyn Backend, row: usize) -> (Arc<[PageId]>, Vec<PageId>) {
    let limits = backend.limits();
    let prefix = limits.prefix_positions.div_ceil(limits.page_tokens) as u32;
    let own = 160_usize.div_ceil(limits.page_tokens) as u32;
    let first = prefix + row as u32 * own;
    (
        (0..prefix).map(PageId).collect(),
        (first..first + own).map(PageId).collect(),
    )
}

/// Where the KV of row `row` is, behind an image.
pub fn kv(backend: &dyn Backend, row: usize) -> KvTable {
    let (prefix, own) = pages(backend, row);
    KvTable {
        prefix,
        prefix_positions: backend.limits().prefix_positions,
        own,
    }
}

/// The same without an image.
pub fn alone(backend: &dyn Backend, row: usize) -> KvTable {
    KvTable {
        own: pages(backend, row).1,
        ..KvTable::default()
    }
}

/// Row `index`, `after` positions behind the image.
pub fn row(backend: &dyn Backend, index: usize, after: usize, inputs: Feed, picks: &[Pick]) -> Row {
    let kv = kv(backend, index);
    Row {
        inputs,
        position: kv.prefix_positions + after,
        kv,
        picks: picks.to_vec(),
        adapter: None,
    }
}

/// A prompt in the pages of row `index`, behind the image.
pub fn prompt(backend: &dyn Backend, index: usize, ids: &[u32], pick: Pick) -> Row {
    row(backend, index, 0, Feed::Host(tokens(ids)), &[pick])
}

/// A step of rows alone.
pub fn step_of(rows: Vec<Row>) -> Step {
    Step {
        images: Vec::new(),
        rows,
    }
}

/// Runs a step alone, in slot 0.
pub fn run_step(backend: &mut dyn Backend, step: Step) -> StepResult {
    backend.launch(SlotId(0), step).unwrap();
    backend.commit(SlotId(0)).unwrap()
}

/// Inputs of these ids.
pub fn tokens(ids: &[u32]) -> Vec<DecoderInput> {
    ids.iter().copied().map(DecoderInput::Token).collect()
}

/// Runs sequences to their ends, all that are not finished in every step, the image in the first.
pub fn run(
    backend: &mut dyn Backend,
    picture: Option<Picture>,
    sequences: Vec<Sequence>,
) -> Vec<SequenceOutput> {
    let image = picture.map(|picture| job(backend, picture));
    run_with(backend, image, sequences, |pick| pick)
}

/// A picture of no camera, whose prefix comes where all rows look for it.
pub fn job(backend: &dyn Backend, picture: Picture) -> ImageJob {
    ImageJob {
        view: Default::default(),
        camera: None,
        picture,
        pages: pages(backend, 0).0,
        crops: Vec::new(),
        adapter: None,
    }
}

/// The same with other decisions than the sequences ask for.
pub fn run_with(
    backend: &mut dyn Backend,
    image: Option<ImageJob>,
    sequences: Vec<Sequence>,
    instead: fn(Pick) -> Pick,
) -> Vec<SequenceOutput> {
    let kv_of = |i| match image {
        None => alone(backend, i),
        Some(_) => kv(backend, i),
    };
    let runs = sequences.into_iter().enumerate();
    let runs = runs.map(|(i, sequence)| SequenceRun {
        position: kv_of(i).prefix_positions,
        kv: kv_of(i),
        sequence,
        adapter: None,
    });
    let runs = runs.collect();
    run_to_ends(backend, image.into_iter().collect(), runs, instead)
}

/// A sequence on a backend.
pub struct SequenceRun {
    pub sequence: Sequence,
    /// Of its next input.
    pub position: usize,
    pub kv: KvTable,
    pub adapter: Option<Arc<LoadedAdapter>>,
}

/// Runs sequences to their ends, all that are not finished in every step, the images in the first.
pub fn run_to_ends(
    backend: &mut dyn Backend,
    mut images: Vec<ImageJob>,
    mut runs: Vec<SequenceRun>,
    instead: fn(Pick) -> Pick,
) -> Vec<SequenceOutput> {
    loop {
        let mut rows = Vec::new();
        let mut running = Vec::new();
        for run in &mut runs {
            let Some(feed) = run.sequence.feed() else {
                continue;
            };
            let fed = feed.inputs.len();
            rows.push(Row {
                inputs: Feed::Host(feed.inputs),
                position: run.position,
                kv: run.kv.clone(),
                picks: vec![instead(feed.pick)],
                adapter: run.adapter.clone(),
            });
            running.push((run, fed));
        }
        if rows.is_empty() {
            let found = runs.into_iter().map(|run| run.sequence.into_found());
            return found.collect();
        }
        let images = std::mem::take(&mut images);
        let committed = run_step(backend, Step { images, rows });
        for ((run, fed), picked) in running.into_iter().zip(committed.picked.concat()) {
            run.position += fed;
            run.sequence.advance(picked).unwrap();
        }
    }
}

/// Pages that nothing uses, from the first one on.
pub struct UnusedPages {
    next: u32,
    page_tokens: usize,
}

impl UnusedPages {
    pub fn of(backend: &dyn Backend) -> Self {
        Self {
            next: 0,
            page_tokens: backend.limits().page_tokens,
        }
    }

    /// For so many positions.
    pub fn take<T: FromIterator<PageId>>(&mut self, positions: usize) -> T {
        let first = self.next;
        self.next += positions.div_ceil(self.page_tokens) as u32;
        (first..self.next).map(PageId).collect()
    }
}

/// Places of a call as the decoder reads them.
pub fn places(args: &Value) -> Vec<DecoderInput> {
    let places = args["spatial_refs"].as_array().into_iter().flatten();
    let inputs = places.flat_map(|place| {
        let place: Vec<f32> = serde_json::from_value(place.clone()).unwrap();
        match place.as_slice() {
            [x, y] => vec![DecoderInput::Coord(*x), DecoderInput::Coord(*y)],
            [x0, y0, x1, y1] => vec![
                DecoderInput::Coord((x0 + x1) / 2.0),
                DecoderInput::Coord((y0 + y1) / 2.0),
                DecoderInput::Size(x1 - x0, y1 - y0),
            ],
            _ => panic!("{place:?}"),
        }
    });
    inputs.collect()
}

/// A case, with the ids of its prompt.
pub fn sequence(case: &Value, config: &ModelConfig) -> Sequence {
    let args = &case["case"]["args"];
    let skill = match case["case"]["skill"].as_str().unwrap() {
        "detect" => Skill::Detect,
        "point" => Skill::Point,
        "segment" => Skill::Segment,
        _ if args["reasoning"] == true => Skill::ReasonedText,
        _ => Skill::Text,
    };
    let ids: Vec<u32> = serde_json::from_value(case["expected"]["prompt_ids"].clone()).unwrap();
    // The reference has placeholder ids where places are.
    let mut places = places(args).into_iter();
    let holders = [config.tokenizer.coord_id, config.tokenizer.size_id];
    let input = |id| match holders.contains(&id) {
        true => places.next().unwrap(),
        false => DecoderInput::Token(id),
    };
    let inputs = ids.into_iter().map(input).collect();
    let setting = |key: &str| case["case"]["settings"][key].as_u64().unwrap_or(50) as usize;
    let bounds = Bounds {
        max_objects: setting("max_objects"),
        max_tokens: setting("max_tokens"),
    };
    Sequence::new(config.grammar(skill), inputs, bounds)
}
