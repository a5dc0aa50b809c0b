//! Golden answers of networks with adapters, on any backend.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use super::{
    golden_model::{SequenceRun, UnusedPages, config, job, picture, run_to_ends, sequence},
    json, whole_golden_set,
};
use crate::{
    model::{AdapterFile, SequenceOutput},
    scheduler::{
        backend::{AdapterNumber, Backend, ImageJob, KvTable, LoadedAdapter, PageId},
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
        let prefix_positions = backend.limits().prefix_positions;
        let mut pages = UnusedPages::of(backend);
        let prefixes = self.expected.iter().map(|_| pages.take(prefix_positions));
        let prefixes: Vec<Arc<[PageId]>> = prefixes.collect();
        let runs = calls.iter().map(|call| SequenceRun {
            sequence: call.sequence.clone(),
            position: prefix_positions,
            kv: KvTable {
                prefix: Arc::clone(&prefixes[call.adapter]),
                prefix_positions,
                own: pages.take(160),
            },
            adapter: self.expected[call.adapter].0.clone(),
        });
        let runs = runs.collect();
        let wanted = |adapter: usize| calls.iter().any(|call| call.adapter == adapter);
        let jobs = self.expected.iter().enumerate();
        let jobs = jobs.filter(|(index, _)| wanted(*index));
        let images = jobs.map(|(index, (adapter, _))| ImageJob {
            pages: Arc::clone(&prefixes[index]),
            adapter: adapter.clone(),
            ..job(backend, picture(&self.network, image))
        });
        let images = images.collect();
        run_to_ends(backend, images, runs, |pick| pick)
    }
}
