//! Which tokens may come next where the model is not free: the answer is one of given texts.
//!
//! The texts' tokens form a tree. The cursor is a node of it; allowed are the edges that leave it, and the end where a text
//! is complete. Walking the tree needs the decided token, so these masks are made on the host, after the commit.
//!
//! ```text
//!   "open", "opened", "shut"      root ── open ──▶ ● end allowed ── ed ──▶ ● end allowed
//!                                   └──── shut ──▶ ● end allowed
//! ```

use std::collections::BTreeMap;

use super::backend::TokenMask;

/// A place in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(usize);

/// The texts that an answer may be, as token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    next: BTreeMap<u32, usize>,
    complete: bool,
}

impl Choices {
    /// A tree of `texts`; `None` when there is none, or only an empty one.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a [u32]>) -> Option<Self> {
        let mut nodes = vec![Node::default()];
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            let mut at = 0;
            for &id in text {
                let new = nodes.len();
                let child = *nodes[at].next.entry(id).or_insert(new);
                if child == new {
                    nodes.push(Node::default());
                }
                at = child;
            }
            nodes[at].complete = true;
        }
        (nodes.len() > 1).then_some(Self { nodes })
    }

    /// What may follow the cursor: at least one id, the end (`eos`) among them where a text is complete.
    pub fn mask(&self, at: Cursor, eos: u32, vocab: usize) -> TokenMask {
        let mut mask = TokenMask::none(vocab);
        let node = &self.nodes[at.0];
        node.next.keys().for_each(|&id| mask.allow(id));
        if node.complete {
            mask.allow(eos);
        }
        mask
    }

    /// The cursor behind `id`. An id that the mask did not allow leaves it where it is.
    pub fn after(&self, at: Cursor, id: u32) -> Cursor {
        Cursor(self.nodes[at.0].next.get(&id).copied().unwrap_or(at.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EOS: u32 = 31;

    proptest! {
        #[test]
        fn each_walk_along_the_masks_ends_with_a_choice(
            texts in prop::collection::btree_set(prop::collection::vec(0_u32..5, 1..5), 1..6),
            turns in prop::collection::vec(any::<prop::sample::Index>(), 8),
        ) {
            let choices = Choices::new(texts.iter().map(Vec::as_slice)).expect("texts");
            let (mut at, mut walked) = (Cursor::default(), Vec::new());
            for turn in turns {
                let mask = choices.mask(at, EOS, 40);
                let allowed: Vec<u32> = (0..40).filter(|&id| mask.allows(id)).collect();
                prop_assert!(!allowed.is_empty());
                let id = *turn.get(&allowed);
                if id == EOS {
                    break;
                }
                walked.push(id);
                at = choices.after(at, id);
            }
            prop_assert!(texts.contains(&walked), "{walked:?}");
        }

        #[test]
        fn each_choice_can_be_reached(
            texts in prop::collection::btree_set(prop::collection::vec(0_u32..5, 1..5), 1..6),
        ) {
            let choices = Choices::new(texts.iter().map(Vec::as_slice)).expect("texts");
            for text in &texts {
                let mut at = Cursor::default();
                for &id in text {
                    prop_assert!(choices.mask(at, EOS, 40).allows(id));
                    at = choices.after(at, id);
                }
                prop_assert!(choices.mask(at, EOS, 40).allows(EOS));
            }
        }
    }

    #[test]
    fn empty_list_of_choices_is_rejected() {
        assert_eq!(Choices::new([]), None);
        assert_eq!(Choices::new([&[][..]]), None);
    }
}
