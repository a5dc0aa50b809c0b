//! Judged events as labels in COCO's form, with the keys of LVIS that say what was judged on each picture: docs/scores.md.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use rusqlite::{Connection, Row};
use serde::Serialize;
use spotter_core::{EventVerdict, Location, NormBox, NormPoint, rounded};
use spotter_pictures::jpeg_size;
use spotter_quality::Judgement;

use crate::{
    filter::{HistoryFilter, named},
    looks::{read_location, read_locations},
    marks::{is_among, judgement, stored_verdict},
};

/// Half the sides of the square that a point has as its box, parts of the picture's width and height.
const POINT_REACH: f64 = 0.02;
/// The size of a JPEG is within its first bytes.
const HEAD_MAX_BYTES: u64 = 64 << 10;

/// Labels of pictures. Empty by default.
#[derive(Debug, Default, Serialize)]
pub struct JudgedSet {
    info: LabelsInfo,
    images: Vec<LabelledImage>,
    annotations: Vec<LabelledBox>,
    categories: Vec<JudgedCategory>,
    /// Alarms that are none. COCO has no key for them, and as annotations other programs would take them for objects.
    wrong: Vec<WrongBox>,
    #[serde(skip)]
    known_categories: BTreeMap<(String, &'static str), u64>,
}

#[derive(Debug, Serialize)]
struct LabelsInfo {
    description: &'static str,
}

impl Default for LabelsInfo {
    fn default() -> Self {
        Self {
            description: "events of Spotter that a person judged",
        }
    }
}

#[derive(Debug, Serialize)]
struct LabelledImage {
    id: u64,
    file_name: String,
    width: u32,
    height: u32,
    camera: String,
    event: String,
    neg_category_ids: Vec<u64>,
    not_exhaustive_category_ids: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct LabelledBox {
    id: u64,
    image_id: u64,
    category_id: u64,
    /// Left, top, width and height in pixels.
    bbox: [f64; 4],
    area: f64,
    iscrowd: u8,
}

#[derive(Debug, Serialize)]
struct WrongBox {
    image_id: u64,
    category_id: u64,
    bbox: [f64; 4],
}

#[derive(Debug, Serialize)]
struct JudgedCategory {
    id: u64,
    name: String,
    kind: &'static str,
}

/// A judged event with its picture.
#[derive(Clone, Debug)]
pub(crate) struct JudgedPicture {
    pub id: String,
    /// The number of its file.
    pub picture: u64,
    camera: String,
    words: String,
    verdict: EventVerdict,
    /// Of the event.
    location: Location,
    /// What no one judged.
    others: Vec<Location>,
    all_found: bool,
}

/// A picture file: its name in the set, width and height.
pub(crate) struct PictureFile {
    pub name: String,
    pub size: (u32, u32),
}

impl JudgedPicture {
    /// `None`: the row is not one that Spotter writes.
    fn read(row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        let (mark, location): (String, String) = (row.get(4)?, row.get(5)?);
        let objects: Option<String> = row.get(7)?;
        let verdict = stored_verdict(&mark, objects.as_deref());
        let Some((verdict, location)) = verdict.zip(read_location(&location)) else {
            return Ok(None);
        };
        Ok(Some(Self {
            id: row.get(0)?,
            picture: row.get::<_, i64>(1)? as u64,
            camera: row.get(2)?,
            words: row.get(3)?,
            verdict,
            location,
            others: read_locations(&row.get::<_, String>(6)?),
            all_found: row.get(8)?,
        }))
    }

    fn kind(&self) -> &'static str {
        match self.location {
            Location::Box(_) => "detect",
            Location::Point(_) => "point",
        }
    }

    fn right(&self) -> &[Location] {
        match &self.verdict {
            EventVerdict::Right => std::slice::from_ref(&self.location),
            EventVerdict::Wrong => &[],
            EventVerdict::Corrected(objects) => objects,
        }
    }

    fn is_wrong(&self) -> bool {
        judgement(self.location, &self.verdict) == Judgement::Wrong
    }

    /// Those at the place of a right one are judged with it.
    fn unjudged(&self) -> impl Iterator<Item = &Location> {
        let others = self.others.iter();
        others.filter(|other| !is_among(**other, self.right()))
    }
}

/// Those of the filter that have a picture.
pub(crate) fn judged_pictures(
    connection: &Connection,
    filter: &HistoryFilter,
) -> rusqlite::Result<Vec<JudgedPicture>> {
    let (conditions, values) = filter.conditions("e");
    let sql = format!(
        "SELECT e.id, e.picture, e.camera, e.words, e.mark, e.location, e.others, e.objects, e.all_found FROM history e
         WHERE e.mark IS NOT NULL AND e.picture_bytes > 0 AND {conditions} ORDER BY e.start_ms, e.number"
    );
    let mut rows = connection.prepare(&sql)?;
    let rows = rows.query_map(&*named(&values), JudgedPicture::read)?;
    rows.filter_map(Result::transpose).collect()
}

impl JudgedSet {
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    pub(crate) fn add(&mut self, judged: &JudgedPicture, file: PictureFile) {
        let (image, category) = (self.images.len() as u64 + 1, self.category(judged));
        let size = file.size;
        let right = judged.right().iter().map(|location| (location, 0));
        let unjudged = judged.unjudged().map(|location| (location, 1));
        let labels = Vec::from_iter(right.chain(unjudged));
        let is_negative = judged.all_found && labels.is_empty();
        // A point elsewhere may be on the same object.
        let is_exhaustive = is_negative || judged.all_found && judged.kind() == "detect";
        let listed = |is_listed: bool| {
            if is_listed {
                vec![category]
            } else {
                Vec::new()
            }
        };
        self.images.push(LabelledImage {
            id: image,
            file_name: file.name,
            width: size.0,
            height: size.1,
            camera: judged.camera.clone(),
            event: judged.id.clone(),
            neg_category_ids: listed(is_negative),
            not_exhaustive_category_ids: listed(!is_exhaustive),
        });
        for (location, iscrowd) in labels {
            let bbox = pixels(*location, size);
            self.annotations.push(LabelledBox {
                id: self.annotations.len() as u64 + 1,
                image_id: image,
                category_id: category,
                bbox,
                area: rounded(bbox[2] * bbox[3], 2),
                iscrowd,
            });
        }
        if judged.is_wrong() {
            self.wrong.push(WrongBox {
                image_id: image,
                category_id: category,
                bbox: pixels(judged.location, size),
            });
        }
    }

    fn category(&mut self, judged: &JudgedPicture) -> u64 {
        let next = self.categories.len() as u64 + 1;
        let (name, kind) = (judged.words.clone(), judged.kind());
        let id = self.known_categories.entry((name, kind)).or_insert(next);
        if *id == next {
            self.categories.push(JudgedCategory {
                id: next,
                name: judged.words.clone(),
                kind,
            });
        }
        *id
    }
}

fn pixels(location: Location, size: (u32, u32)) -> [f64; 4] {
    let NormBox { x0, y0, x1, y1 } = match location {
        Location::Box(bounds) => bounds,
        Location::Point(NormPoint { x, y }) => {
            let by = POINT_REACH;
            NormBox::from_corners(x - by, y - by, x + by, y + by)
        }
    };
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    let pixels = [
        x0 * width,
        y0 * height,
        (x1 - x0) * width,
        (y1 - y0) * height,
    ];
    pixels.map(|number| rounded(number, 2))
}

/// Width and height of a picture. `None`: it is none, or there is no such file.
pub(crate) fn picture_size(path: &Path) -> io::Result<Option<(u32, u32)>> {
    let mut head = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(HEAD_MAX_BYTES).read_to_end(&mut head)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let size = jpeg_size(&head);
    Ok(size.map(|(width, height)| (width as u32, height as u32)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(x0: f64) -> Location {
        Location::Box(NormBox::from_corners(x0, 0.25, x0 + 0.125, 0.75))
    }

    fn judged(verdict: EventVerdict, location: Location) -> JudgedPicture {
        JudgedPicture {
            id: "b7c1-gate-1".into(),
            picture: 1,
            camera: "gate".into(),
            words: "a red car".into(),
            verdict,
            location,
            others: Vec::new(),
            all_found: false,
        }
    }

    /// The keys of LVIS; whether each annotation is a crowd, with its left edge; the left edges of wrong ones.
    fn labels(judged: &JudgedPicture) -> Value {
        let mut set = JudgedSet::default();
        let name = "a.jpg".to_owned();
        let size = (800, 400);
        set.add(judged, PictureFile { name, size });
        let set = json!(set);
        let image = &set["images"][0];
        let left = |list: &str, key: &str| {
            let all = set[list].as_array().unwrap().iter();
            Vec::from_iter(all.map(|one| json!([one[key], one["bbox"][0]])))
        };
        json!([
            image["neg_category_ids"],
            image["not_exhaustive_category_ids"],
            left("annotations", "iscrowd"),
            left("wrong", "category_id"),
        ])
    }

    #[test]
    fn judgements_become_labels_of_what_was_judged() {
        let others = vec![at(0.5), at(0.25)];
        let mut right = judged(EventVerdict::Right, at(0.25));
        assert_eq!(labels(&right), json!([[], [1], [[0, 200.0]], []]));
        right.others.clone_from(&others);
        assert_eq!(
            labels(&right),
            json!([[], [1], [[0, 200.0], [1, 400.0]], []])
        );
        right.all_found = true;
        assert_eq!(
            labels(&right),
            json!([[], [], [[0, 200.0], [1, 400.0]], []])
        );

        let mut wrong = judged(EventVerdict::Wrong, at(0.25));
        assert_eq!(labels(&wrong), json!([[], [1], [], [[1, 200.0]]]));
        wrong.all_found = true;
        assert_eq!(labels(&wrong), json!([[1], [], [], [[1, 200.0]]]));
        wrong.others = vec![at(0.5)];
        assert_eq!(labels(&wrong), json!([[], [], [[1, 400.0]], [[1, 200.0]]]));

        // The box was moved a little, and one that was missed was added; the other one is judged with it.
        let mut corrected = judged(EventVerdict::Corrected(vec![at(0.26), at(0.51)]), at(0.25));
        corrected.others = others;
        let found = json!([[0, 208.0], [0, 408.0]]);
        assert_eq!(labels(&corrected), json!([[], [1], found, []]));
        corrected.location = at(0.75);
        assert_eq!(labels(&corrected), json!([[], [1], found, [[1, 600.0]]]));
    }

    #[test]
    fn right_points_say_nothing_about_other_points() {
        let point = Location::Point(NormPoint::new(0.5, 0.5));
        let mut right = judged(EventVerdict::Right, point);
        right.all_found = true;
        assert_eq!(labels(&right), json!([[], [1], [[0, 384.0]], []]));
        let mut wrong = judged(EventVerdict::Wrong, point);
        wrong.all_found = true;
        assert_eq!(labels(&wrong), json!([[1], [], [], [[1, 384.0]]]));
    }

    #[test]
    fn categories_are_words_and_kinds() {
        let mut set = JudgedSet::default();
        let boxed = judged(EventVerdict::Right, at(0.25));
        let pointed = judged(
            EventVerdict::Right,
            Location::Point(NormPoint::new(0.5, 0.5)),
        );
        for picture in [&boxed, &pointed, &boxed] {
            let (name, size) = (String::new(), (800, 400));
            set.add(picture, PictureFile { name, size });
        }
        let set = json!(set);
        let kinds = [("detect", 1), ("point", 2)];
        let kinds = kinds.map(|(kind, id)| json!({"id": id, "name": "a red car", "kind": kind}));
        assert_eq!(set["categories"], json!(kinds));
        assert_eq!(set["annotations"][2]["category_id"], 1);
        assert_eq!(set["annotations"][0]["area"], 100.0 * 200.0);
    }
}
