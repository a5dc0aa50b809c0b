//! Adapters: what a small file adds to some layers of the decoder (LoRA; docs/moondream.md section 11).
//!
//! A layer with an adapter gives `W·x + b + B·(A·x)`; `A` has `rank` rows, `B` as many columns, and of experts each has its own.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    path::Path,
};

use half::bf16;
use spotter_core::plain_line;

use super::{
    families::FAMILIES,
    family::ModelConfig,
    source::{TensorSource, WeightsFile, listed},
    tensor::{Tensor, WeightsError},
};
use crate::network::{
    PartMap, TextBlock, TextMlp,
    shard::{Cut, Divided, Shard},
    spec::{LayerSpec, TensorSpec},
};

/// The highest rank of an adapter. Of experts, those that are active have it together.
pub const ADAPTER_RANK_MAX: usize = 32;

/// The key of a torch file that has the tensors; others are of the training.
const STATE: &str = "lora_state_dict.";

/// The decoder's blocks with what an adapter has for each of their layers.
type AdapterBlocks<T> = Vec<TextBlock<Option<T>, ()>>;

/// A file of an adapter that fits a model. Its values are not read yet.
#[derive(Debug)]
pub struct AdapterFile {
    /// Names the file in messages.
    origin: String,
    blocks: AdapterBlocks<LowRankTensors>,
}

/// Of a layer, `[rank, inner]` and `[outputs, rank]`; of experts `[experts, …]`.
#[derive(Debug)]
struct LowRankTensors {
    layer: LayerSpec,
    rank: usize,
    a: Tensor,
    b: Tensor,
}

/// An adapter in memory, in bf16.
#[derive(Clone, Debug, Default)]
pub struct AdapterWeights {
    pub blocks: AdapterBlocks<LowRank>,
}

/// What an adapter adds to a layer.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// Of each expert.
    pub rank: usize,
    /// `[experts, rank, inner]`; one expert where the layer has none.
    pub a: Vec<bf16>,
    /// `[experts, outputs, rank]`
    pub b: Vec<bf16>,
    pub inner: usize,
    pub outputs: usize,
}

impl AdapterWeights {
    /// What a shard has of it. The one of a block's projection reads what the block reads, so the first shard has all of it.
    pub fn of_shard(&self, shard: Shard) -> Cow<'_, Self> {
        if shard.is_whole() {
            return Cow::Borrowed(self);
        }
        let blocks = self.blocks.iter().map(|block| {
            let mut block = block.clone();
            let proj = block.proj.take().filter(|_| shard.is_first());
            let Ok(mut block) = block.with_cuts().try_map(&mut CutLowRank(shard));
            block.proj = proj;
            block
        });
        Cow::Owned(Self {
            blocks: blocks.collect(),
        })
    }
}

struct CutLowRank(Shard);

impl PartMap<Divided<Option<LowRank>>, Divided<()>> for CutLowRank {
    type Layer = Option<LowRank>;
    type Plain = ();
    type Error = Infallible;

    fn layer(&mut self, layer: Divided<Option<LowRank>>) -> Result<Option<LowRank>, Infallible> {
        Ok(layer.part.map(|part| part.of_shard(layer.cut, self.0)))
    }

    fn plain(&mut self, _: Divided<()>) -> Result<(), Infallible> {
        Ok(())
    }
}

impl LowRank {
    fn of_shard(self, cut: Cut, shard: Shard) -> Self {
        let Self {
            rank,
            inner,
            outputs,
            ..
        } = self;
        match cut {
            Cut::Whole => self,
            Cut::Outputs(parts) => {
                let experts = self.b.len() / (outputs * rank);
                let part = shard.part(&[experts, outputs, rank], 1, parts);
                Self {
                    b: part.of(&self.b),
                    outputs: outputs / shard.ranks,
                    ..self
                }
            }
            Cut::Inner(parts) => {
                let part = shard.part(&[self.a.len() / inner, inner], 1, parts);
                Self {
                    a: part.of(&self.a),
                    inner: inner / shard.ranks,
                    ..self
                }
            }
        }
    }
}

/// Checks that the file is an adapter for a model with these dimensions; reads no values. Blocks on the disk.
pub fn check_adapter(path: &Path, config: &ModelConfig) -> Result<(), WeightsError> {
    AdapterFile::open(path, config).map(drop)
}

impl AdapterFile {
    /// Opens a safetensors or torch file and checks its header: everything that does not fit is named in one error. Blocks on the disk.
    pub fn open(path: &Path, config: &ModelConfig) -> Result<Self, WeightsError> {
        let mut file = WeightsFile::open(path)?;
        let names: Vec<String> = file.names().map(str::to_owned).collect();
        let has_state = names.iter().any(|name| name.starts_with(STATE));
        let names = names.iter().filter(|n| !has_state || n.starts_with(STATE));
        let mut reader = AdapterReader {
            file: &mut file,
            names: BTreeMap::new(),
            wrong: Vec::new(),
        };
        let mut unknown = Vec::new();
        for name in names {
            match config.family.adapter_name(name) {
                // Some files have the same tensors under two names.
                Some(own) => _ = reader.names.entry(own).or_insert_with(|| name.clone()),
                None => unknown.push(plain_line(name)),
            }
        }
        if reader.names.is_empty() {
            return Err(WeightsError::Unusable(of_no_adapter(
                path, &unknown, config,
            )));
        }
        let spec = config.network().layers.text.blocks;
        let blocks = spec.into_iter().map(|block| block.try_map(&mut reader));
        let blocks: AdapterBlocks<_> = blocks.collect::<Result<_, _>>()?;
        unknown.extend(reader.names.values().map(|name| plain_line(name)));
        let mut wrong = reader.wrong;
        let ranks: BTreeSet<usize> = blocks.iter().flat_map(ranks).collect();
        let beyond = ranks
            .iter()
            .filter(|r| !(1..=ADAPTER_RANK_MAX).contains(*r));
        wrong.extend(
            beyond.map(|rank| format!("it has rank {rank}, needs 1 to {ADAPTER_RANK_MAX}")),
        );
        if !unknown.is_empty() {
            wrong.push(format!(
                "{} has no layer for {}",
                config.family.name(),
                listed(&unknown, ", ")
            ));
        }
        let origin = path.display().to_string();
        if !wrong.is_empty() {
            return Err(WeightsError::Unusable(format!(
                "{origin} does not fit the model: {}; train the adapter for this model, or remove it",
                listed(&wrong, "; ")
            )));
        }
        Ok(Self { origin, blocks })
    }

    /// Reads the values, rounded to bf16. Blocks on the disk.
    pub fn load(self) -> Result<AdapterWeights, WeightsError> {
        let mut load = LoadValues(&self.origin);
        let blocks = self
            .blocks
            .into_iter()
            .map(|block| block.try_map(&mut load));
        Ok(AdapterWeights {
            blocks: blocks.collect::<Result<_, _>>()?,
        })
    }
}

/// What is said of a file without a tensor of an adapter for the model.
fn of_no_adapter(path: &Path, names: &[String], config: &ModelConfig) -> String {
    let path = path.display();
    let own = config.family.name();
    let is_of = |name: &String| {
        let mut families = FAMILIES.iter();
        families.find(|family| family.adapter_name(name).is_some())
    };
    match names.iter().find_map(is_of) {
        Some(other) => format!(
            "{path} is an adapter for {}, the model is a {own}; name an adapter that was trained for this model",
            other.name()
        ),
        None => format!(
            "{path} is no adapter for {own}: it has no tensor of one; name the file that the training wrote"
        ),
    }
}

/// Of the adapted layers of a block.
fn ranks(block: &TextBlock<Option<LowRankTensors>, ()>) -> impl Iterator<Item = usize> {
    let active = match &block.mlp {
        TextMlp::Dense(_) => 1,
        TextMlp::Experts(experts) => experts.active,
    };
    block.layers().flatten().map(move |tensors| {
        let together = if tensors.layer.count > 1 { active } else { 1 };
        tensors.rank * together
    })
}

/// Takes the tensors of each layer; what is wrong is noted, so that the error names all of it.
struct AdapterReader<'a> {
    file: &'a mut WeightsFile,
    /// Names in the file by ours, of tensors that no layer took.
    names: BTreeMap<String, String>,
    /// Sentences.
    wrong: Vec<String>,
}

impl AdapterReader<'_> {
    fn tensor(&mut self, name: &str) -> Result<Option<Tensor>, WeightsError> {
        let Some(in_file) = self.names.remove(name) else {
            return Ok(None);
        };
        match self.file.tensor(&in_file, &[]) {
            Ok(tensor) => Ok(Some(Tensor {
                name: plain_line(&in_file),
                ..tensor
            })),
            Err(WeightsError::Odd(text)) => {
                self.wrong.push(plain_line(&text));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes shapes that are not those of one rank.
    fn pair(&mut self, layer: LayerSpec, [a, b]: [Tensor; 2]) -> LowRankTensors {
        let of_each = |shape: [usize; 2]| match layer.count {
            1 => shape.to_vec(),
            count => vec![count, shape[0], shape[1]],
        };
        let rank = a.shape.iter().rev().nth(1).copied().unwrap_or(0);
        let needed = [[rank, layer.inner], [layer.outputs, rank]].map(of_each);
        for (tensor, needed) in [&a, &b].into_iter().zip(&needed) {
            if tensor.shape != *needed {
                self.wrong.push(format!(
                    "tensor {} has shape {:?}, needs {needed:?}",
                    tensor.name, tensor.shape
                ));
            }
        }
        LowRankTensors { layer, rank, a, b }
    }
}

impl PartMap<LayerSpec, TensorSpec> for AdapterReader<'_> {
    type Layer = Option<LowRankTensors>;
    type Plain = ();
    type Error = WeightsError;

    fn layer(&mut self, layer: LayerSpec) -> Result<Option<LowRankTensors>, WeightsError> {
        let Some(name) = &layer.adapter else {
            return Ok(None);
        };
        let [a, b] = ["a", "b"].map(|part| format!("{name}_{part}"));
        let wrong_before = self.wrong.len();
        match (self.tensor(&a)?, self.tensor(&b)?) {
            (Some(a), Some(b)) => Ok(Some(self.pair(layer, [a, b]))),
            (None, None) => Ok(None),
            (found, _) => {
                let missing = if found.is_some() { b } else { a };
                if self.wrong.len() == wrong_before {
                    self.wrong.push(format!("tensor {missing} is missing"));
                }
                Ok(None)
            }
        }
    }

    fn plain(&mut self, _: TensorSpec) -> Result<(), WeightsError> {
        Ok(())
    }
}

struct LoadValues<'a>(&'a str);

impl LoadValues<'_> {
    fn values(&self, tensor: &Tensor) -> Result<Vec<bf16>, WeightsError> {
        let mut values = vec![bf16::ZERO; tensor.len()];
        tensor.read_bf16(0, &mut values)?;
        match values.iter().all(|value| value.is_finite()) {
            true => Ok(values),
            false => Err(WeightsError::Unusable(format!(
                "{}: tensor {} has values that are no numbers; the training failed",
                self.0, tensor.name
            ))),
        }
    }
}

impl PartMap<Option<LowRankTensors>, ()> for LoadValues<'_> {
    type Layer = Option<LowRank>;
    type Plain = ();
    type Error = WeightsError;

    fn layer(&mut self, layer: Option<LowRankTensors>) -> Result<Option<LowRank>, WeightsError> {
        let Some(LowRankTensors { layer, rank, a, b }) = layer else {
            return Ok(None);
        };
        Ok(Some(LowRank {
            rank,
            a: self.values(&a)?,
            b: self.values(&b)?,
            inner: layer.inner,
            outputs: layer.outputs,
        }))
    }

    fn plain(&mut self, _: ()) -> Result<(), WeightsError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
