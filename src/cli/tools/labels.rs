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
            let file = image.file_name.display();
            let has_size = image.width >= 1.0 && image.height >= 1.0;
            ensure!(has_size, "the image {file} has no width or height");
            let labels = self
                .pictures
                .entry(folder.join(&image.file_name))
                .or_default();
            labels.objects = Some(BTreeMap::new());
            images.insert(image.id, image);
        }
        for annotation in &coco.annotations {
            let CocoAnnotation {
                image_id,
                category_id,
                ..
            } = annotation;
            let image = images.get(image_id);
            let image = image
                .with_context(|| format!("an annotation is of the unknown image {image_id}"))?;
            let category = categories
                .get(category_id)
                .with_context(|| format!("an annotation has the unknown category {category_id}"))?;
            let labels = self.pictures.get_mut(&folder.join(&image.file_name));
            if let Some(objects) = labels.and_then(|labels| labels.objects.as_mut()) {
                let objects = objects.entry(category.clone()).or_default();
                objects.push(annotation.object(image));
            }
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

impl CocoAnnotation {
    fn object(&self, image: &CocoImage) -> TruthObject {
        let [left, top, width, height] = self.bbox;
        TruthObject {
            bounds: NormBox::from_corners(
                left / image.width,
                top / image.height,
                (left + width) / image.width,
                (top + height) / image.height,
            ),
            ignored: self.iscrowd != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COCO: &str = r#"{"info": {}, "categories": [{"id": 1, "name": "person"}, {"id": 7, "name": "car"}],
        "images": [{"id": 3, "file_name": "a.jpg", "width": 100, "height": 50}, {"id": 4, "file_name": "b.jpg", "width": 10, "height": 10}],
        "annotations": [{"id": 1, "image_id": 3, "category_id": 7, "bbox": [10, 5, 20, 10], "area": 200},
                        {"id": 2, "image_id": 3, "category_id": 7, "bbox": [0, 0, 100, 50], "iscrowd": 1}]}"#;

    #[test]
    fn objects_and_questions_of_a_picture_are_together() {
        let mut labelled = LabelledPictures::default();
        labelled.add_objects(COCO, Path::new("in")).unwrap();
        let question = r#"{"picture": "a.jpg", "question": "Open?", "answer": "no"}"#;
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
        let error = |change: &dyn Fn(&str) -> String| {
            let mut labelled = LabelledPictures::default();
            let added = labelled.add_objects(&change(COCO), Path::new(""));
            format!("{:#}", added.unwrap_err())
        };
        let other_image = error(&|coco| coco.replace(r#""image_id": 3"#, r#""image_id": 9"#));
        assert_eq!(other_image, "an annotation is of the unknown image 9");
        let category = error(&|coco| coco.replace(r#""category_id": 7"#, r#""category_id": 2"#));
        assert_eq!(category, "an annotation has the unknown category 2");
        let flat = error(&|coco| coco.replace(r#""height": 50"#, r#""height": 0"#));
        assert_eq!(flat, "the image a.jpg has no width or height");
        let unnamed = error(&|coco| coco.replace(r#""person""#, r#"" ""#));
        assert!(unnamed.contains("category \" \""), "{unnamed}");
        let cut = error(&|coco| coco[..40].to_owned());
        assert!(cut.contains("COCO's form"), "{cut}");
        let line = LabelledPictures::default().add_questions("{}", Path::new(""));
        assert!(format!("{:#}", line.unwrap_err()).contains("line 1 is not like"));
    }
}
