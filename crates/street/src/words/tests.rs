use proptest::prelude::*;
use strum::VariantArray as _;

use super::*;
use crate::{
    testing::{night_street, seen as seen_as},
    truth::Visibility,
};

fn seen(class: Class, colour: Option<Colour>) -> SeenObject {
    seen_as(class, colour, Visibility::Present)
}

#[test]
fn captions_name_what_is_visible() {
    let car = |colour| seen(Class::Car, Some(colour));
    let [short, usual, long] = captions(&night_street(vec![
        seen(Class::Dog, None),
        car(Colour::Red),
        car(Colour::Red),
        seen(Class::Person, Some(Colour::Orange)),
    ]));
    assert_eq!(short, "A person, two cars and a dog on a street at night.");
    assert_eq!(
        usual,
        "A person in orange, two cars and a dog on a street on a rainy night."
    );
    assert_eq!(
        long,
        "It is a rainy night. On the street there is a person in orange, two red cars and a dog."
    );
    let [_, usual, _] = captions(&night_street(vec![car(Colour::Orange)]));
    assert_eq!(usual, "An orange car on a street on a rainy night.");
}

fn any_truth() -> impl Strategy<Value = Truth> {
    let one = (0..Class::ALL.len(), 0..Colour::ALL.len()).prop_map(|(class, colour)| {
        let class = Class::ALL[class];
        seen(class, class.is_coloured().then_some(Colour::ALL[colour]))
    });
    let (layouts, weathers) = (SceneLayout::VARIANTS, Weather::VARIANTS);
    let place = (0..layouts.len(), 0..weathers.len(), 0.0_f32..1.0);
    (prop::collection::vec(one, 0..32), place).prop_map(move |(seen, (layout, weather, dark))| {
        Truth {
            layout: layouts[layout],
            light: Daylight::from_darkness(dark),
            weather: weathers[weather],
            seen,
        }
    })
}

proptest! {
    #[test]
    fn captions_fit_and_are_sentences(truth in any_truth()) {
        for caption in captions(&truth) {
            prop_assert!(caption.len() <= CAPTION_BYTES_MAX && caption.ends_with('.'), "{caption}");
            prop_assert!(caption.starts_with(|c: char| c.is_ascii_uppercase()), "{caption}");
            prop_assert!(!caption.contains("  ") && !caption.contains(" a o"), "{caption}");
        }
    }
}
