//! Products with weights: a thin layer of plans over cuBLASLt.
//!
//! `out = epilogue(x w^T + bias)` with x `[rows, inner]`, w `[outputs, inner]`, all row-major. cuBLASLt counts by columns, so
//! it is asked for `out^T = w x^T`: w is its transposed operand A, x its operand B, and the bias runs along its rows.
//!
//! A plan (descriptors and an algorithm) is made once for each shape and kept. Rows are rounded up to a bucket, so that
//! there are few shapes; the rows behind the last are computed and never read. For few rows the algorithm is the one that
//! cuBLASLt takes for the fastest; for more it is the one that was the fastest when they were tried (`trial`), now or
//! at an earlier start (`kept`). Equal shapes have one plan, so equal steps give equal results.

mod choice;
mod kept;
mod plan;
mod trial;

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet, hash_map::Entry},
    path::Path,
    sync::Arc,
};

use cudarc::{
    cublaslt::{result::CublasError, sys},
    driver::CudaStream,
};
use half::bf16;

use self::{
    kept::Kept,
    plan::{ALIGNED_BYTES, Algorithm, Descriptors, Handle, Operands, Shape},
    trial::Trial,
};
use super::{
    error::CudaError,
    kernels::Rows,
    library::Gpu,
    memory::{Buffer, Pointer},
};

/// NVIDIA's advice for Hopper; smaller GPUs take what they need of it.
const WORKSPACE_BYTES: usize = 32 << 20;

/// What is done with a sum before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// Plus bias.
    Bias,
    /// Plus bias, through GELU (tanh).
    BiasGelu,
    /// Plus bias, plus what is there.
    BiasAdd,
}

/// Weights and bias of a linear layer.
#[derive(Clone, Copy, Debug)]
pub struct LinearAt {
    /// `[outputs, inner]`.
    pub weight: Pointer<bf16>,
    /// `[outputs]`.
    pub bias: Pointer<bf16>,
    /// The same in f32, for results in f32.
    pub bias_f32: Option<Pointer<f32>>,
    /// Outputs.
    pub outputs: usize,
    /// Inputs.
    pub inner: usize,
}

/// A product in bf16: `out = epilogue(x w^T + bias)` for `rows` rows. `x` and `out` have room for [`bucket`] rows.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// w and bias.
    pub linear: LinearAt,
    /// `[rows, inner]`.
    pub x: Rows,
    /// `[rows, outputs]`.
    pub out: Rows,
    /// Rows.
    pub rows: usize,
    /// What is done with a sum.
    pub epilogue: Epilogue,
}

struct Plan {
    descriptors: Descriptors,
    algorithm: Algorithm,
}

/// All plans, with the stream that products run on.
pub struct Products {
    // Before the handle, which they belong to.
    plans: RefCell<HashMap<Shape, Plan>>,
    handle: Handle,
    stream: Arc<CudaStream>,
    workspace: Buffer<u8>,
    kept: RefCell<Kept>,
}

/// Rows that are computed for `rows` wanted ones. Above 512 at most a fiftieth is for nothing, and there are 50 to 100
/// buckets up to twice as many rows.
pub fn bucket(rows: usize) -> usize {
    match rows {
        0..=64 => rows.next_multiple_of(8),
        65..=512 => rows.next_multiple_of(32),
        _ => rows.next_multiple_of(1 << (rows / 50).ilog2()),
    }
}

impl Products {
    /// For products on `stream`, which owns the workspace: no other stream may use this. Chosen algorithms are kept in
    /// the folder `cache`.
    pub fn new(gpu: &Gpu, stream: Arc<CudaStream>, cache: &Path) -> Result<Self, CudaError> {
        let handle = Handle::new().map_err(refused("starting cuBLASLt"))?;
        // SAFETY: it has no preconditions.
        let library = unsafe { sys::cublasLtGetVersion() };
        let about = format!(
            "{}, {}, {} multiprocessors, driver {}, cuBLASLt {library}, workspace {WORKSPACE_BYTES}",
            gpu.name, gpu.arch, gpu.multiprocessors, gpu.driver_version
        );
        Ok(Self {
            plans: RefCell::default(),
            handle,
            workspace: Buffer::zeros(&stream, WORKSPACE_BYTES)?,
            kept: RefCell::new(Kept::open(cache, &gpu.arch, about)),
            stream,
        })
    }

    /// Plans products that will come, so that no step waits for it. Blocks for some seconds the first time on a GPU.
    pub fn prepare(&self, expected: impl Iterator<Item = Product>) -> Result<(), CudaError> {
        let shapes: HashSet<Shape> = expected.map(|product| shape(&product)).collect();
        let mut shapes: Vec<Shape> = shapes.into_iter().collect();
        // Large ones first: they wake up a GPU that saves power, so that all are timed at its full speed.
        shapes.sort_by_key(|shape| std::cmp::Reverse((shape.rows, shape.outputs, shape.inner)));
        let unknown = || shapes.iter().filter(|shape| self.is_unknown(shape));
        let count = unknown().count();
        let trial = if count > 0 {
            tracing::info!("timing {count} shapes of products on the GPU, once for this machine");
            // Without memory for the largest, each shape asks for its own.
            Trial::new(&self.stream, unknown()).ok()
        } else {
            None
        };
        for (done, shape) in shapes.iter().enumerate() {
            if let Entry::Vacant(new) = self.plans.borrow_mut().entry(*shape) {
                new.insert(self.plan(shape, trial.as_ref())?);
            }
            if count > 0 && (done + 1) % 64 == 0 {
                tracing::info!("{} of {} products planned", done + 1, shapes.len());
            }
        }
        self.save();
        Ok(())
    }

    /// Queues the product.
    pub fn run(&self, product: &Product) -> Result<(), CudaError> {
        let Product { linear, x, out, .. } = product;
        let operands = Operands {
            weight: linear.weight.address(),
            bias: linear.bias.address(),
            x: x.start.address(),
            out: out.start.address(),
        };
        let room = [
            x.start.len() * size_of::<bf16>(),
            linear.weight.len() * size_of::<bf16>(),
            out.start.len() * size_of::<bf16>(),
        ];
        self.go(&shape(product), &operands, room)
    }

    /// The same with a result in f32, `[rows, outputs]`. The layer has its bias in f32 too.
    pub fn run_to_f32(
        &self,
        linear: &LinearAt,
        x: Rows,
        out: Pointer<f32>,
        rows: usize,
    ) -> Result<(), CudaError> {
        let shape = Shape {
            rows: bucket(rows),
            outputs: linear.outputs,
            inner: linear.inner,
            x_stride: x.stride,
            out_stride: linear.outputs,
            epilogue: Epilogue::Bias,
            to_f32: true,
            skew: skew(x.start.address(), out.address()),
        };
        let bias = linear.bias_f32.map(|bias| bias.address());
        let operands = Operands {
            weight: linear.weight.address(),
            bias: bias.unwrap_or(linear.bias.address()),
            x: x.start.address(),
            out: out.address(),
        };
        let room = [
            x.start.len() * size_of::<bf16>(),
            linear.weight.len() * size_of::<bf16>(),
            out.len() * size_of::<f32>(),
        ];
        self.go(&shape, &operands, room)
    }

    fn go(&self, shape: &Shape, operands: &Operands, room: [usize; 3]) -> Result<(), CudaError> {
        let needed = shape.bytes();
        if room.iter().zip(needed).any(|(room, needed)| *room < needed) {
            return Err(CudaError::Shape(format!(
                "a product of {shape:?} reaches beyond a buffer"
            )));
        }
        let mut plans = self.plans.borrow_mut();
        let plan = match plans.entry(*shape) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let plan = self.plan(shape, None)?;
                self.save();
                new.insert(plan)
            }
        };
        let workspace = self.workspace.start();
        // SAFETY: the operands were checked above to reach over all rows, live as long as the backend and are used on this
        // stream alone, as is the workspace.
        unsafe {
            plan.descriptors.queue(
                &self.handle,
                &plan.algorithm,
                operands,
                workspace,
                &self.stream,
            )
        }
        .map_err(refused(&format!("a product of {shape:?}")))
    }

    fn plan(&self, shape: &Shape, trial: Option<&Trial>) -> Result<Plan, CudaError> {
        let what = format!("planning a product of {shape:?}");
        let descriptors = Descriptors::new(shape).map_err(refused(&what))?;
        let algorithm = self
            .algorithm(shape, &descriptors, trial)
            .map_err(refused(&what))?;
        Ok(Plan {
            descriptors,
            algorithm,
        })
    }
}

fn shape(product: &Product) -> Shape {
    let Product { linear, x, out, .. } = product;
    Shape {
        rows: bucket(product.rows),
        outputs: linear.outputs,
        inner: linear.inner,
        x_stride: x.stride,
        out_stride: out.stride,
        epilogue: product.epilogue,
        to_f32: false,
        skew: skew(x.start.address(), out.start.address()),
    }
}

fn skew(x: u64, out: u64) -> (u64, u64) {
    (x % ALIGNED_BYTES, out % ALIGNED_BYTES)
}

fn refused(what: &str) -> impl Fn(CublasError) -> CudaError + use<> {
    let what = what.to_owned();
    move |source| CudaError::Product {
        what: what.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_rows_and_waste_little() {
        let mut last = 0;
        for rows in 1..50_000 {
            let padded = bucket(rows);
            assert!(padded >= rows && bucket(padded) == padded, "{rows}");
            assert!(padded >= last, "{rows}: buffers for more rows hold fewer");
            let most = if rows > 512 {
                rows / 50
            } else {
                rows.max(14) / 2
            };
            assert!(padded - rows <= most, "{rows}");
            last = padded;
        }
    }

    #[test]
    fn buckets_are_few() {
        let buckets: HashSet<usize> = (1..40_000).map(bucket).collect();
        assert!(buckets.len() < 500, "{}", buckets.len());
    }
}
