//! A layer of experts that is timed in each precision.

use half::bf16;

use crate::{
    cuda::{
        error::CudaError,
        kernels::{ExpertShape, Kernels},
        memory::Buffer,
        network::{ExpertBuffers, ExpertRoom, RowsForExperts},
        tensor::{GpuLinear, StridedRows},
        weights::GpuLoader,
    },
    model::{Formats, LinearWeights, ModelConfig, Tensor, TensorData},
    network::{Experts, TextMlp, cost::ModelWork, format::Number},
};

/// Experts that are timed, all of them active: enough to fill a GPU, and few enough to be made quickly.
const EXPERTS: usize = 16;
/// Crops of the looks of whose work experts have a share, and whose products are timed: those of 1280x720.
pub const MODEL_CROPS: usize = 9;
/// Rows of each: those of an image's positions where each has 8 of 64 experts.
const ROWS: usize = 92;

/// Some experts of a model's sizes, in bf16 on the host.
pub struct ExpertLayer {
    shape: ExpertShape,
    weights: Experts<LinearWeights>,
    /// How much of a look's work is that of experts.
    pub share_of_look: f64,
}

/// The same on a GPU, in one format.
pub struct ReadyExperts {
    shape: ExpertShape,
    experts: Experts<GpuLinear>,
    buffers: ExpertBuffers,
    x: Buffer<bf16>,
    hidden: Buffer<bf16>,
    is_zombie: Buffer<i32>,
}

impl ExpertLayer {
    /// `None` for a model without experts. Weights are `normal` values, again and again.
    pub fn of(config: &ModelConfig, normal: &[f32]) -> Option<Self> {
        let shape = ExpertShape {
            experts: EXPERTS,
            active: EXPERTS,
            ..ExpertShape::of(&config.text)?
        };
        let ExpertShape { width, inner, .. } = shape;
        let weights = Experts {
            router: layer(&[EXPERTS, width], EXPERTS, normal),
            up: layer(&[EXPERTS, 2 * inner, width], 0, normal),
            down: layer(&[EXPERTS, width, inner], 0, normal),
            active: EXPERTS,
        };
        Some(Self {
            shape,
            weights,
            share_of_look: share_of_look(config),
        })
    }

    pub fn tflop(&self) -> f64 {
        let ExpertShape { width, inner, .. } = self.shape;
        2e-12 * (EXPERTS * ROWS * 3 * width * inner) as f64
    }

    pub fn on_gpu(
        &self,
        kernels: &Kernels,
        formats: Formats<'_>,
    ) -> Result<ReadyExperts, CudaError> {
        let stream = &kernels.stream;
        let mut loader = GpuLoader::new(kernels, formats, Some(Number::Bf16))?;
        let room = ExpertRoom {
            shape: self.shape,
            rows: ROWS,
            rows_at_once: ROWS,
            input: formats.experts.input,
            has_adapters: false,
        };
        let x: Vec<bf16> = (0..ROWS * self.shape.width)
            .map(|i| bf16::from_f32((i * 37 % 251) as f32 / 125.0 - 1.0))
            .collect();
        Ok(ReadyExperts {
            shape: self.shape,
            experts: loader.experts(self.weights.clone())?,
            buffers: ExpertBuffers::new(kernels, room)?,
            hidden: Buffer::zeros(stream, x.len())?,
            x: Buffer::from_host(stream, &x)?,
            is_zombie: Buffer::zeros(stream, ROWS)?,
        })
    }
}

impl ReadyExperts {
    /// Queues the layer. The router's logits are equal, so each expert computes all rows.
    pub fn run(&self, kernels: &Kernels) -> Result<(), CudaError> {
        let width = self.shape.width;
        let rows = RowsForExperts {
            x: StridedRows::packed(self.x.start(), width),
            hidden: self.hidden.start(),
            width,
            rows: ROWS,
            is_zombie: self.is_zombie.start(),
            flagged: 0,
            adapters: None,
        };
        self.buffers.add(kernels, &rows, &self.experts)
    }
}

fn layer(shape: &[usize], biases: usize, normal: &[f32]) -> LinearWeights {
    let size = (shape[shape.len() - 1] as f32).sqrt().recip();
    let bytes: Vec<[u8; 2]> = normal
        .iter()
        .map(|x| bf16::from_f32(x * size).to_le_bytes())
        .collect();
    let bytes = bytes.iter().flatten().copied().cycle();
    let count: usize = shape.iter().product();
    LinearWeights {
        weight: Tensor {
            name: "timed experts".into(),
            shape: shape.to_vec(),
            data: TensorData::Encoded {
                format: Number::Bf16,
                bytes: bytes.take(2 * count).collect::<Vec<u8>>().into(),
            },
        },
        row_scales: None,
        bias: Tensor {
            name: "timed biases".into(),
            shape: vec![biases],
            data: TensorData::F32(vec![0.0; biases]),
        },
        large: None,
    }
}

/// Of the work of a look without prompts.
fn share_of_look(config: &ModelConfig) -> f64 {
    let network = config.network();
    let values = network
        .layers
        .text
        .blocks
        .iter()
        .map(|block| match &block.mlp {
            TextMlp::Dense(_) => 0,
            TextMlp::Experts(experts) => {
                let all = experts.up.values() + experts.down.values();
                all / experts.up.count * experts.active
            }
        });
    let gflop = 2e-9 * (values.sum::<usize>() * network.prefix) as f64;
    gflop / ModelWork::of(network).look(MODEL_CROPS, &[]).total()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::released_config;

    #[test]
    fn experts_are_a_sixth_of_a_look_of_moondream_3() {
        let share = share_of_look(&released_config("moondream3.1").unwrap());
        assert!((0.16..0.18).contains(&share), "{share}");
        assert_eq!(share_of_look(&ModelConfig::default()), 0.0);
    }
}
