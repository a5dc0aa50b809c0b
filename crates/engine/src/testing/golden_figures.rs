//! The small golden sets on a backend that can be looked into: errors of its tensors and its decisions on the reference's way.
//!
//! Belongs here: which tensor is compared with which, and what the sets know of the reference in bf16. Not here: what the
//! errors are held to, which depends on the backend's arithmetic, and so is with its tests.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    Tensors,
    figures::Figures,
    golden_model::picture,
    golden_report::Report,
    golden_run::{Ask, Depth, Inside, ReferenceRun, follow, prefill},
    json, tensors,
};
use crate::model::ModelConfig;

/// Of `got`, `[units, rows, width]`, what the set holds of the image's tensor `name`, and that. It may hold fewer units (the
/// first ones), or be stored as `name.rows`: only the rows that the tensor `image.rows` lists. `None` where it holds nothing.
pub fn stage<'a>(
    golden: &'a Tensors,
    image: &str,
    name: &str,
    got: &[f32],
    rows: usize,
) -> Option<(Vec<f32>, &'a [f32])> {
    let key = format!("{image}.{name}");
    if let Some((_, want)) = golden.get(&key) {
        return Some((got[..want.len()].to_vec(), want));
    }
    let (shape, want) = golden.get(&format!("{key}.rows"))?;
    let picked = &golden[&format!("{image}.rows")].1;
    let width = shape[shape.len() - 1];
    let units = want.len() / (picked.len() * width);
    let got = got.chunks_exact(rows * width).take(units).flat_map(|unit| {
        let row = |&row: &f32| &unit[row as usize * width..][..width];
        picked.iter().flat_map(row)
    });
    Some((got.copied().collect(), want))
}

/// Which results of a set.
#[derive(Clone, Copy, Debug)]
pub struct GoldenResults {
    folder: &'static str,
    /// Place of the errors of the reference's run in bf16.
    bf16_errors: &'static str,
}

impl GoldenResults {
    pub const ONLY: Self = Self {
        folder: "expected",
        bf16_errors: "/bfloat16_vs_f32/groups",
    };
    /// Of `md3-lora-tiny` without an adapter.
    pub const NO_ADAPTER: Self = Self {
        folder: "expected/none",
        bf16_errors: "/bf16_vs_f32/none/groups",
    };
    /// Of `md3-fp8-tiny`: experts in e4m3 beside inputs as they are.
    pub const E4M3: Self = Self {
        folder: "expected",
        bf16_errors: "/dequantised/bf16_vs_f32/groups",
    };

    /// Errors of the reference's run in bf16 by kind of tensor, and none of ours yet.
    pub fn reference_figures(self, set: &Path) -> Figures {
        let mut figures = Figures::default();
        let tolerances = json(&set.join("expected/tolerances.json"));
        let groups = tolerances.pointer(self.bf16_errors).unwrap();
        for (kind, errors) in groups.as_object().unwrap() {
            // Some sets name a kind like its tensors.
            let kind = match kind.trim_end_matches(".out") {
                "cases.prompt_block" => "cases.prompt_hidden",
                kind => kind,
            };
            let number = |key: &str| errors[key].as_f64();
            figures.reference(kind, number("max_rel_to_rms"), number("rms_rel"));
        }
        figures
    }
}

/// What a small set holds; its cases' tensors are read one by one.
pub struct SmallSet {
    set: PathBuf,
    results: GoldenResults,
    cases: Value,
    vision: Tensors,
    text: Tensors,
    /// Of the reference's run in bf16, which may not be there.
    bf16: Tensors,
    /// Outputs of that, by case.
    runs: Value,
}

impl SmallSet {
    /// Of the set in this folder. What these results do not have is among the set's others.
    pub fn read(set: &Path, results: GoldenResults) -> Self {
        let file = |name: &str| {
            let mut folders = [results.folder, "expected"].into_iter();
            folders.find_map(|f| Some(set.join(f).join(name)).filter(|path| path.is_file()))
        };
        let read = |name: &str| file(name).map(|path| tensors(&path)).unwrap_or_default();
        Self {
            set: set.to_owned(),
            results,
            cases: json(&set.join(results.folder).join("cases.json")),
            vision: read("vision.safetensors"),
            text: read("text.safetensors"),
            bf16: read("bf16.safetensors"),
            runs: file("bf16.json").map_or(Value::Null, |path| json(&path)),
        }
    }

    pub fn images(&self) -> impl Iterator<Item = &str> {
        let images = self.by_image().into_keys();
        images.flatten()
    }

    /// All cases but those with references to places, image by image; `None` for those without an image.
    fn by_image(&self) -> BTreeMap<Option<&str>, Vec<(&String, &Value)>> {
        let mut by_image: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, case) in self.cases.as_object().unwrap() {
            if case["case"]["args"].get("spatial_refs").is_none() {
                let image = case["case"]["image"].as_str();
                let cases = by_image.entry(image).or_default();
                cases.push((name, &case["expected"]));
            }
        }
        by_image
    }

    /// All images and cases.
    pub fn report<B: Inside>(&self, backend: &mut B, config: &ModelConfig) -> Report {
        let mut report = Report {
            figures: self.results.reference_figures(&self.set),
            ..Report::default()
        };
        for (image, cases) in self.by_image() {
            if let Some(image) = image {
                self.image(backend, image, config, &mut report.figures);
            }
            for (name, expected) in cases {
                let followed = follow(backend, expected, config, image.is_none());
                self.case(name, &followed, &mut report.figures);
                // No errors of the reference in bf16 are known for logits of bins; those of tokens stand for them.
                let error = report.figures.reference_max("cases.first_logits");
                let run = self.runs.get(name).map(|run| &run["output"]);
                report.count((name, expected), &followed, [error; 2], run, config);
            }
        }
        report
    }

    /// Features, tokens, and keys and values of the first and the last layer.
    fn image<B: Inside>(
        &self,
        backend: &mut B,
        image: &str,
        config: &ModelConfig,
        figures: &mut Figures,
    ) {
        let (tokens, positions) = (config.image_tokens(), config.prefix_positions());
        let picture = picture(&self.set, image);
        prefill(backend, &picture);
        let [features, embedded] = backend.image(&picture);
        let features = as_encoded(features, config);
        let mut add = |kind: &str, of: &Tensors, name: &str, got: &[f32], rows: usize| {
            if let Some((got, want)) = stage(of, image, name, got, rows) {
                figures.add(kind, &got, want);
                self.add_run(figures, kind, &format!("{image}.{name}"), want);
            }
        };
        add("vision.enc_out", &self.vision, "enc_out", &features, tokens);
        add("vision.img_emb", &self.vision, "img_emb", &embedded, tokens);
        for layer in [0, config.text.n_layers - 1] {
            let [keys, values] = backend.prefix(layer);
            add("text.k", &self.text, &format!("k{layer}"), &keys, positions);
            add(
                "text.v",
                &self.text,
                &format!("v{layer}"),
                &values,
                positions,
            );
        }
    }

    /// Adds states of an image, where the set holds some of that depth.
    pub fn add_depth(
        &self,
        figures: &mut Figures,
        image: &str,
        depth: Depth,
        states: &[f32],
        config: &ModelConfig,
    ) {
        let twice = || as_encoded(states.to_vec(), config);
        let (kind, of, name, states) = match depth {
            Depth::Encoder(0) => (
                "vision.tokens_in",
                &self.vision,
                "tokens_in".to_owned(),
                twice(),
            ),
            Depth::Encoder(blocks) => (
                "vision.block",
                &self.vision,
                format!("block{}.out", blocks - 1),
                twice(),
            ),
            Depth::Decoder(block) => (
                "text.block",
                &self.text,
                format!("block{block}.out"),
                states.to_vec(),
            ),
        };
        let rows = match depth {
            Depth::Encoder(_) => config.image_tokens(),
            Depth::Decoder(_) => config.prefix_positions(),
        };
        let Some((got, want)) = stage(of, image, &name, &states, rows) else {
            return;
        };
        figures.add(kind, &got, want);
        if depth == Depth::Decoder(config.text.n_layers - 1) {
            figures.add("text.last_block", &got, want);
            self.add_run(
                figures,
                "text.last_block",
                &format!("{image}.text_last_block.out"),
                want,
            );
        }
    }

    /// Adds a tensor of the reference's run in bf16, where that is there and holds the same rows.
    fn add_run(&self, figures: &mut Figures, kind: &str, key: &str, want: &[f32]) {
        if let Some((_, run)) = self
            .bf16
            .get(key)
            .filter(|(_, run)| run.len() == want.len())
        {
            figures.reference_run(kind, run, want);
        }
    }

    /// Hidden states of the prompt and all logits. The part of a set in `tests/golden` has the tensors of some cases.
    fn case(&self, name: &str, followed: &ReferenceRun, figures: &mut Figures) {
        let cases = self.set.join(self.results.folder).join("cases");
        let path = cases.join(format!("{name}.safetensors"));
        if !path.is_file() {
            return;
        }
        let tensors = tensors(&path);
        let blocks = (0..).map_while(|i| tensors.get(&format!("prompt_block{i}.out")));
        if let Some((_, want)) = blocks.last() {
            figures.add("cases.prompt_hidden", &followed.prompt, want);
        }
        for seen in &followed.seen {
            let (kind, keys, row): (_, &[&str], _) = match seen.ask {
                Ask::X(object) => ("cases.x_logits", &["x_logits"], object),
                Ask::Y(object) => ("cases.y_logits", &["y_logits"], object),
                Ask::Size(object) => ("cases.size_logits", &["size_logits"], object),
                Ask::Token(row) => {
                    let keys = &["reasoning.logits", "answer.logits", "decision_logits"];
                    ("cases.token_logits", keys, row)
                }
            };
            let stored = keys.iter().find_map(|key| tensors.get(*key));
            let (_, want) = stored.unwrap_or_else(|| panic!("{name} has no {kind}"));
            let want = &want[row * seen.logits.len()..][..seen.logits.len()];
            figures.add(kind, &seen.logits, want);
            if seen.ask == Ask::Token(0) {
                figures.add("cases.first_logits", &seen.logits, want);
                self.add_run(
                    figures,
                    "cases.first_logits",
                    &format!("{name}.first_logits"),
                    want,
                );
            }
        }
    }
}

/// `[crops, image tokens, encoder's width]` as the reference has it, which encodes a single tile twice.
fn as_encoded(states: Vec<f32>, config: &ModelConfig) -> Vec<f32> {
    let crop = config.image_tokens() * config.vision.enc_dim;
    states.repeat(if states.len() == crop { 2 } else { 1 })
}
