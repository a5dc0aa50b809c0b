use super::*;

const ENTRY: FeatureEntry = FeatureEntry(7);

#[test]
fn entry_is_read_before_it_is_filled_and_from_the_batch_after() {
    let mut step = StepCrops::default();
    let (kept, encoded) = (CropSource::Kept(ENTRY), CropSource::Encoded(Some(ENTRY)));
    let placed = |is_fresh, source| PlacedCrop { is_fresh, source };
    assert_eq!(
        step.place(&[CropSource::Encoded(None), kept]),
        [placed(true, 0), placed(false, -8)]
    );
    assert_eq!(step.place(&[encoded]), [placed(true, 1)]);
    assert_eq!(step.place(&[kept]), [placed(false, 1)]);
    assert_eq!(step.batch(), 2);
    assert_eq!(step.keeps(), [FeatureCopy { place: 1, entry: 7 }]);
}
