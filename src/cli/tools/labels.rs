//! Pictures whose answers are known: objects in COCO's JSON, as labelling tools write it, and questions as lines of JSON.
//!
//! With LVIS's keys, an image says which categories were judged on it, and of which all objects are labelled: docs/scores.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use spotter_core::{NormBox, PromptText, Task};
use spotter_history::{HistoryFilter, HistoryReader};
use spotter_street::score::TruthObject;

use super::pictures::pictures_in;

/// What is known of some pictures. Empty by default.
#[derive(Debug, Default, PartialEq)]
pub struct LabelledPictures {
    /// What the file of objects names.
    pub categories: BTreeSet<LabelledCategory>,
    /// By the picture's path.
    pub pictures: BTreeMap<PathBuf, PictureLabels>,
}

/// What is known of one picture.
#[derive(Debug, Default, PartialEq)]
pub struct PictureLabels {
    /// Of each category that was judged on it. `None`: the picture is not in the file of objects.
    pub objects: Option<CategoryLabels>,
    pub questions: Vec<LabelledQuestion>,
}

pub type CategoryLabels = BTreeMap<LabelledCategory, ObjectLabels>;

/// What is looked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelledCategory {
    pub name: String,
    /// `detect` or `point`; `None`: the file does not say how.
    pub kind: Option<String>,
}

/// What is known of a category on a picture. By default nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectLabels {
    pub things: Vec<TruthObject>,
    /// Where a person says that nothing is.
    pub wrong: Vec<NormBox>,
    /// All objects are among the things. Else, what is on none of both is neither right nor wrong.
    pub is_complete: bool,
}

/// A line of a file of questions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelledQuestion {
    picture: PathBuf,
    pub question: String,
    pub answer: String,
    /// What the answer may be; empty: a free answer.
    #[serde(default)]
    pub choices: Vec<String>,
}

/// A file of COCO's object detection; what Spotter does not use is ignored.
#[derive(Deserialize)]
struct CocoFile {
    images: Vec<CocoImage>,
    annotations: Vec<CocoAnnotation>,
    categories: Vec<CocoCategory>,
    /// Spotter's own: alarms that were judged wrong.
    #[serde(default)]
    wrong: Vec<CocoAnnotation>,
}

#[derive(Deserialize)]
struct CocoImage {
    id: u64,
    file_name: PathBuf,
    /// Pixels.
    width: f64,
    height: f64,
    /// Categories of which the picture has none. With one of the two keys of LVIS, an image says what was judged on it.
    neg_category_ids: Option<Vec<u64>>,
    /// Categories of which not all objects are labelled.
    not_exhaustive_category_ids: Option<Vec<u64>>,
}

#[derive(Deserialize)]
struct CocoAnnotation {
    image_id: u64,
    category_id: u64,
    /// Left, top, width and height in pixels.
    bbox: [f64; 4],
    /// 1: a box around several objects, which is neither required nor wrong.
    #[serde(default)]
    iscrowd: u8,
}

#[derive(Deserialize)]
struct CocoCategory {
    id: u64,
    name: String,
    /// Spotter's own.
    kind: Option<String>,
}

impl LabelledPictures {
    /// Reads a file of objects (`.json`) or of questions (`.jsonl`), or the names of the pictures in a folder, which have no labels. The
    /// pictures of a file are in `folder`, else beside the file. Blocks.
    pub fn add(&mut self, path: &Path, folder: Option<&Path>) -> anyhow::Result<()> {
        let name = path.display();
        if path.is_dir() {
            for picture in pictures_in(path)? {
                self.pictures.entry(picture).or_default();
            }
            return Ok(());
        }
        let text = fs::read_to_string(path).with_context(|| format!("reading {name}"))?;
        let folder = folder.or(path.parent()).unwrap_or(Path::new("."));
        let added = match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => self.add_objects(&text, folder),
            Some("jsonl") => self.add_questions(&text, folder),
            _ => bail!(
                "{name}: labels of objects are a .json file in COCO's form, questions are a .jsonl file"
            ),
        };
        added.with_context(|| name.to_string())
    }

    /// Adds the events in the state directory of a daemon that a person judged. Blocks.
    pub fn add_judged(&mut self, state_dir: &Path, camera: Option<&str>) -> anyhow::Result<()> {
        let mut filter = HistoryFilter::default().judged();
        if let Some(camera) = camera {
            let set = filter.set("camera", camera);
            set.map_err(|why| anyhow::anyhow!("--camera: {camera:?} {why}"))?;
        }
        let (reader, folder) = (HistoryReader::new(state_dir), state_dir.display());
        let set = reader.judged_set(&filter)?.with_context(|| {
            format!("{folder}: no database of a daemon here; `node.state_dir` of the configuration names the directory, --state-dir sets it")
        })?;
        ensure!(
            !set.is_empty(),
            "{folder}: no judged events with pictures{}; judge some in the view Judge of the page",
            camera.map_or(String::new(), |camera| format!(" of the camera {camera:?}"))
        );
        let labels = serde_json::to_string(&set)?;
        self.add_objects(&labels, &reader.pictures())
            .context("the judged events")
    }

    fn add_objects(&mut self, text: &str, folder: &Path) -> anyhow::Result<()> {
        ensure!(
            self.categories.is_empty(),
            "a file of objects was read already; only one is possible"
        );
        let coco: CocoFile = serde_json::from_str(text)
            .context("it does not have COCO's form with images, annotations and categories")?;
        let categories = known_categories(&coco.categories)?;
        let mut images = BTreeMap::new();
        for image in &coco.images {
            let judged = image.judged(&categories)?;
            images.insert(image.id, (image, judged));
        }
        for (annotation, is_wrong) in coco.places() {
            let (id, category) = (annotation.image_id, annotation.category_id);
            let (image, judged) = images
                .get_mut(&id)
                .with_context(|| format!("an annotation is of the unknown image {id}"))?;
            let category = categories
                .get(&category)
                .with_context(|| format!("an annotation has the unknown category {category}"))?;
            let labels = judged.entry(category.clone()).or_insert(ObjectLabels {
                is_complete: !is_wrong,
                ..ObjectLabels::default()
            });
            labels.add(annotation, image, is_wrong);
        }
        for (image, judged) in images.into_values() {
            let picture = folder.join(&image.file_name);
            self.pictures.entry(picture).or_default().objects = Some(judged);
        }
        self.categories.extend(categories.into_values());
        Ok(())
    }

    fn add_questions(&mut self, text: &str, folder: &Path) -> anyhow::Result<()> {
        let lines = text.lines().enumerate();
        for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let question: LabelledQuestion = serde_json::from_str(line).with_context(|| {
                let line = index + 1;
                format!(
                    r#"line {line} is not like {{"picture": "a.jpg", "question": "Is the gate open?", "answer": "Yes"}}"#
                )
            })?;
            let picture = folder.join(&question.picture);
            self.pictures
                .entry(picture)
                .or_default()
                .questions
                .push(question);
        }
        Ok(())
    }
}

fn known_categories(
    categories: &[CocoCategory],
) -> anyhow::Result<BTreeMap<u64, LabelledCategory>> {
    let known = categories.iter().map(|CocoCategory { id, name, kind }| {
        let name = PromptText::new(name)
            .map_err(|wrong| anyhow::anyhow!("the category {name:?} {wrong}"))?;
        let is_known = |kind: &String| ["detect", "point"].contains(&&**kind);
        let category = LabelledCategory {
            name: name.into(),
            kind: kind.clone().filter(is_known),
        };
        Ok((*id, category))
    });
    known.collect()
}

impl CocoFile {
    /// All boxes, and whether they were judged wrong.
    fn places(&self) -> impl Iterator<Item = (&CocoAnnotation, bool)> {
        let annotations = self.annotations.iter().map(|place| (place, false));
        annotations.chain(self.wrong.iter().map(|place| (place, true)))
    }
}

impl CocoImage {
    /// The categories that were judged on it, as far as annotations do not say it.
    fn judged(
        &self,
        categories: &BTreeMap<u64, LabelledCategory>,
    ) -> anyhow::Result<CategoryLabels> {
        let file = self.file_name.display();
        let has_size = self.width >= 1.0 && self.height >= 1.0;
        ensure!(has_size, "the image {file} has no width or height");
        let (negative, partial) = (&self.neg_category_ids, &self.not_exhaustive_category_ids);
        let labels = |is_complete| ObjectLabels {
            is_complete,
            ..ObjectLabels::default()
        };
        if negative.is_none() && partial.is_none() {
            let all = categories.values().cloned();
            return Ok(all.map(|category| (category, labels(true))).collect());
        }
        let listed = |ids: &Option<Vec<u64>>, is_complete| {
            let ids = ids.clone().unwrap_or_default();
            ids.into_iter().map(move |id| (id, is_complete))
        };
        let listed = listed(negative, true).chain(listed(partial, false));
        let judged = listed.map(|(id, is_complete)| {
            let category = categories
                .get(&id)
                .with_context(|| format!("the image {file} has the unknown category {id}"))?;
            Ok((category.clone(), labels(is_complete)))
        });
        judged.collect()
    }
}

impl ObjectLabels {
    fn add(&mut self, annotation: &CocoAnnotation, image: &CocoImage, is_wrong: bool) {
        let [left, top, width, height] = annotation.bbox;
        let [x, y] = [left / image.width, top / image.height];
        let [x1, y1] = [x + width / image.width, y + height / image.height];
        let bounds = NormBox::from_corners(x, y, x1, y1);
        let ignored = annotation.iscrowd != 0;
        match is_wrong {
            true => self.wrong.push(bounds),
            false => self.things.push(TruthObject { bounds, ignored }),
        }
    }
}

impl fmt::Display for LabelledCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Some(kind) => write!(f, "{} ({kind})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl LabelledCategory {
    /// The task looks for it.
    pub fn is_of(&self, task: &Task) -> bool {
        self.name == task.text() && self.kind.as_ref().is_none_or(|kind| kind == task.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn category(name: &str, kind: Option<&str>) -> LabelledCategory {
        LabelledCategory {
            name: name.into(),
            kind: kind.map(str::to_owned),
        }
    }

    fn coco() -> Value {
        json!({
            "info": {},
            "categories": [{"id": 1, "name": "person"}, {"id": 7, "name": "car"}],
            "images": [
                {"id": 3, "file_name": "a.jpg", "width": 100, "height": 50},
                {"id": 4, "file_name": "b.jpg", "width": 10, "height": 10, "neg_category_ids": null},
            ],
            "annotations": [
                {"id": 1, "image_id": 3, "category_id": 7, "bbox": [10, 5, 20, 10], "area": 200},
                {"id": 2, "image_id": 3, "category_id": 7, "bbox": [0, 0, 100, 50], "iscrowd": 1},
            ],
        })
    }

    #[test]
    fn objects_and_questions_of_a_picture_are_together() {
        let mut labelled = LabelledPictures::default();
        let objects = coco().to_string();
        labelled.add_objects(&objects, Path::new("in")).unwrap();
        let question = json!({"picture": "a.jpg", "question": "Open?", "answer": "no"});
        let questions = format!("{question}\n\n{question}\n");
        labelled.add_questions(&questions, Path::new("in")).unwrap();
        assert_eq!(labelled.categories.len(), 2);
        assert_eq!(labelled.pictures.len(), 2);
        let first = &labelled.pictures[Path::new("in/a.jpg")];
        assert_eq!(first.questions.len(), 2);
        let objects = first.objects.as_ref().unwrap();
        let cars = &objects[&category("car", None)].things;
        let expected = NormBox::from_corners(0.1, 0.1, 0.3, 0.3);
        assert!(cars[0].bounds.iou(&expected) > 0.999 && !cars[0].ignored);
        assert!(cars[1].ignored);
        // Without LVIS's keys, each picture is labelled with all categories.
        let second = labelled.pictures[Path::new("in/b.jpg")].objects.as_ref();
        let labels = Vec::from_iter(second.unwrap().values());
        let none = ObjectLabels {
            is_complete: true,
            ..ObjectLabels::default()
        };
        assert_eq!(labels, [&none; 2]);
    }

    #[test]
    fn picture_has_the_categories_that_were_judged_on_it() {
        let mut coco = coco();
        coco["categories"][1]["kind"] = json!("point");
        coco["categories"][0]["kind"] = json!("of people");
        let image = |id, negative: &[u64], partial: &[u64]| {
            json!({
                "id": id, "file_name": format!("{id}.jpg"), "width": 100, "height": 50,
                "neg_category_ids": negative, "not_exhaustive_category_ids": partial,
            })
        };
        coco["images"] = json!([image(3, &[1], &[]), image(4, &[], &[7]), image(5, &[], &[])]);
        coco["wrong"] = json!([
            {"image_id": 3, "category_id": 1, "bbox": [10, 5, 20, 10]},
            {"image_id": 5, "category_id": 1, "bbox": [10, 5, 20, 10]},
        ]);
        let mut labelled = LabelledPictures::default();
        let read = labelled.add_objects(&coco.to_string(), Path::new(""));
        read.unwrap();
        let of = |picture: &str| {
            let objects = labelled.pictures[Path::new(picture)].objects.as_ref();
            let objects = objects.unwrap().iter().map(|(category, labels)| {
                let counts = (labels.things.len(), labels.wrong.len());
                (category.to_string(), counts, labels.is_complete)
            });
            Vec::from_iter(objects)
        };
        let (car, person) = ("car (point)".to_owned(), "person".to_owned());
        let both = [(car.clone(), (2, 0), true), (person.clone(), (0, 1), true)];
        assert_eq!(of("3.jpg"), both);
        assert_eq!(of("4.jpg"), [(car, (0, 0), false)]);
        assert_eq!(of("5.jpg"), [(person, (0, 1), false)]);
    }

    #[test]
    fn labels_that_do_not_fit_are_named() {
        for (place, value, part) in [
            ("/annotations/0/image_id", json!(9), "the unknown image 9"),
            ("/annotations/0/category_id", json!(2), "unknown category 2"),
            ("/images/0/height", json!(0), "a.jpg has no width or height"),
            ("/categories/0/name", json!(" "), "category \" \""),
            (
                "/images/1/neg_category_ids",
                json!([3]),
                "b.jpg has the unknown category 3",
            ),
            ("/images", json!(null), "COCO's form"),
        ] {
            let mut coco = coco();
            *coco.pointer_mut(place).unwrap() = value;
            let mut labelled = LabelledPictures::default();
            let added = labelled.add_objects(&coco.to_string(), Path::new(""));
            let error = format!("{:#}", added.unwrap_err());
            assert!(error.contains(part), "{error}");
        }
        let line = LabelledPictures::default().add_questions("{}", Path::new(""));
        assert!(format!("{:#}", line.unwrap_err()).contains("line 1 is not like"));
    }
}
