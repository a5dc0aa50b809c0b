//! Pictures whose answers are known: objects in COCO's JSON, as labelling tools write it, and questions as lines of JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use spotter_core::{NormBox, PromptText};
use spotter_street::score::TruthObject;

use super::pictures::pictures_in;

/// What is known of some pictures. Empty by default.
#[derive(Debug, Default, PartialEq)]
pub struct LabelledPictures {
    /// What the file of objects names. Every picture in it is labelled with all of them.
    pub categories: BTreeSet<String>,
    /// By the picture's path.
    pub pictures: BTreeMap<PathBuf, PictureLabels>,
}

/// What is known of one picture.
#[derive(Debug, Default, PartialEq)]
pub struct PictureLabels {
    /// By category, where there are some. `None`: the picture is not in the file of objects.
    pub objects: Option<BTreeMap<String, Vec<TruthObject>>>,
    pub questions: Vec<LabelledQuestion>,
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
}

#[derive(Deserialize)]
struct CocoImage {
    id: u64,
    file_name: PathBuf,
    /// Pixels.
    width: f64,
    height: f64,
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

    fn add_objects(&mut self, text: &str, folder: &Path) -> anyhow::Result<()> {
        ensure!(
            self.categories.is_empty(),
            "a file of objects was read already; only one is possible"
        );
        let coco: CocoFile = serde_json::from_str(text)
            .context("it does not have COCO's form with images, annotations and categories")?;
        let mut categories = BTreeMap::new();
        for CocoCategory { id, name } in &coco.categories {
            let name = PromptText::new(name)
                .map_err(|wrong| anyhow::anyhow!("the category {name:?} {wrong}"))?;
            categories.insert(*id, String::from(name));
        }
        let mut images = BTreeMap::new();
        for image in &coco.images {
            let has_size = image.width >= 1.0 && image.height >= 1.0;
            let file = image.file_name.display();
            ensure!(has_size, "the image {file} has no width or height");
            images.insert(image.id, (image, BTreeMap::<_, Vec<_>>::new()));
        }
        for annotation in &coco.annotations {
            let CocoAnnotation {
                image_id,
                category_id,
                bbox: [left, top, width, height],
                iscrowd,
            } = annotation;
            let (image, objects) = images
                .get_mut(image_id)
                .with_context(|| format!("an annotation is of the unknown image {image_id}"))?;
            let category = categories
                .get(category_id)
                .with_context(|| format!("an annotation has the unknown category {category_id}"))?;
            let [x, y] = [left / image.width, top / image.height];
            let [x1, y1] = [x + width / image.width, y + height / image.height];
            objects
                .entry(category.clone())
                .or_default()
                .push(TruthObject {
                    bounds: NormBox::from_corners(x, y, x1, y1),
                    ignored: *iscrowd != 0,
                });
        }
        for (image, objects) in images.into_values() {
            let picture = folder.join(&image.file_name);
            self.pictures.entry(picture).or_default().objects = Some(objects);
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn coco() -> Value {
        json!({
            "info": {},
            "categories": [{"id": 1, "name": "person"}, {"id": 7, "name": "car"}],
            "images": [
                {"id": 3, "file_name": "a.jpg", "width": 100, "height": 50},
                {"id": 4, "file_name": "b.jpg", "width": 10, "height": 10},
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
        let cars = &first.objects.as_ref().unwrap()["car"];
        let expected = NormBox::from_corners(0.1, 0.1, 0.3, 0.3);
        assert!(cars[0].bounds.iou(&expected) > 0.999 && !cars[0].ignored);
        assert!(cars[1].ignored);
        let second = &labelled.pictures[Path::new("in/b.jpg")];
        assert_eq!(second.objects, Some(BTreeMap::new()));
    }

    #[test]
    fn labels_that_do_not_fit_are_named() {
        for (place, value, part) in [
            ("/annotations/0/image_id", json!(9), "the unknown image 9"),
            ("/annotations/0/category_id", json!(2), "unknown category 2"),
            ("/images/0/height", json!(0), "a.jpg has no width or height"),
            ("/categories/0/name", json!(" "), "category \" \""),
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
