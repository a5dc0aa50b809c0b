//! Golden answers of networks with adapters, on any backend.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use super::{
    golden_model::{config, picture, run_step, sequence},
    json, whole_golden_set,
};
use crate::{
    model::{AdapterFile, SequenceOutput},
    scheduler::{
        backend::{
            AdapterNumber, Backend, Feed, ImageJob, KvTable, LoadedAdapter, PageId, Row, Step,
        },
        sequence::Sequence,
    },
};

pub type Adapter = Option<Arc<LoadedAdapter>>;

/// The reference looks for the end of an answer when it has as many objects as it may have; an engine does not.
fn past_the_end(case: &Value) -> Value {
    let mut case = case.clone();
    let most = case["case"]["settings"]["max_objects"].as_u64();
    if let ("eos", Some(most)) = (case["expected"]["ended_by"].as_str().unwrap_or(""), most) {
        case["case"]["settings"]["max_objects"] = (most + 1).into();
    }
    case
}

/// Answers of the reference, with what gives them.
pub struct AdapterSet {
    /// Has network, tokenizer and pictures.
    pub network: PathBuf,
    /// Of each adapter, and none: the folder of its results.
    pub expected: Vec<(Adapter, PathBuf)>,
}

fn load(network: &Path, file: &Path, number: u32) -> Adapter {
    let opened = AdapterFile::open(file, &config(network)).unwrap();
    Some(Arc::new(LoadedAdapter {
        number: AdapterNumber(number),
        weights: opened.load().unwrap(),
    }))
}

/// A variant of the network of `md2-micro`, and the network as it is.
pub fn of_variant(network: PathBuf, variant: &Path, file: &str) -> AdapterSet {
    let adapter = load(&network, &variant.join(file), 1);
    AdapterSet {
        expected: vec![
            (None, network.join("expected")),
            (adapter, variant.join("expected")),
        ],
        network,
    }
}

pub fn of_moondream3(kind: &str) -> AdapterSet {
    let network = whole_golden_set("md3-lora-tiny");
    let file = |name: &str| network.join(format!("adapters/{name}.{kind}"));
    let folder = |name: &str| network.join("expected").join(name);
    AdapterSet {
        expected: vec![
            (None, folder("none")),
            (load(&network, &file("a"), 1), folder("a")),
            (load(&network, &file("b"), 2), folder("b")),
        ],
        network,
    }
}

/// A call of the reference.
pub struct Call {
    pub name: String,
    pub expected: Value,
    /// Its adapter's index in the set.
    pub adapter: usize,
    pub sequence: Sequence,
}

impl AdapterSet {
    pub fn calls(&self, image: &str) -> Vec<Call> {
        let config = config(&self.network);
        let mut calls = Vec::new();
        for (adapter, (_, folder)) in self.expected.iter().enumerate() {
            let cases = json(&folder.join("cases.json"));
            let cases = cases.as_object().unwrap().iter();
            let asked = cases.filter(|(_, case)| case["case"]["image"] == image);
            calls.extend(asked.map(|(name, case)| Call {
                name: format!("{}/{name}", folder.display()),
                expected: case["expected"].clone(),
                adapter,
                sequence: sequence(&past_the_end(case), &config),
            }));
        }
        calls
    }

    /// Runs all calls at an image to their ends, all that have not ended in every step. The image is encoded for each adapter that they
    /// have.
    pub fn run(
        &self,
        backend: &mut dyn Backend,
        image: &str,
        calls: &[&Call],
    ) -> Vec<SequenceOutput> {
        let limits = backend.limits();
        let mut next_page = 0;
        let mut pages = |positions: usize| -> Vec<PageId> {
            let first = next_page;
            next_page += positions.div_ceil(limits.page_tokens) as u32;
            (first..next_page).map(PageId).collect()
        };
        let prefixes: Vec<Arc<[PageId]>> = (self.expected.iter())
            .map(|_| pages(limits.prefix_positions).into())
            .collect();
        let tables: Vec<KvTable> = calls
            .iter()
            .map(|call| KvTable {
                prefix: Arc::clone(&prefixes[call.adapter]),
                prefix_positions: limits.prefix_positions,
                own: pages(160),
            })
            .collect();
        let wanted = |adapter: usize| calls.iter().any(|call| call.adapter == adapter);
        let jobs = self.expected.iter().enumerate();
        let jobs = jobs.filter(|(index, _)| wanted(*index));
        let mut images: Vec<ImageJob> = jobs
            .map(|(index, (adapter, _))| ImageJob {
                picture: picture(&self.network, image),
                view: Default::default(),
                camera: None,
                pages: Arc::clone(&prefixes[index]),
                crops: Vec::new(),
                adapter: adapter.clone(),
            })
            .collect();
        let mut sequences: Vec<Sequence> = calls.iter().map(|call| call.sequence.clone()).collect();
        let mut positions = vec![limits.prefix_positions; calls.len()];
        loop {
            let mut running = Vec::new();
            let mut rows = Vec::new();
            for (i, sequence) in sequences.iter().enumerate() {
                let Some(feed) = sequence.feed() else {
                    continue;
                };
                running.push((i, feed.inputs.len()));
                rows.push(Row {
                    inputs: Feed::Host(feed.inputs),
                    position: positions[i],
                    kv: tables[i].clone(),
                    picks: vec![feed.pick],
                    adapter: self.expected[calls[i].adapter].0.clone(),
                });
            }
            if rows.is_empty() {
                return sequences.into_iter().map(Sequence::into_found).collect();
            }
            let images = std::mem::take(&mut images);
            let picked = run_step(backend, Step { images, rows }).picked;
            for ((i, fed), picked) in running.into_iter().zip(picked.concat()) {
                positions[i] += fed;
                sequences[i].advance(picked).unwrap();
            }
        }
    }
}
