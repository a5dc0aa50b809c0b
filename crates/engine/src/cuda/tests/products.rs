//! Algorithms that are timed and kept: the product does not depend on the choice, and the choice is made once.

use std::{fs, path::Path, sync::Arc};

use half::bf16;

use super::{Random, Rig, assert_close, f32s, linear, rig};
use crate::cuda::{
    memory::{Buffer, DriverCalls},
    products::Products,
    tensor::{Activations, Epilogue, Product, bucket},
};

const ROWS: usize = 740;
const OUTPUTS: usize = 384;
const INNER: usize = 320;

/// A product of many rows on random values.
struct Case {
    x: Vec<bf16>,
    w: Vec<bf16>,
    b: Vec<bf16>,
    buffers: [Buffer<bf16>; 3],
}

impl Case {
    fn new(rig: &Rig) -> Self {
        let mut random = Random::new(21);
        let x = random.values(bucket(ROWS) * INNER);
        let (w, b) = (random.values(OUTPUTS * INNER), random.values(OUTPUTS));
        Self {
            buffers: [rig.up(&x), rig.up(&w), rig.up(&b)],
            x,
            w,
            b,
        }
    }

    fn product(&self, out: &Buffer<bf16>, epilogue: Epilogue) -> Product {
        let [x, w, b] = &self.buffers;
        Product {
            linear: linear(w, b, OUTPUTS, INNER),
            x: Activations::bf16(x.start(), INNER),
            out: Activations::bf16(out.start(), OUTPUTS),
            rows: ROWS,
            epilogue,
        }
    }

    /// Sums with bias of some rows, and their places.
    fn sums(&self) -> (Vec<usize>, Vec<f32>) {
        let (x, w, b) = (f32s(&self.x), f32s(&self.w), f32s(&self.b));
        let places: Vec<usize> = [0, 1, 63, 64, 300, ROWS - 1]
            .into_iter()
            .flat_map(|row| row * OUTPUTS..(row + 1) * OUTPUTS)
            .collect();
        let sum = |&place: &usize| {
            let (row, out) = (place / OUTPUTS, place % OUTPUTS);
            let (x, w) = (&x[row * INNER..][..INNER], &w[out * INNER..][..INNER]);
            x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>() + b[out]
        };
        let sums = places.iter().map(sum).collect();
        (places, sums)
    }
}

fn choices(kept: &str) -> usize {
    let choices: serde_json::Map<_, _> = serde_json::from_str(kept).unwrap();
    choices.len()
}

fn products(rig: &Rig, folder: &Path) -> Products {
    Products::new(&rig.gpu, Arc::clone(&rig.stream), folder).unwrap()
}

fn run(rig: &Rig, products: &Products, case: &Case, epilogue: Epilogue) -> Vec<f32> {
    let out = rig.up(&vec![bf16::ONE; bucket(ROWS) * OUTPUTS]);
    products.run(&case.product(&out, epilogue)).unwrap();
    rig.down(&out)
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn timed_algorithms_compute_the_formula_and_disturb_nothing() {
    let rig = rig();
    let case = Case::new(&rig);
    let folder = tempfile::tempdir().unwrap();
    let products = products(&rig, folder.path());
    let (places, sums) = case.sums();
    let scratch = rig.room(bucket(ROWS) * OUTPUTS);
    let planned = [Epilogue::Bias, Epilogue::BiasAdd];
    products
        .prepare(
            &planned.map(|epilogue| case.product(&scratch, epilogue)),
            None,
        )
        .unwrap();
    // The previous values are added once, not once for each candidate.
    for (epilogue, more) in [(Epilogue::Bias, 0.0), (Epilogue::BiasAdd, 1.0)] {
        let got = run(&rig, &products, &case, epilogue);
        let got: Vec<f32> = places.iter().map(|&place| got[place]).collect();
        let want: Vec<f32> = sums.iter().map(|sum| sum + more).collect();
        assert_close(&format!("timed {epilogue:?}"), &got, &want, 4e-3);
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn stored_algorithm_gives_the_same_bits() {
    let rig = rig();
    let case = Case::new(&rig);
    let folder = tempfile::tempdir().unwrap();
    let out = rig.room(bucket(ROWS) * OUTPUTS);
    let first = products(&rig, folder.path());
    let all = [Epilogue::Bias, Epilogue::BiasGelu, Epilogue::BiasAdd];
    first
        .prepare(&all.map(|epilogue| case.product(&out, epilogue)), None)
        .unwrap();
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap();
    let file = file.unwrap().path();
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!(choices(&kept), all.len(), "{kept}");
    let second = products(&rig, folder.path());
    for epilogue in all {
        let (a, b) = (
            run(&rig, &first, &case, epilogue),
            run(&rig, &second, &case, epilogue),
        );
        assert_eq!(a[..ROWS * OUTPUTS], b[..ROWS * OUTPUTS], "{epilogue:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), kept, "timed again");
    // A damaged file is ignored.
    fs::write(&file, kept.replace('[', "{")).unwrap();
    let third = products(&rig, folder.path());
    third
        .prepare(&[case.product(&out, Epilogue::Bias)], None)
        .unwrap();
    let got = run(&rig, &third, &case, Epilogue::Bias);
    let (places, sums) = case.sums();
    let got: Vec<f32> = places.iter().map(|&place| got[place]).collect();
    assert_close("timed again", &got, &sums, 4e-3);
    assert_eq!(choices(&fs::read_to_string(&file).unwrap()), 1);
}

// Faults: E7.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn product_that_was_not_planned_allocates_and_measures_nothing() {
    let rig = rig();
    let case = Case::new(&rig);
    let folder = tempfile::tempdir().unwrap();
    let products = products(&rig, folder.path());
    let out = rig.up(&vec![bf16::ONE; bucket(ROWS) * OUTPUTS]);
    let before = DriverCalls::so_far();
    products.run(&case.product(&out, Epilogue::Bias)).unwrap();
    assert_eq!(DriverCalls::so_far(), before, "neither memory nor a wait");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "no choice is kept"
    );
    let (places, sums) = case.sums();
    let got = rig.down(&out);
    let got: Vec<f32> = places.iter().map(|&place| got[place]).collect();
    assert_close("estimated", &got, &sums, 4e-3);
    // Where it is expected later, it is measured then.
    products
        .prepare(&[case.product(&out, Epilogue::Bias)], None)
        .unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn products_timed_in_idle_memory_allocate_nothing_and_leave_zeros() {
    let rig = rig();
    let case = Case::new(&rig);
    let out = rig.room(bucket(ROWS) * OUTPUTS);
    let idle = Buffer::<u8>::zeros(&rig.stream, 256 << 20).unwrap();
    let all = [Epilogue::Bias, Epilogue::BiasGelu, Epilogue::BiasAdd];
    let allocations = |idle| {
        let folder = tempfile::tempdir().unwrap();
        let products = products(&rig, folder.path());
        let before = DriverCalls::so_far().allocations;
        let expected = all.map(|epilogue| case.product(&out, epilogue));
        products.prepare(&expected, idle).unwrap();
        DriverCalls::so_far().allocations - before
    };
    assert_eq!(allocations(Some(idle.start())), 0);
    let bytes = idle.to_host(&rig.stream).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    // Memory that is too small is not used.
    assert_eq!(allocations(Some(idle.start().first(1 << 20))), 3);
}
