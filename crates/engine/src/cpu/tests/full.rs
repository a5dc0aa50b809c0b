//! Models of true size, with weights made by a rule. About 9 GB of memory and some minutes.

use std::{path::Path, sync::Arc};

use serde_json::Value;

use super::{
    capacity, cases::compare_objects, config, golden::assert_exact, picture, run, run_with,
};
use crate::{
    cpu::{CpuBackend, CpuSettings},
    model::{Formats, SequenceOutput, Weights, tiling},
    scheduler::backend::{CropSource, FeatureEntry, ImageJob, Pick, PickResult},
    testing::{
        golden_bins::{BinShares, network_of},
        golden_full::FullSet,
        golden_model::{job, prompt, run_step, sequence, step_of},
        json,
        rule::Rule,
        whole_golden_set,
    },
};
use spotter_core::ManualClock;

#[test]
#[ignore = "takes minutes of all cores and 9 GB of memory; run make test-full"]
fn whole_golden_data_at_true_widths() {
    let set = whole_golden_set("md2-full");
    let config = config(&set);
    let weights = Weights::load(&config, &mut Rule::read(&set)).unwrap();
    let capacity = CpuSettings {
        formats: Formats::F32,
        slots: 1,
        rows: 4,
        images: 1,
        pages: 23 + 4 * 5,
        page_tokens: 32,
        kept_crops: config.vision.max_crops + 1,
    };
    let mut backend =
        CpuBackend::new(&config, weights, capacity, Arc::new(ManualClock::default())).unwrap();
    let golden = FullSet::read(&set);
    let mut report = FullSet::nothing(&set);
    let full = json(&set.join("expected/full.json"));
    for (image, about) in full["images"].as_object().unwrap() {
        let cases = about["cases"].as_object().unwrap();
        let sequences = cases.values().map(|case| sequence(case, &config)).collect();
        // The reference goes on when a third token beats the end, so its bins are compared with the end left out.
        let go_on = |pick| match pick {
            Pick::CoordOrEnd => Pick::Coord,
            other => other,
        };
        let picture = picture(&set, image);
        let tiling = tiling(picture.width(), picture.height(), &config.vision);
        // For the comparison of features, which are not encoded again.
        let keep = |entry| CropSource::Encoded(Some(FeatureEntry(entry)));
        let job = ImageJob {
            crops: (0..tiling.crops() as u32).map(keep).collect(),
            ..job(&backend, picture)
        };
        let found = run_with(&mut backend, Some(job), sequences, go_on);
        for ((name, case), found) in cases.iter().zip(found) {
            compare(&format!("{image} {name}"), &case["expected"], &found);
        }
        for name in ["detect", "point"] {
            check_first_decision(&mut backend, name, &cases[name]["expected"]);
        }
        golden.add_image(&mut backend, (&set, image), &config, &mut report);
    }
    report.print("md2-full on the CPU");
    assert_exact(&report, |kind| kind.contains("_block"));
}

/// Three blocks of a Moondream 3, two of which have 64 experts.
#[test]
#[ignore = "needs the whole golden data, and 5 GB of memory; run make test-full"]
fn whole_golden_data_with_64_experts_at_true_widths() {
    let set = whole_golden_set("md3-wide");
    let (config, mut backend) = (config(&set), with_rule(&set));
    for (name, case) in json(&set.join("expected/wide.json"))["cases"]
        .as_object()
        .unwrap()
    {
        let picture = picture(&set, case["case"]["image"].as_str().unwrap());
        let found = run(&mut backend, Some(picture), vec![sequence(case, &config)]);
        compare(name, &case["expected"], &found[0]);
    }
}

/// The README: in f32 bins differ where the margin is below a thousandth, if at all.
#[test]
#[ignore = "needs the whole golden data, and 5 GB of memory; run make test-full"]
fn whole_golden_data_has_equal_bins_with_64_experts() {
    let set = whole_golden_set("md3-bins");
    let mut backend = with_rule(&network_of(&set));
    let shares = BinShares::of(&mut backend, &set);
    println!("md3-bins on the CPU: {shares}");

    assert_eq!(shares.bins().all, 1902);
    assert!(shares.largest_margin < 1e-3, "{shares}");
    assert_eq!(shares.signs.equal, shares.signs.all, "{shares}");
}

/// Of the network in this folder.
fn with_rule(set: &Path) -> CpuBackend {
    let config = config(set);
    let weights = Weights::load(&config, &mut Rule::read(set)).unwrap();
    let clock = Arc::new(ManualClock::default());
    CpuBackend::new(&config, weights, capacity(&config, 16), clock).unwrap()
}

fn compare(name: &str, expected: &Value, found: &SequenceOutput) {
    match expected["objects"].as_array() {
        Some(objects) => compare_objects(name, objects, found),
        None => assert_eq!(
            Value::from(found.tokens.clone()),
            expected["phases"][0]["tokens"],
            "{name}"
        ),
    }
}

/// The end against the coordinate after the prompt, from the prefix that is still in the cache.
fn check_first_decision(backend: &mut CpuBackend, name: &str, expected: &Value) {
    let ids: Vec<u32> = serde_json::from_value(expected["prompt_ids"].clone()).unwrap();
    let row = prompt(backend, 0, &ids, Pick::CoordOrEnd);
    let picked = run_step(backend, step_of(vec![row])).picked[0][0];
    let decision = &expected["decisions"][0];
    let on = decision["coord_minus_eos"].as_f64().unwrap();
    let (ended, on_found) = match picked {
        PickResult::End { probability } => (true, 1.0 - f64::from(probability)),
        PickResult::Coord { probability, .. } => (false, f64::from(probability)),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(decision["stop_if_restricted"], ended, "{name}");
    let on_wanted = 1.0 / (1.0 + (-on).exp());
    assert!(
        (on_found - on_wanted).abs() < 1e-4,
        "{name}: {on_found}, wants {on_wanted}"
    );
}
