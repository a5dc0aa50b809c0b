use super::*;

const ENTRY: FeatureEntry = FeatureEntry(7);

#[test]
fn entry_filled_in_the_step_is_read_from_its_batch() {
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
