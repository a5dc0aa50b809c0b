//! The structure of a network, once: what has a value for each layer is a map of [`Network`]. Pure.
//!
//! `L` is a value of a layer that multiplies: its shape, its weights in a file, packed for a processor. `P` is the same of the tensors that
//! do not: norms, tables, frequencies. A family's constructor makes the specification ([`spec::NetworkSpec`]); [`Network::try_map`]
//! makes everything else of it.

pub mod cost;
pub mod format;
pub mod forward;
pub mod layers;
pub mod ops;
pub mod shard;
pub mod spec;

use std::convert::Infallible;

/// What the parts of a network become.
pub trait PartMap<L, P> {
    type Layer;
    type Plain;
    type Error;

    fn layer(&mut self, layer: L) -> Result<Self::Layer, Self::Error>;

    fn plain(&mut self, plain: P) -> Result<Self::Plain, Self::Error>;
}

/// In the order in which files are read.
#[derive(Clone, Debug)]
pub struct Network<L, P> {
    pub text: Text<L, P>,
    pub vision: Vision<L, P>,
    pub region: Region<L, P>,
}

/// The decoder.
#[derive(Clone, Debug)]
pub struct Text<L, P> {
    /// Embedding table, `[vocabulary, width]`.
    pub wte: P,
    pub blocks: Vec<TextBlock<L, P>>,
    /// Before `lm_head`.
    pub post_ln: Norm<P>,
    pub lm_head: L,
}

/// A parallel block: attention and MLP read the same layer norm, and both add to the hidden states.
#[derive(Clone, Debug)]
pub struct TextBlock<L, P> {
    pub ln: Norm<P>,
    /// Outputs of q, then k, then v, head by head in each.
    pub qkv: L,
    /// Scales q and v, in the models that have it.
    pub tau: Option<Tau<P>>,
    pub proj: L,
    pub mlp: TextMlp<L>,
}

/// Scales of q and v for each head and position: `tanh(gelu(qkv) · wᵀ)` with the rows of `wq_wv`, plus `0.5 + sigmoid(alpha · ln(position + 1))`.
#[derive(Clone, Debug)]
pub struct Tau<P> {
    /// `[2 · heads, 3 · width]`: the rows of q, then those of v.
    pub wq_wv: P,
    /// `[heads]`.
    pub alpha: P,
}

/// The MLP of a decoder's block.
#[derive(Clone, Debug)]
pub enum TextMlp<L> {
    Dense(Mlp<L>),
    Experts(Experts<L>),
}

/// A mixture of experts: the sum of those that the router chooses for a position, each with the share that the softmax over the chosen
/// ones gives it.
#[derive(Clone, Debug)]
pub struct Experts<L> {
    /// A logit for each expert.
    pub router: L,
    /// Of each expert, the half that goes through a GELU, then the half that multiplies it, plus one. No biases.
    pub up: L,
    pub down: L,
    /// Experts of a position.
    pub active: usize,
}

/// The vision encoder and its projection.
#[derive(Clone, Debug)]
pub struct Vision<L, P> {
    /// A patch is flattened channel, row, column.
    pub patch_emb: L,
    /// `[1, tokens, width]`.
    pub pos_emb: P,
    pub blocks: Vec<VisionBlock<L, P>>,
    pub post_ln: Norm<P>,
    /// Reads global features, then pooled local ones.
    pub proj: Mlp<L>,
}

/// A pre-norm transformer block.
#[derive(Clone, Debug)]
pub struct VisionBlock<L, P> {
    /// Before attention.
    pub ln1: Norm<P>,
    /// Outputs of q, then k, then v, head by head in each.
    pub qkv: L,
    pub proj: L,
    /// Before the MLP.
    pub ln2: Norm<P>,
    pub mlp: Mlp<L>,
}

/// Coordinates and sizes in and out of the decoder.
#[derive(Clone, Debug)]
pub struct Region<L, P> {
    /// Before both decoders, in the models that have it.
    pub ln: Option<Norm<P>>,
    /// Frequencies, `[1, features / 2]`.
    pub coord_features: P,
    /// Frequencies, `[2, features / 2]`.
    pub size_features: P,
    pub coord_encoder: L,
    pub coord_decoder: Decoder<L>,
    pub size_encoder: L,
    /// Its outputs are width bins, then height bins.
    pub size_decoder: Decoder<L>,
}

/// From a hidden state to bins.
#[derive(Clone, Debug)]
pub enum Decoder<L> {
    Mlp(Mlp<L>),
    Linear(L),
}

/// Two layers with a GELU between them.
#[derive(Clone, Debug)]
pub struct Mlp<L> {
    pub fc1: L,
    pub fc2: L,
}

/// Scale and shift of a layer norm, `[width]` each.
#[derive(Clone, Copy, Debug)]
pub struct Norm<P> {
    pub weight: P,
    pub bias: P,
}

impl<L, P> Network<L, P> {
    pub fn try_map<M: PartMap<L, P>>(
        self,
        map: &mut M,
    ) -> Result<Network<M::Layer, M::Plain>, M::Error> {
        Ok(Network {
            text: self.text.try_map(map)?,
            vision: self.vision.try_map(map)?,
            region: self.region.try_map(map)?,
        })
    }

    /// All layers and all other tensors, in order.
    pub fn into_parts(self) -> (Vec<L>, Vec<P>) {
        let mut parts = Parts(Vec::new(), Vec::new());
        let Ok(_) = self.try_map(&mut parts);
        (parts.0, parts.1)
    }
}

impl<L, P> Text<L, P> {
    pub fn try_map<M: PartMap<L, P>>(
        self,
        map: &mut M,
    ) -> Result<Text<M::Layer, M::Plain>, M::Error> {
        let blocks = self.blocks.into_iter();
        Ok(Text {
            wte: map.plain(self.wte)?,
            blocks: blocks.map(|b| b.try_map(map)).collect::<Result<_, _>>()?,
            post_ln: self.post_ln.try_map(|plain| map.plain(plain))?,
            lm_head: map.layer(self.lm_head)?,
        })
    }
}

impl<L, P> TextBlock<L, P> {
    pub fn try_map<M: PartMap<L, P>>(
        self,
        map: &mut M,
    ) -> Result<TextBlock<M::Layer, M::Plain>, M::Error> {
        Ok(TextBlock {
            ln: self.ln.try_map(|plain| map.plain(plain))?,
            qkv: map.layer(self.qkv)?,
            tau: self
                .tau
                .map(|tau| tau.try_map(|plain| map.plain(plain)))
                .transpose()?,
            proj: map.layer(self.proj)?,
            mlp: self.mlp.try_map(|layer| map.layer(layer))?,
        })
    }

    /// In the order in which a forward pass runs through them.
    pub fn layers(&self) -> impl Iterator<Item = &L> {
        let mlp = match &self.mlp {
            TextMlp::Dense(mlp) => [Some(&mlp.fc1), Some(&mlp.fc2), None],
            TextMlp::Experts(experts) => [&experts.router, &experts.up, &experts.down].map(Some),
        };
        [&self.qkv, &self.proj]
            .into_iter()
            .chain(mlp.into_iter().flatten())
    }
}

impl<P> Tau<P> {
    fn try_map<T, E>(self, mut map: impl FnMut(P) -> Result<T, E>) -> Result<Tau<T>, E> {
        Ok(Tau {
            wq_wv: map(self.wq_wv)?,
            alpha: map(self.alpha)?,
        })
    }
}

impl<T> TextMlp<Option<T>> {
    /// The value of the layer that reads what the block reads, or of all experts' ones.
    pub fn first(&self) -> Option<&T> {
        match self {
            Self::Dense(mlp) => mlp.fc1.as_ref(),
            Self::Experts(experts) => experts.up.as_ref(),
        }
    }

    /// The value of the layer behind the activation, or of all experts' ones.
    pub fn second(&self) -> Option<&T> {
        match self {
            Self::Dense(mlp) => mlp.fc2.as_ref(),
            Self::Experts(experts) => experts.down.as_ref(),
        }
    }
}

impl<L> TextMlp<L> {
    fn try_map<T, E>(self, mut map: impl FnMut(L) -> Result<T, E>) -> Result<TextMlp<T>, E> {
        Ok(match self {
            Self::Dense(mlp) => TextMlp::Dense(mlp.try_map(map)?),
            Self::Experts(experts) => TextMlp::Experts(Experts {
                router: map(experts.router)?,
                up: map(experts.up)?,
                down: map(experts.down)?,
                active: experts.active,
            }),
        })
    }
}

impl<L, P> Vision<L, P> {
    pub fn try_map<M: PartMap<L, P>>(
        self,
        map: &mut M,
    ) -> Result<Vision<M::Layer, M::Plain>, M::Error> {
        let blocks = self.blocks.into_iter();
        Ok(Vision {
            patch_emb: map.layer(self.patch_emb)?,
            pos_emb: map.plain(self.pos_emb)?,
            blocks: blocks.map(|b| b.try_map(map)).collect::<Result<_, _>>()?,
            post_ln: self.post_ln.try_map(|plain| map.plain(plain))?,
            proj: self.proj.try_map(|layer| map.layer(layer))?,
        })
    }
}

impl<L, P> VisionBlock<L, P> {
    pub fn try_map<M: PartMap<L, P>>(
        self,
        map: &mut M,
    ) -> Result<VisionBlock<M::Layer, M::Plain>, M::Error> {
        Ok(VisionBlock {
            ln1: self.ln1.try_map(|plain| map.plain(plain))?,
            qkv: map.layer(self.qkv)?,
            proj: map.layer(self.proj)?,
            ln2: self.ln2.try_map(|plain| map.plain(plain))?,
            mlp: self.mlp.try_map(|layer| map.layer(layer))?,
        })
    }

    /// In the order in which a forward pass runs through them.
    pub fn layers(&self) -> [&L; 4] {
        [&self.qkv, &self.proj, &self.mlp.fc1, &self.mlp.fc2]
    }
}

impl<L, P> Region<L, P> {
    pub fn try_map<M: PartMap<L, P>>(
        self,
        map: &mut M,
    ) -> Result<Region<M::Layer, M::Plain>, M::Error> {
        Ok(Region {
            ln: self
                .ln
                .map(|ln| ln.try_map(|plain| map.plain(plain)))
                .transpose()?,
            coord_features: map.plain(self.coord_features)?,
            size_features: map.plain(self.size_features)?,
            coord_encoder: map.layer(self.coord_encoder)?,
            coord_decoder: self.coord_decoder.try_map(|layer| map.layer(layer))?,
            size_encoder: map.layer(self.size_encoder)?,
            size_decoder: self.size_decoder.try_map(|layer| map.layer(layer))?,
        })
    }
}

impl<L> Decoder<L> {
    fn try_map<T, E>(self, mut map: impl FnMut(L) -> Result<T, E>) -> Result<Decoder<T>, E> {
        Ok(match self {
            Self::Mlp(mlp) => Decoder::Mlp(mlp.try_map(map)?),
            Self::Linear(layer) => Decoder::Linear(map(layer)?),
        })
    }

    /// In the order in which a forward pass runs through them.
    pub fn layers(&self) -> impl Iterator<Item = &L> {
        let layers = match self {
            Self::Mlp(mlp) => [Some(&mlp.fc1), Some(&mlp.fc2)],
            Self::Linear(layer) => [Some(layer), None],
        };
        layers.into_iter().flatten()
    }
}

impl<L> Mlp<L> {
    fn try_map<T, E>(self, mut map: impl FnMut(L) -> Result<T, E>) -> Result<Mlp<T>, E> {
        Ok(Mlp {
            fc1: map(self.fc1)?,
            fc2: map(self.fc2)?,
        })
    }
}

impl<P> Norm<P> {
    pub fn try_map<T, E>(self, mut map: impl FnMut(P) -> Result<T, E>) -> Result<Norm<T>, E> {
        Ok(Norm {
            weight: map(self.weight)?,
            bias: map(self.bias)?,
        })
    }
}

struct Parts<L, P>(Vec<L>, Vec<P>);

impl<L, P> PartMap<L, P> for Parts<L, P> {
    type Layer = ();
    type Plain = ();
    type Error = Infallible;

    fn layer(&mut self, layer: L) -> Result<(), Infallible> {
        self.0.push(layer);
        Ok(())
    }

    fn plain(&mut self, plain: P) -> Result<(), Infallible> {
        self.1.push(plain);
        Ok(())
    }
}
