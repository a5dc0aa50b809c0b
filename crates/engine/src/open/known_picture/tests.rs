use std::sync::Arc;

use super::*;
use crate::{
    model::{LoadedModel, TensorData, Weights, load_model},
    network::TextMlp,
    open::ModelCard,
    testing::golden_set,
};
use spotter_config::{DevicePreference, ModelSettings, ModelSource};
use spotter_core::{GpuPrecision, ManualClock, ScoreSource};

/// What the card of the embedded model says after `change`, opened as from a directory without a record.
fn doubt(change: impl FnOnce(&mut LoadedModel)) -> Option<String> {
    card(GpuPrecision::Bf16, change).doubt
}

fn card(precision: GpuPrecision, change: impl FnOnce(&mut LoadedModel)) -> ModelCard {
    let settings = ModelSettings {
        device: DevicePreference::Cpu,
        precision: Some(precision),
        ..ModelSettings::of(ModelSource::Embedded)
    };
    let mut loaded = load_model(&settings.source).unwrap();
    loaded.is_unknown = true;
    change(&mut loaded);
    let device = crate::open::choose_one(&settings).unwrap();
    let clock = Arc::new(ManualClock::default());
    let opened = Engine::open_on(crate::open::ModelOpening {
        device,
        settings: &settings,
        adapter_slots: 0,
        loaded,
        calibration: Vec::new,
        clock,
    });
    opened.unwrap().1
}

#[test]
fn model_in_int8_on_the_processor_knows_the_picture() {
    let card = card(GpuPrecision::Int8, |_| ());
    assert_eq!((&*card.precision, card.doubt), ("int8", None));
}

/// Rows of the vocabulary in another order: what another tokenizer would have made of the same training.
fn with_other_vocabulary(weights: &mut Weights) {
    let text = &mut weights.text;
    for tensor in [&mut text.wte, &mut text.lm_head.weight] {
        let (mut values, rows) = (tensor.to_f32().unwrap(), tensor.shape[0]);
        let width = values.len() / rows;
        values.rotate_left(width * (rows / 3));
        tensor.data = TensorData::F32(values);
    }
    let mut bias = text.lm_head.bias.to_f32().unwrap();
    let third = bias.len() / 3;
    bias.rotate_left(third);
    text.lm_head.bias.data = TensorData::F32(bias);
}

/// Every value of the decoder's products moves by up to `share` of the largest of its tensor.
fn add_noise(weights: &mut Weights, share: f32) {
    let mut count = 0_u64;
    let mut random = move || {
        count += 1;
        let bits = xxhash_rust::xxh3::xxh3_64(&count.to_le_bytes());
        (bits >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    for block in &mut weights.text.blocks {
        let TextMlp::Dense(mlp) = &mut block.mlp else {
            panic!("a network without experts");
        };
        for tensor in [
            &mut block.qkv.weight,
            &mut block.proj.weight,
            &mut mlp.fc1.weight,
            &mut mlp.fc2.weight,
        ] {
            let mut values = tensor.to_f32().unwrap();
            let largest = values
                .iter()
                .fold(0.0f32, |most, value| most.max(value.abs()));
            for value in &mut values {
                *value += random() * share * largest;
            }
            tensor.data = TensorData::F32(values);
        }
    }
}

#[test]
fn right_weights_of_an_unknown_directory_cause_no_doubt() {
    assert_eq!(doubt(|_| {}), None);
}

// Faults: M14.
/// The embedded model as a revision with another vocabulary, with its blocks in another order, and with noise.
#[test]
fn weights_that_do_not_fit_cause_doubt() {
    let wrong = [
        doubt(|model| with_other_vocabulary(&mut model.weights)),
        doubt(|model| model.weights.text.blocks.reverse()),
        doubt(|model| add_noise(&mut model.weights, 1.0)),
    ];
    for doubt in wrong {
        let doubt = doubt.expect("nonsense is found");
        assert!(doubt.contains("one red ball"), "{doubt}");
    }
}

// Faults: M14.
/// Random weights answer, and wrongly; a family that could not be asked would cause no doubt.
#[test]
fn random_weights_of_either_family_cause_doubt() {
    for (set, family) in [("md2-micro", "Moondream 2"), ("md3-ln-tiny", "Moondream 3")] {
        let card = card(GpuPrecision::Bf16, |model| {
            *model = load_model(&ModelSource::Directory(golden_set(set))).unwrap();
        });
        assert_eq!(&*card.family, family);
        let warning = card.warning().expect("nonsense is found");
        assert!(warning.contains("one red ball"), "{warning}");
    }
}

#[test]
fn known_files_are_not_looked_at() {
    let recorded = doubt(|model| {
        model.is_unknown = false;
        with_other_vocabulary(&mut model.weights);
    });
    assert_eq!(recorded, None);
}

fn boxes(places: &[NormBox]) -> AnswerBody {
    let found = |place: &NormBox| FoundObject {
        place: *place,
        score: 1.0,
        source: Default::default(),
        sharpness: 1.0,
    };
    AnswerBody::Boxes(places.iter().map(found).collect())
}

#[test]
fn right_answer_is_a_box_on_the_ball_or_red() {
    let everything = NormBox::from_corners(0.0, 0.0, 1.0, 1.0);
    assert!(is_right(&boxes(&[ball()])));
    assert!(is_right(&boxes(&[everything, ball()])));
    assert!(!is_right(&boxes(&[])));
    assert!(!is_right(&boxes(&[everything])));
    assert!(!is_right(&boxes(&[ball(); 50])));
    let text = |text: &str, score| AnswerBody::Text {
        text: text.to_owned(),
        score,
        source: ScoreSource::TokenProb,
    };
    assert!(is_right(&text("Red", 0.9)));
    assert!(is_right(&text("red", 0.9)));
    assert!(!is_right(&text("Red", 1e-4)));
    assert!(!is_right(&text("Blue", 0.9)));
}
