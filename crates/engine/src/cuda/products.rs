//! Products with weights: a thin layer of plans over cuBLASLt.
//!
//! `out = epilogue(x w^T + bias)` with x `[rows, inner]`, w `[outputs, inner]`, all row-major. cuBLASLt counts by columns, so
//! it is asked for `out^T = w x^T`: w is its transposed operand A, x its operand B, and the bias is along its rows.
//!
//! A plan (descriptors and an algorithm) is made once for each shape and kept. Rows are rounded up to a bucket, so that
//! there are few shapes; the rows behind the last are computed and never read. For few rows the algorithm is the one that cuBLASLt
//! estimates to be the fastest; for more it is the one that was the fastest in a measurement (`trial`), while the engine starts or at an
//! earlier start (`algorithm_cache`). A step measures nothing: a shape that was not expected has cuBLASLt's estimate. Equal shapes have
//! one plan, so equal steps give equal results.

mod algorithm_cache;
mod handle;
mod plan;
mod trial;

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    path::Path,
    rc::Rc,
    sync::Arc,
};

use cudarc::{
    cublaslt::{result::CublasError, sys},
    driver::CudaStream,
};

use self::{
    algorithm_cache::AlgorithmCache,
    handle::SharedHandle,
    plan::{Algorithm, Descriptors, NOT_SUPPORTED, Operands, ProductQueue},
    trial::Trial,
};
use super::{
    error::CudaError,
    library::Gpu,
    memory::{Buffer, Pointer},
    tensor::Product,
};
use crate::{network::format::Number, ranks::Seat};

pub use algorithm_cache::AlgorithmChoices;
pub use plan::{ProductShape, WORKSPACE_BYTES};

/// From this number of rows on, algorithms are timed; with fewer, products are bound by memory and differ little.
const TIMED_ROWS: usize = 64;
/// Algorithms that cuBLASLt is asked for. It names up to eight for a shape, by an estimate that misses the fastest of many shapes: what it
/// names for [`OTHER_ROWS`] is timed too. BENCHMARKS.md, "Kernels of a look", has what that is worth.
const CANDIDATES: usize = 24;
/// Of the 27 numbers of rows from 64 to 65,536 that were tried on an H200, these four have the fastest algorithms of all others.
const OTHER_ROWS: [usize; 4] = [384, 1280, 3072, 8192];

struct Plan {
    descriptors: Descriptors,
    algorithm: Algorithm,
    is_measured: bool,
}

/// How an algorithm is chosen that no earlier start has chosen.
#[derive(Clone, Copy)]
enum Choice {
    /// By running candidates for up to 60 ms, while the engine starts. They take 160 MB and the operands' size: of this memory where that
    /// is enough, else of the GPU.
    Measured(Option<Pointer<u8>>),
    /// By cuBLASLt's own estimate, without any work of the GPU: in a step.
    Estimated,
}

/// All plans, with the stream that products run on.
pub struct Products {
    /// `None` when cuBLASLt has no algorithm for the shape.
    plans: RefCell<HashMap<ProductShape, Option<Rc<Plan>>>>,
    handle: SharedHandle,
    stream: Arc<CudaStream>,
    workspace: Buffer<u8>,
    algorithms: RefCell<AlgorithmCache>,
    /// Of GPUs that work as one: all use what the first one chooses, because layers that each has whole must give equal bits.
    choices: Option<Seat<AlgorithmChoices>>,
}

impl Products {
    /// For products on `stream`, which owns the workspace: no other stream may use this. Chosen algorithms are kept in
    /// the folder `cache`.
    pub fn new(gpu: &Gpu, stream: Arc<CudaStream>, cache: &Path) -> Result<Self, CudaError> {
        let handle = SharedHandle::of(&gpu.context).map_err(|source| CudaError::Product {
            what: "starting cuBLASLt".into(),
            source,
        })?;
        // SAFETY: it has no preconditions.
        let library = unsafe { sys::cublasLtGetVersion() };
        let about = format!(
            "{}, {}, {} multiprocessors, driver {}, cuBLASLt {library}, workspace {WORKSPACE_BYTES}, other rows {OTHER_ROWS:?}",
            gpu.name, gpu.arch, gpu.multiprocessors, gpu.driver_version
        );
        Ok(Self {
            plans: RefCell::default(),
            handle,
            workspace: Buffer::zeros(&stream, WORKSPACE_BYTES)?,
            algorithms: RefCell::new(AlgorithmCache::open(cache, &gpu.arch, &about)),
            choices: None,
            stream,
        })
    }

    /// The same as those of other GPUs, which have the other seats.
    pub fn of_rank(self, choices: Seat<AlgorithmChoices>) -> Self {
        Self {
            choices: Some(choices),
            ..self
        }
    }

    /// Plans products in advance, so that no step waits for it. Blocks for some seconds the first time on a GPU. `idle` is memory of
    /// zeros that nothing uses meanwhile, for products that are timed, which leave it as it is. Of GPUs that work as one, all call it with
    /// equal shapes, and wait for the first one.
    pub fn prepare(
        &self,
        expected: &[Product],
        idle: Option<Pointer<u8>>,
    ) -> Result<(), CudaError> {
        let Some(seat) = &self.choices else {
            return self.prepare_alone(expected, Choice::Measured(idle));
        };
        if seat.rank() == 0 {
            self.prepare_alone(expected, Choice::Measured(idle))?;
        }
        let own = self.algorithms.borrow().choices().clone();
        let [first, ..] = &seat.exchange(own)?[..] else {
            return Ok(());
        };
        if seat.rank() > 0 {
            self.algorithms.borrow_mut().adopt(first.clone());
            self.prepare_alone(expected, Choice::Estimated)?;
        }
        Ok(())
    }

    fn prepare_alone(&self, expected: &[Product], choice: Choice) -> Result<(), CudaError> {
        let shapes: HashSet<ProductShape> = expected.iter().map(ProductShape::of).collect();
        let mut shapes: Vec<ProductShape> = shapes.into_iter().collect();
        // Large ones first: they raise the clocks of an idle GPU, so that all are timed at full speed.
        shapes.sort_by_key(|shape| std::cmp::Reverse((shape.rows, shape.outputs, shape.inner)));
        let is_timed = |shape: &&ProductShape| {
            let algorithms = self.algorithms.borrow();
            shape.rows >= TIMED_ROWS && algorithms.get(&format!("{shape:?}")).is_none()
        };
        let count = shapes.iter().filter(is_timed).count();
        if count > 0 && matches!(choice, Choice::Measured(_)) {
            tracing::info!("timing {count} shapes of products on the GPU, once for this machine");
        }
        for shape in &shapes {
            self.planned(shape, choice)?;
        }
        self.algorithms.borrow_mut().save();
        Ok(())
    }

    /// False when cuBLASLt has no algorithm for it, which may be so where the result is in e4m3.
    pub fn can_run(&self, product: &Product) -> Result<bool, CudaError> {
        Ok(self
            .planned(&ProductShape::of(product), Choice::Estimated)?
            .is_some())
    }

    pub fn run(&self, product: &Product) -> Result<(), CudaError> {
        let (shape, operands) = (&ProductShape::of(product), Operands::of(product)?);
        if !product.is_within_buffers() {
            return Err(CudaError::Shape(format!(
                "a product of {shape:?} needs larger buffers"
            )));
        }
        let failed = refused("a product", shape);
        let plan = self.planned(shape, Choice::Estimated)?;
        let plan = plan.ok_or(CublasError(NOT_SUPPORTED)).map_err(&failed)?;
        // SAFETY: the operands were checked above to reach over all rows, live as long as the backend and are used on
        // this stream alone, as is the workspace.
        let queued = unsafe {
            plan.descriptors
                .queue(self.queue(), &plan.algorithm, &operands)
        };
        queued.map_err(&failed)
    }

    fn queue(&self) -> ProductQueue<'_> {
        ProductQueue {
            handle: self.handle.raw(),
            workspace: self.workspace.start(),
            stream: &self.stream,
        }
    }

    /// Plans the shape at its first use, and again when its algorithm was estimated and is to be measured.
    fn planned(&self, shape: &ProductShape, choice: Choice) -> Result<Option<Rc<Plan>>, CudaError> {
        let is_enough = |plan: &Option<Rc<Plan>>| {
            let is_measured = plan.as_ref().is_none_or(|plan| plan.is_measured);
            is_measured || matches!(choice, Choice::Estimated)
        };
        if let Some(plan) = self
            .plans
            .borrow()
            .get(shape)
            .filter(|plan| is_enough(plan))
        {
            return Ok(plan.clone());
        }
        let plan = self.plan(shape, choice)?;
        self.plans.borrow_mut().insert(*shape, plan.clone());
        Ok(plan)
    }

    fn plan(&self, shape: &ProductShape, choice: Choice) -> Result<Option<Rc<Plan>>, CudaError> {
        let failed = refused("planning a product", shape);
        let descriptors = Descriptors::new(shape).map_err(&failed)?;
        let algorithm = match self.algorithm(shape, &descriptors, choice) {
            Err(_) if shape.output == Number::E4m3 => return Ok(None),
            found => found.map_err(&failed)?,
        };
        Ok(Some(Rc::new(Plan {
            descriptors,
            algorithm,
            is_measured: matches!(choice, Choice::Measured(_)),
        })))
    }

    /// The algorithm for a shape: kept, timed, or cuBLASLt's first.
    fn algorithm(
        &self,
        shape: &ProductShape,
        descriptors: &Descriptors,
        choice: Choice,
    ) -> Result<Algorithm, CublasError> {
        let handle = self.handle.raw();
        if shape.rows < TIMED_ROWS {
            return Ok(descriptors.candidates(handle, 1)?[0]);
        }
        let name = format!("{shape:?}");
        if let Some(data) = self.algorithms.borrow().get(&name) {
            let known = Algorithm { data };
            if descriptors.can_run(handle, &known) {
                return Ok(known);
            }
        }
        let Choice::Measured(idle) = choice else {
            return Ok(descriptors.candidates(handle, 1)?[0]);
        };
        let candidates = self.candidates(shape, descriptors)?;
        let trial = Trial::new(&self.stream, shape, idle);
        match trial.and_then(|trial| trial.fastest(self.queue(), descriptors, &candidates)) {
            Ok(Some(fastest)) => {
                self.algorithms.borrow_mut().put(name, fastest.data);
                Ok(fastest)
            }
            Ok(None) => Err(CublasError(NOT_SUPPORTED)),
            Err(error) => {
                tracing::debug!("products of {name} are not timed: {error}");
                Ok(candidates[0])
            }
        }
    }

    /// The algorithms that are timed for a shape, at least one: first those that cuBLASLt names for it, the fastest by its estimate before the
    /// others.
    fn candidates(
        &self,
        shape: &ProductShape,
        descriptors: &Descriptors,
    ) -> Result<Vec<Algorithm>, CublasError> {
        let handle = self.handle.raw();
        let mut all = descriptors.candidates(handle, CANDIDATES)?;
        for rows in OTHER_ROWS {
            let other = Descriptors::new(&ProductShape { rows, ..*shape })?;
            // It may have none for them.
            for algorithm in other.candidates(handle, CANDIDATES).unwrap_or_default() {
                if !all.contains(&algorithm) && descriptors.can_run(handle, &algorithm) {
                    all.push(algorithm);
                }
            }
        }
        Ok(all)
    }
}

fn refused(what: &str, shape: &ProductShape) -> impl Fn(CublasError) -> CudaError + use<> {
    let what = format!("{what} of {shape:?}");
    move |source| CudaError::Product {
        what: what.clone(),
        source,
    }
}
