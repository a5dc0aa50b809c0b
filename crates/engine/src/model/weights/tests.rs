use safetensors::Dtype;

use super::*;
use crate::{
    model::WeightsFile,
    network::Decoder,
    testing::{
        golden_model, golden_set,
        raw_tensors::{RawTensor, raw_tensors, weights_file, written},
        tensors,
    },
};

fn golden() -> (ModelConfig, Vec<RawTensor>) {
    let set = golden_set("md2-micro");
    let raw = raw_tensors(&set.join("model.safetensors"));
    (golden_model::config(&set), raw)
}

fn load(config: &ModelConfig, tensors: &[RawTensor]) -> Result<Weights, WeightsError> {
    Weights::load(config, &mut weights_file(tensors)?)
}

fn find<'a>(tensors: &'a mut [RawTensor], name: &str) -> &'a mut RawTensor {
    tensors.iter_mut().find(|raw| raw.name == name).unwrap()
}

#[test]
fn the_golden_file_fills_every_place() {
    let (config, raw) = golden();
    let mut file = weights_file(&raw).unwrap();
    let weights = Weights::load(&config, &mut file).unwrap();
    assert!(file.unused().is_empty());
    let path = golden_set("md2-micro").join("model.safetensors");
    let want = tensors(&path);
    let Weights {
        text,
        vision,
        region,
    } = weights;
    let TextMlp::Dense(mlp) = &text.blocks[1].mlp else {
        panic!("a network without experts");
    };
    let Decoder::Mlp(size_decoder) = &region.size_decoder else {
        panic!("a decoder of two layers");
    };
    for (tensor, name) in [
        (&text.wte, "text.wte"),
        (&mlp.fc2.weight, "text.blocks.1.mlp.fc2.weight"),
        (&vision.blocks[0].ln2.bias, "vision.blocks.0.ln2.bias"),
        (&vision.proj.fc1.weight, "vision.proj_mlp.fc1.weight"),
        (&size_decoder.fc2.bias, "region.size_decoder.fc2.bias"),
    ] {
        let got = (tensor.shape.clone(), tensor.to_f32().unwrap());
        assert_eq!(got, want[&format!("model.{name}")], "{name}");
    }
}

#[test]
fn names_of_other_exports_are_understood() {
    let (config, mut raw) = golden();
    for RawTensor { name, .. } in &mut raw {
        *name = name
            .replacen("model.text.", "text.", 1)
            .replace(".mlp.", "._orig_mod.mlp.");
    }
    assert!(load(&config, &raw).is_ok());
    let mut twice = find(&mut raw, "text.wte").clone();
    twice.name = "model.text.wte".into();
    raw.push(twice);
    let text = load(&config, &raw).unwrap_err().to_string();
    let end = " are the same tensor; remove one of them";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_wrong_shape_names_tensor_and_both_shapes() {
    let (config, mut raw) = golden();
    find(&mut raw, "model.text.blocks.1.mlp.fc1.weight").shape = vec![192, 208];
    assert_eq!(
        load(&config, &raw).unwrap_err().to_string(),
        "m.safetensors: tensor text.blocks.1.mlp.fc1.weight has shape [192, 208], config.json needs \
         [208, 192]; the two files belong to different models"
    );
}

#[test]
fn missing_tensors_are_named_together() {
    let (config, mut raw) = golden();
    raw.retain(|raw| !raw.name.contains("post_ln"));
    assert_eq!(
        load(&config, &raw).unwrap_err().to_string(),
        "m.safetensors lacks 4 tensors that its config.json needs: text.post_ln.weight, \
         text.post_ln.bias, vision.post_ln.weight, vision.post_ln.bias"
    );
    let text = load(&config, &raw[..0]).unwrap_err().to_string();
    assert!(text.contains("text.wte, "), "{text}");
    assert!(text.ends_with(" more") && text.len() < 1000, "{text}");
}

#[test]
fn numbers_that_are_no_floats_are_refused() {
    let (config, mut raw) = golden();
    let wte = find(&mut raw, "model.text.wte");
    wte.dtype = Dtype::U8;
    wte.bytes.truncate(512 * 192);
    assert_eq!(
        load(&config, &raw).unwrap_err().to_string(),
        "m.safetensors: tensor model.text.wte holds U8, needs BF16, F16 or F32; use the bf16 file of the model"
    );
}

#[test]
fn unknown_tensors_are_listed_but_do_no_harm() {
    let (config, mut raw) = golden();
    raw.push(RawTensor {
        name: "model.extra".into(),
        dtype: Dtype::F32,
        shape: vec![1],
        bytes: vec![0; 4],
    });
    let mut file = weights_file(&raw).unwrap();
    assert!(Weights::load(&config, &mut file).is_ok());
    assert_eq!(file.unused(), ["model.extra"]);
}

#[test]
fn all_odd_tensors_are_named_together_with_the_missing_ones() {
    let (config, mut raw) = golden();
    raw.retain(|raw| raw.name != "model.text.post_ln.bias");
    for name in [
        "model.text.blocks.0.ln.weight",
        "model.text.blocks.1.ln.weight",
    ] {
        find(&mut raw, name).shape = vec![192, 1];
    }
    let wte = find(&mut raw, "model.text.wte");
    wte.dtype = Dtype::F8_E4M3;
    wte.bytes.truncate(512 * 192);
    let text = load(&config, &raw).unwrap_err().to_string();
    for part in [
        "m.safetensors lacks 1 tensors that its config.json needs: text.post_ln.bias; m.safetensors: ",
        "tensor text.wte holds F8_E4M3, which only experts may",
        "tensor text.blocks.0.ln.weight has shape [192, 1], config.json needs [192]; tensor text.blocks.1.ln.weight",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// A file may claim any size for a tensor that is not row-major.
#[test]
fn transposed_tensor_of_other_shape_is_refused_unread() {
    let (config, _) = golden();
    let features = RawTensor {
        name: "region_model.coordinate_features.weight".into(),
        dtype: Dtype::F32,
        shape: vec![2, 3],
        bytes: vec![0; 24],
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), written(&[features])).unwrap();
    let opened = WeightsFile::open(file.path()).unwrap();
    let mut opened = opened
        .renamed(&|name| config.family.own_name(name))
        .unwrap();
    file.as_file().set_len(0).unwrap();
    let error = Weights::load(&config, &mut opened).unwrap_err().to_string();
    let shape = "tensor region.coord_features has shape [3, 2]";
    assert!(error.contains(shape), "{error}");
    let tensor = opened.tensor("region.coord_features", &[3, 2]).unwrap();
    let error = tensor.to_f32().unwrap_err().to_string();
    assert!(error.starts_with("cannot read "), "{error}");
}
