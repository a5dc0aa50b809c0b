//! Tensors of a safetensors file that a test changes before they are read.

use std::path::Path;

use safetensors::{
    Dtype, serialize,
    tensor::{SafeTensors, TensorView},
};

use crate::model::{WeightsError, WeightsFile};

#[derive(Clone, Debug)]
pub struct RawTensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

pub fn raw_tensors(path: &Path) -> Vec<RawTensor> {
    let file = super::bytes(path);
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let raw = tensors.iter().map(|(name, view)| RawTensor {
        name: name.to_owned(),
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        bytes: view.data().to_vec(),
    });
    raw.collect()
}

/// The bytes of a file with these tensors.
pub fn written(tensors: &[RawTensor]) -> Vec<u8> {
    let views = tensors.iter().map(|tensor| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes);
        (&tensor.name, view.unwrap())
    });
    serialize(views, None).unwrap()
}

pub fn weights_file(tensors: &[RawTensor]) -> Result<WeightsFile, WeightsError> {
    WeightsFile::from_static(written(tensors).leak(), "m.safetensors")
}
