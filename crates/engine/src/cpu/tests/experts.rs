//! A layer of experts whose inputs are rounded to e4m3, row by row, as fp8 has them on a GPU: the CPU's parts of it give what the set says.

use super::{assert_near, config, weights};
use crate::{
    cpu::{
        experts::{gated, routes},
        ops::linear,
        text::TextModel,
    },
    network::TextMlp,
    testing::{
        Tensors,
        e4m3::{rounded_row, value},
        tensors, whole_golden_set,
    },
};

/// The first layer of experts in the prefill of an image.
struct Stages(Tensors);

impl Stages {
    /// Row `row` of a tensor whose rows have `width` values.
    fn row(&self, name: &str, width: usize, row: usize) -> &[f32] {
        &self.0[name].1[row * width..][..width]
    }

    /// The row `x`, rounded; its numbers and its scale must be those of the set, but for `differing` of them that are one step off.
    fn rounded(
        &self,
        [name, numbers, scale]: [&str; 3],
        row: usize,
        differing: &mut usize,
    ) -> Vec<f32> {
        let width = *self.0[name].0.last().unwrap();
        let (found, found_scale) = rounded_row(self.row(name, width, row));
        assert_eq!([found_scale], self.row(scale, 1, row), "{name}: {row}");
        for (found, wanted) in found.iter().zip(self.row(numbers, width, row)) {
            let off = (f32::from(*found) - wanted).abs();
            assert!(off <= 1.0, "{name}: {row}: {found}, wants {wanted}");
            *differing += usize::from(off > 0.0);
        }
        found
            .into_iter()
            .map(|number| value(number) * found_scale)
            .collect()
    }
}

#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_of_experts_with_rounded_inputs() {
    let set = whole_golden_set("md3-fp8-tiny");
    let config = config(&set);
    let text = TextModel::new(&config, weights(&set, &config).text, &linear).unwrap();
    let first = config.text.moe.as_ref().unwrap().start_layer;
    let TextMlp::Experts(experts) = &text.layers.blocks[first].mlp else {
        panic!("block {first} has no experts");
    };
    let stages = Stages(tensors(&set.join("expected/fp8act/moe_stages.safetensors")));
    let (width, active) = (experts.up.inputs(), experts.active);
    let (inner, mut off) = (experts.down.inputs(), 0);
    for row in 0..stages.0["x"].0[0] {
        let logits = experts.router.forward(stages.row("x", width, row));
        assert_near(
            "router",
            &logits,
            stages.row("router.logits", logits.len(), row),
        );
        let chosen = routes(&logits, active);
        let x = stages.rounded(["x", "x_q", "x_scale"], row, &mut off);
        let mut sum = vec![0.0; width];
        for (slot, route) in (row * active..).zip(&chosen) {
            let [id] = stages.row("router.ids", 1, slot) else {
                unreachable!()
            };
            assert_eq!(route.expert as f32, *id, "slot {slot}");
            let up = experts.up.expert(route.expert, &x);
            assert_near("h", &up, stages.row("h", 2 * inner, slot));
            let act = gated(&up, 2 * inner);
            assert_near("act", &act, stages.row("act", inner, slot));
            let act = stages.rounded(["act", "act_q", "act_scale"], slot, &mut off);
            let y = experts.down.expert(route.expert, &act);
            assert_near("y", &y, stages.row("y", width, slot));
            sum.iter_mut()
                .zip(&y)
                .for_each(|(sum, y)| *sum += route.share * y);
        }
        assert_near("out", &sum, stages.row("out", width, row));
    }
    assert!(off <= 1, "{off} numbers are others");
}
