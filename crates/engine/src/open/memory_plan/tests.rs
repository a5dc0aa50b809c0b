use std::{fmt::Write as _, fs, path::Path};

use super::*;
use crate::{
    model::{LargeLayer, LayerRange, released_config},
    network::shard::Shard,
};

const GIB: usize = 1 << 30;
const PRECISIONS: [GpuPrecision; 3] = [GpuPrecision::Bf16, GpuPrecision::Fp8, GpuPrecision::Int8];
/// Of a GPU's memory, what the driver and a desktop leave.
const FREE_PERCENT: usize = 93;
/// The beginning of the table in `docs/gpu.md`, up to its rows.
const TABLE: &str = "| model | card | precision | images a step | looks in flight | weights | buffers | KV cache | kept crops | left |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

fn plan_of(precision: GpuPrecision, memory: GpuMemory) -> Result<MemoryPlan, String> {
    MemoryPlan::new(inputs(&ModelConfig::default(), precision, memory))
}

/// Without adapters and experts, for a GPU with fp8.
pub fn inputs(config: &ModelConfig, precision: GpuPrecision, memory: GpuMemory) -> PlanInputs<'_> {
    PlanInputs {
        config,
        bounds: Bounds {
            max_objects: 50,
            max_tokens: 128,
        },
        precision,
        measured: None,
        experts: None,
        adapters: 0,
        has_fp8: true,
        memory,
    }
}

/// Of an empty GPU of a size that is sold.
fn card(gib: usize) -> GpuMemory {
    let total = gib * GIB;
    GpuMemory {
        total,
        free: total / 100 * FREE_PERCENT,
        limit: None,
    }
}

/// With experts in e4m3, as released files have them.
fn with_experts(
    config: &ModelConfig,
    precision: GpuPrecision,
    memory: GpuMemory,
) -> PlanInputs<'_> {
    PlanInputs {
        experts: Some(Number::E4m3),
        ..inputs(config, precision, memory)
    }
}

fn moondream_3() -> ModelConfig {
    released_config("moondream3.1").unwrap()
}

/// The plan's columns of a row of the table in `docs/gpu.md`.
fn table_row(inputs: PlanInputs<'_>) -> String {
    let Ok(plan) = MemoryPlan::new(inputs) else {
        return "does not fit | – | – | – | – | – | –".to_owned();
    };
    let part = plan.footprint;
    let left = inputs.memory.free - part.running() - DRIVER_BYTES;
    let sizes = [part.weights, part.scratch, part.cache, part.kept, left];
    let (images, looks) = (plan.capacity.images, plan.permits);
    format!("{images} | {looks} | {}", sizes.map(shown).join(" | "))
}

/// Of a large GPU with `model.memory`.
fn limited(limit: usize) -> GpuMemory {
    GpuMemory {
        limit: Some(limit),
        ..card(80)
    }
}

#[test]
fn moondream_2_fits_into_its_smallest_gpus() {
    for (precision, gib) in [
        (GpuPrecision::Bf16, 6),
        (GpuPrecision::Fp8, 6),
        (GpuPrecision::Int8, 4),
    ] {
        let plan = plan_of(precision, limited(gib * GIB)).unwrap();
        assert!(plan.total() <= gib * GIB, "{plan}");
    }
}

#[test]
fn moondream_3_fits_into_its_smallest_gpus() {
    let config = moondream_3();
    for (precision, gib) in [
        (GpuPrecision::Bf16, 16),
        (GpuPrecision::Fp8, 16),
        (GpuPrecision::Int8, 12),
        (GpuPrecision::Int4, 8),
    ] {
        let plan = MemoryPlan::new(with_experts(&config, precision, limited(gib * GIB))).unwrap();
        assert!(plan.total() <= gib * GIB, "{plan}");
    }
}

#[test]
fn int4_is_a_remedy_for_models_with_experts_alone() {
    let config = moondream_3();
    let error = MemoryPlan::new(with_experts(&config, GpuPrecision::Bf16, limited(8 * GIB)));
    let error = error.unwrap_err();
    assert!(
        error.contains("set model.precision = \"int4\", which needs "),
        "{error}"
    );
    let error = plan_of(GpuPrecision::Bf16, limited(4 * GIB)).unwrap_err();
    assert!(!error.contains("int4"), "{error}");
}

#[test]
fn plan_keeps_to_its_memory_and_grows_with_it() {
    for precision in PRECISIONS {
        let mut images = 0;
        for tenths in 10..480 {
            let limit = tenths * GIB / 10;
            for memory in [
                limited(limit),
                GpuMemory {
                    total: limit,
                    free: limit,
                    limit: None,
                },
            ] {
                let Ok(plan) = plan_of(precision, memory) else {
                    continue;
                };
                assert!(
                    plan.total() <= memory.usable(),
                    "{precision:?} {memory:?}: {plan}"
                );
                let one_look = plan.capacity.pages / plan.permits;
                assert!(one_look >= 46 + 2 * 23, "{precision:?} {memory:?}: {plan}");
            }
            let Ok(plan) = plan_of(precision, limited(limit)) else {
                assert_eq!(images, 0, "{precision:?} {limit}: fits into less");
                continue;
            };
            assert!(
                plan.capacity.images >= images,
                "{precision:?} {limit}: {plan}"
            );
            images = plan.capacity.images;
        }
        assert_eq!(images, 8, "{precision:?}");
    }
}

#[test]
fn longer_context_of_the_model_changes_no_plan() {
    let mut long = ModelConfig::default();
    long.text.max_context = 32_768;
    for precision in PRECISIONS {
        for memory in [card(6), card(12), card(80), limited(3 * GIB)] {
            let plan = MemoryPlan::new(inputs(&long, precision, memory));
            assert_eq!(plan, plan_of(precision, memory), "{precision:?} {memory:?}");
        }
    }
}

#[test]
fn layers_not_in_int8_take_their_memory_in_bf16() {
    let config = ModelConfig::default();
    let of = |wide: fn(LargeLayer) -> bool| {
        let range = |layer| LayerRange {
            largest_input: 1.0,
            int8_error: f32::from(u8::from(wide(layer))),
        };
        let layers = config.large_layers().map(|layer| (layer, range(layer)));
        let measured = ModelCalibration::new(1, layers.collect());
        let plan = MemoryPlan::new(PlanInputs {
            measured: Some(&measured),
            ..inputs(&config, GpuPrecision::Int8, limited(24 * GIB))
        });
        plan.unwrap().footprint.weights
    };
    let weights = |precision| {
        let plan = plan_of(precision, limited(24 * GIB)).unwrap();
        plan.footprint.weights
    };
    assert_eq!(of(|_| false), weights(GpuPrecision::Int8));
    assert_eq!(of(|_| true), weights(GpuPrecision::Bf16));
    // 4304 rows of 1152 values: 2 bytes each instead of 1, and no scale.
    let one = of(|layer| layer == LargeLayer::EncoderFc1(3));
    assert_eq!(one - of(|_| false), 4304 * (1152 - 4));
}

#[test]
fn large_gpu_has_room_for_all_that_it_can_use() {
    let plan = plan_of(GpuPrecision::Bf16, card(80)).unwrap();
    let capacity = plan.capacity;
    assert_eq!((capacity.images, capacity.rows, plan.permits), (8, 32, 32));
    assert_eq!(
        (capacity.pages, capacity.kept_crops),
        (48 * 46 + 32 * 23, 32 * 13)
    );
    // Smaller GPUs are filled by fewer images.
    assert_eq!(
        plan_of(GpuPrecision::Bf16, card(24))
            .unwrap()
            .capacity
            .images,
        4
    );
}

#[test]
fn model_that_does_not_fit_is_an_error_with_remedies() {
    let free = GpuMemory {
        total: 6 * GIB,
        free: 5 * GIB,
        limit: None,
    };
    assert_eq!(
        plan_of(GpuPrecision::Bf16, free).unwrap_err(),
        "the model needs 5.1 GiB of the GPU's memory in bf16 with one image a step, the fewest (weights 3.6 GiB, buffers 291 MiB, KV cache 552 MiB, driver about 600 MiB); 5.0 GiB are free, of which 4.6 GiB can be used beside decoders and other programs; set model.precision = \"int8\", which needs 3.6 GiB, or end other programs that use the GPU, or use device = \"cpu\""
    );
    let error = plan_of(GpuPrecision::Bf16, limited(4 * GIB)).unwrap_err();
    assert!(
        error.contains(
            "; model.memory allows 4.0 GiB; set model.precision = \"int8\", which needs "
        ),
        "{error}"
    );
    assert!(error.contains(", or raise model.memory to \""), "{error}");
    let error = plan_of(GpuPrecision::Int8, limited(2 * GIB)).unwrap_err();
    assert!(!error.contains("model.precision"), "{error}");
}

#[test]
fn table_of_the_documentation_is_that_of_the_plan() {
    let mut table = TABLE.to_owned();
    let [old, new] = [ModelConfig::default(), moondream_3()];
    let mut rows =
        |model, of_model: PlanInputs<'_>, cards: &[usize], precisions: &[GpuPrecision]| {
            for &gib_of_card in cards {
                for &precision in precisions {
                    let inputs = PlanInputs {
                        precision,
                        memory: card(gib_of_card),
                        ..of_model
                    };
                    let (name, row) = (precision.name(), table_row(inputs));
                    let _ = writeln!(table, "| {model} | {gib_of_card} GB | {name} | {row} |");
                }
            }
        };
    let any = card(0);
    let old = inputs(&old, GpuPrecision::Bf16, any);
    rows("Moondream 2", old, &[6, 8, 12, 16, 24], &PRECISIONS);
    let precisions = [&PRECISIONS[..], &[GpuPrecision::Int4]].concat();
    let new = with_experts(&new, GpuPrecision::Bf16, any);
    rows("Moondream 3.1", new, &[8, 12, 16, 24], &precisions);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gpu.md");
    let page = fs::read_to_string(&path).unwrap();
    let start = page
        .find(TABLE)
        .expect("docs/gpu.md has no table of memory");
    let end = start
        + page[start..]
            .find("\n\n")
            .map_or(page.len() - start, |end| end + 1);
    if std::env::var_os("SPOTTER_WRITE_DOCS").is_some() {
        fs::write(&path, [&page[..start], &table, &page[end..]].concat()).unwrap();
    } else {
        assert!(
            page[start..end] == table,
            "docs/gpu.md is stale; run SPOTTER_WRITE_DOCS=1 cargo test -p spotter-engine memory_plan"
        );
    }
}

#[test]
fn adapters_are_planned_and_named_where_they_do_not_fit() {
    let config = moondream_3();
    let with = |adapters, limit| {
        let inputs = with_experts(&config, GpuPrecision::Int4, limited(limit));
        MemoryPlan::new(PlanInputs { adapters, ..inputs })
    };
    let line = with(4, 12 * GIB).unwrap().to_string();
    assert!(line.contains("adapters 300 MiB"), "{line}");
    assert!(!with(0, 12 * GIB).unwrap().to_string().contains("adapters"));
    // Sixteen fit where the model does.
    assert!(with(16, 8 * GIB).is_ok());
    let error = with(32, 8 * GIB).unwrap_err();
    assert!(error.contains("adapters 2.3 GiB"), "{error}");
    assert!(error.contains("; remove [adapter] tables, or "), "{error}");
}

#[test]
fn each_of_two_gpus_has_half_of_the_cache() {
    let on = |ranks, memory| {
        let config = ModelConfig::default().of_shard(Shard { rank: 0, ranks });
        MemoryPlan::new(inputs(&config.unwrap(), GpuPrecision::Bf16, memory))
    };
    let [one, two] = [1, 2].map(|ranks| on(ranks, card(80)).unwrap());
    assert_eq!(one.capacity, two.capacity);
    assert_eq!(one.footprint.cache, 2 * two.footprint.cache);
    let line = two.to_string();
    assert!(line.starts_with("GPU memory on each of 2 GPUs: "), "{line}");
    let [one, two] = [1, 2].map(|ranks| on(ranks, limited(6 * GIB)).unwrap());
    assert!(two.total() <= 6 * GIB);
    assert!(two.capacity.pages >= one.capacity.pages);
    let error = on(2, limited(GIB)).unwrap_err();
    assert!(
        error.contains(" of the memory of each of 2 GPUs in bf16 "),
        "{error}"
    );
}
