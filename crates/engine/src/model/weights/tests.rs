use safetensors::{
    Dtype, serialize,
    tensor::{SafeTensors, TensorView},
};

use super::*;
use crate::{
    model::WeightsFile,
    testing::{bytes, golden_model, golden_set, tensors},
};

/// A tensor of a file: name, type, shape, bytes.
type Raw = (String, Dtype, Vec<usize>, Vec<u8>);

fn golden() -> (ModelConfig, Vec<Raw>) {
    let set = golden_set("md2-micro");
    let file = bytes(&set.join("model.safetensors"));
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let raw = tensors.iter().map(|(name, view)| {
        let (shape, bytes) = (view.shape().to_vec(), view.data().to_vec());
        (name.to_owned(), view.dtype(), shape, bytes)
    });
    (golden_model::config(&set), raw.collect())
}

fn file_of(tensors: &[Raw]) -> Result<WeightsFile, WeightsError> {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let bytes = serialize(views, None).unwrap();
    WeightsFile::from_static(bytes.leak(), "m.safetensors")
}

fn load(config: &ModelConfig, tensors: &[Raw]) -> Result<Weights, WeightsError> {
    Weights::load(config, &mut file_of(tensors)?)
}

fn find<'a>(tensors: &'a mut [Raw], name: &str) -> &'a mut Raw {
    tensors.iter_mut().find(|raw| raw.0 == name).unwrap()
}

#[test]
fn the_golden_file_fills_every_place() {
    let (config, raw) = golden();
    let mut file = file_of(&raw).unwrap();
    let weights = Weights::load(&config, &mut file).unwrap();
    assert!(file.unused().is_empty());
    let path = golden_set("md2-micro").join("model.safetensors");
    let want = tensors(&path);
    let Weights {
        text,
        vision,
        region,
    } = weights;
    for (tensor, name) in [
        (&text.wte, "text.wte"),
        (
            &text.blocks[1].mlp.fc2.weight,
            "text.blocks.1.mlp.fc2.weight",
        ),
        (&vision.blocks[0].ln2.bias, "vision.blocks.0.ln2.bias"),
        (&vision.proj.fc1.weight, "vision.proj_mlp.fc1.weight"),
        (
            &region.size_decoder.fc2.bias,
            "region.size_decoder.fc2.bias",
        ),
    ] {
        let got = (tensor.shape.clone(), tensor.to_f32().unwrap());
        assert_eq!(got, want[&format!("model.{name}")], "{name}");
    }
}

#[test]
fn names_of_other_exports_are_understood() {
    let (config, mut raw) = golden();
    for (name, ..) in &mut raw {
        *name = name
            .replacen("model.text.", "text.", 1)
            .replace(".mlp.", "._orig_mod.mlp.");
    }
    assert!(load(&config, &raw).is_ok());
    let mut twice = find(&mut raw, "text.wte").clone();
    twice.0 = "model.text.wte".into();
    raw.push(twice);
    let text = load(&config, &raw).unwrap_err().to_string();
    let end = " are the same tensor; remove one of them";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_wrong_shape_names_tensor_and_both_shapes() {
    let (config, mut raw) = golden();
    find(&mut raw, "model.text.blocks.1.mlp.fc1.weight").2 = vec![192, 208];
    assert_eq!(
        load(&config, &raw).unwrap_err().to_string(),
        "m.safetensors: tensor text.blocks.1.mlp.fc1.weight has shape [192, 208], config.json needs \
         [208, 192]; the two files belong to different models"
    );
}

#[test]
fn missing_tensors_are_named_together() {
    let (config, mut raw) = golden();
    raw.retain(|raw| !raw.0.contains("post_ln"));
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
    let (_, dtype, _, bytes) = find(&mut raw, "model.text.wte");
    *dtype = Dtype::U8;
    bytes.truncate(512 * 192);
    assert_eq!(
        load(&config, &raw).unwrap_err().to_string(),
        "m.safetensors: tensor model.text.wte holds U8, needs BF16, F16 or F32; use the bf16 file of the model"
    );
}

#[test]
fn unknown_tensors_are_listed_but_do_no_harm() {
    let (config, mut raw) = golden();
    raw.push(("model.extra".into(), Dtype::F32, vec![1], vec![0; 4]));
    let mut file = file_of(&raw).unwrap();
    assert!(Weights::load(&config, &mut file).is_ok());
    assert_eq!(file.unused(), ["model.extra"]);
}
