//! `md2-full`, the golden set of true widths, on a backend that can be looked into. Its tensors are stored in part: some rows,
//! the first 64 values of each, norms of all rows.
//!
//! Belongs here: which part of which tensor is stored under which name. Small sets are in
//! [`golden_figures`](super::golden_figures).

use std::path::Path;

use serde_json::Value;

use super::{
    Tensors,
    figures::Figures,
    golden_model::picture,
    golden_report::Report,
    golden_run::{Ask, Depth, Inside, ReferenceRun, Seen, follow, prefill},
    json, tensors,
};
use crate::model::ModelConfig;

/// Values of a row that are stored.
const STORED: usize = 64;
/// Width of a head.
const HEAD: usize = 64;

/// What the set holds.
pub struct FullSet {
    golden: Tensors,
    /// `full.json`.
    about: Value,
    /// Rows stored of what has a row for each image token.
    token_rows: Vec<usize>,
    /// Rows stored of what has a row for each position of a prefix.
    positions: Vec<usize>,
    /// Tokens whose logits are stored.
    vocab_ids: Vec<usize>,
}

impl FullSet {
    /// The set in this folder.
    pub fn read(set: &Path) -> Self {
        let about = json(&set.join("expected/full.json"));
        let rows = |key: &str| serde_json::from_value(about[key].clone()).unwrap();
        Self {
            golden: tensors(&set.join("expected/full.safetensors")),
            token_rows: rows("token_rows"),
            positions: rows("text_positions"),
            vocab_ids: rows("vocab_ids"),
            about,
        }
    }

    pub fn images(&self) -> impl Iterator<Item = &str> {
        let images = self.about["images"].as_object().unwrap();
        images.keys().map(String::as_str)
    }

    /// The largest errors that the reference's run in bf16 has, by kind of tensor; others are not stored.
    fn figures(set: &Path) -> Figures {
        let mut figures = Figures::default();
        let tolerances = json(&set.join("expected/tolerances_bf16_vs_f32.json"));
        for (kind, max) in tolerances["max_abs_over_rms"].as_object().unwrap() {
            figures.reference(kind, max.as_f64(), None);
        }
        figures
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
        let (kind, rows, width) = match depth {
            Depth::Encoder(0) => return,
            Depth::Encoder(blocks) => {
                let kind = format!("vision_block{}.crop0", blocks - 1);
                (kind, &self.token_rows, config.vision.enc_dim)
            }
            Depth::Decoder(block) => (
                format!("text_block{block}"),
                &self.positions,
                config.text.dim,
            ),
        };
        let holds = |kind: &str| self.golden.contains_key(&format!("{image}.{kind}"));
        if holds(&kind) {
            self.add(figures, image, &kind, &corner(states, rows, width));
        }
        let kind = format!("{kind}.norms");
        if holds(&kind) {
            self.add(figures, image, &kind, &norms(states, width));
        }
    }

    /// Adds a tensor of an image, already cut to what is stored.
    fn add(&self, figures: &mut Figures, image: &str, kind: &str, got: &[f32]) {
        let (_, want) = &self.golden[&format!("{image}.{kind}")];
        figures.add(kind, got, want);
    }

    /// All images and cases.
    pub fn report<B: Inside>(&self, backend: &mut B, set: &Path, config: &ModelConfig) -> Report {
        let mut report = Self::nothing(set);
        for image in self.images() {
            prefill(backend, &picture(set, image));
            self.add_image(backend, (set, image), config, &mut report);
        }
        report
    }

    /// Nothing is compared yet.
    pub fn nothing(set: &Path) -> Report {
        Report {
            figures: Self::figures(set),
            ..Report::default()
        }
    }

    /// Adds an image, the last one of which [`prefill`] or another step made the prefix, and all of its cases.
    pub fn add_image<B: Inside>(
        &self,
        backend: &mut B,
        (set, image): (&Path, &str),
        config: &ModelConfig,
        report: &mut Report,
    ) {
        self.image(backend, (set, image), config, &mut report.figures);
        for (name, case) in self.about["images"][image]["cases"].as_object().unwrap() {
            let expected = &case["expected"];
            let followed = follow(backend, expected, config, false);
            self.case(image, name, &followed, config, &mut report.figures);
            let max = |kind: &str| report.figures.reference_max(&format!("{name}.{kind}"));
            let errors = [max("x_logits0"), max("logits")];
            let name = format!("{image} {name}");
            report.count((&name, expected), &followed, errors, None, config);
        }
    }

    /// Features of the first and the last crop, tokens, and keys and values of the first and the last layer.
    fn image<B: Inside>(
        &self,
        backend: &mut B,
        (set, image): (&Path, &str),
        config: &ModelConfig,
        figures: &mut Figures,
    ) {
        let picture = picture(set, image);
        let (width, dim) = (config.vision.enc_dim, config.text.dim);
        let [features, embedded] = backend.image(&picture);
        // The reference encodes a single tile twice, so the last crop is then the first.
        let last = &features[features.len() - config.image_tokens() * width..];
        let mut add = |kind: &str, got: &[f32], width: usize| {
            let stored = corner(got, &self.token_rows, width);
            self.add(figures, image, kind, &stored);
        };
        add("enc_out.crop0", &features, width);
        add("enc_out.last_crop", last, width);
        add("img_emb", &embedded, dim);
        self.add(figures, image, "img_emb.norms", &norms(&embedded, dim));
        for layer in [0, config.text.n_layers - 1] {
            let [keys, values] = backend.prefix(layer);
            for (part, got) in [("k", keys), ("v", values)] {
                let kind = format!("{part}{layer}.head0_head31");
                let positions = config.prefix_positions();
                let heads = [0, 31].map(|head| &got[head * positions * HEAD..][..positions * HEAD]);
                let stored = heads.map(|head| corner(head, &self.positions, HEAD));
                self.add(figures, image, &kind, &stored.concat());
            }
        }
    }

    /// The prompt's last hidden states, logits of all tokens and of the first object's bins.
    fn case(
        &self,
        image: &str,
        name: &str,
        followed: &ReferenceRun,
        config: &ModelConfig,
        figures: &mut Figures,
    ) {
        let last = &followed.prompt[followed.prompt.len() - config.text.dim..];
        let of = |part: &str| format!("{name}.{part}");
        self.add(figures, image, &of("prompt_hidden_last"), last);
        let mut tokens = Vec::new();
        for Seen { ask, logits, .. } in &followed.seen {
            match ask {
                Ask::Token(_) => tokens.extend(self.vocab_ids.iter().map(|&id| logits[id])),
                Ask::X(0) => self.add(figures, image, &of("x_logits0"), logits),
                Ask::Y(0) => self.add(figures, image, &of("y_logits0"), logits),
                Ask::Size(0) => self.add(figures, image, &of("size_logits0"), logits),
                Ask::X(_) | Ask::Y(_) | Ask::Size(_) => {}
            }
        }
        self.add(figures, image, &of("logits"), &tokens);
    }
}

/// The first values of some rows.
fn corner(values: &[f32], rows: &[usize], width: usize) -> Vec<f32> {
    let rows = rows.iter().map(|row| &values[row * width..][..STORED]);
    rows.flatten().copied().collect()
}

/// The norm of each row.
fn norms(values: &[f32], width: usize) -> Vec<f32> {
    let norm = |row: &[f32]| row.iter().map(|x| x * x).sum::<f32>().sqrt();
    values.chunks_exact(width).map(norm).collect()
}

#[test]
fn a_corner_is_the_first_values_of_rows() {
    let values: Vec<f32> = (0..3 * 100).map(|i| i as f32).collect();
    let corner = corner(&values, &[0, 2], 100);
    assert_eq!(corner.len(), 2 * STORED);
    assert_eq!((corner[0], corner[63], corner[64]), (0.0, 63.0, 200.0));
    assert_eq!(norms(&[3.0, 4.0, 0.0, 2.0], 2), [5.0, 2.0]);
}
