//! Texts that are published while the model writes them: from pieces of answers to parts, with one last part for each text. Pure.
//!
//! ```text
//!   piece ─▶ part        answer, failed look, lost engine ─▶ last part
//! ```

use std::{collections::BTreeMap, sync::Arc};

use spotter_core::{
    AnswerPiece, CameraId, FrameId, Prompt, PromptId, PublishedText, TextPart, TextSubject, TrackId,
};

/// The texts that are being written, by frame and prompt. `None`: one that is not published, or not any more. As many as prompts of looks in flight.
#[derive(Debug, Default)]
pub struct TextParts(BTreeMap<(FrameId, PromptId), Option<PublishedText>>);

/// What a question asks to describe: the prompt that has found it, and its track.
pub type DescribedTrack<'a> = (&'a PromptId, &'a TrackId);

impl TextParts {
    /// A piece of an answer. `described` of a question that is asked once: `None` when it is about no track, or about one that has ended.
    pub fn add<'a>(
        &mut self,
        frame: &FrameId,
        prompt: &Prompt,
        piece: &AnswerPiece,
        described: impl FnOnce() -> Option<DescribedTrack<'a>>,
    ) -> Option<TextPart> {
        // The thoughts before an answer are in its detection.
        let AnswerPiece::Text(text) = piece else {
            return None;
        };
        let key = (frame.clone(), prompt.id.clone());
        let of = self.0.entry(key).or_insert_with(|| {
            let (prompt, subject) = match prompt.revision {
                Prompt::ONCE => {
                    let (prompt, track) = described()?;
                    (prompt, TextSubject::Track(track.clone()))
                }
                _ => (&prompt.id, TextSubject::Frame(frame.number)),
            };
            Some(PublishedText {
                camera: frame.camera.clone(),
                prompt: prompt.clone(),
                subject,
            })
        });
        Some(TextPart {
            of: of.clone()?,
            text: text.clone(),
            is_last: false,
        })
    }

    /// No piece of this answer follows. The last part, if a piece was published.
    pub fn end(&mut self, frame: &FrameId, prompt: &PromptId) -> Option<TextPart> {
        let of = self.0.remove(&(frame.clone(), prompt.clone()))?;
        of.map(last)
    }

    /// The same of all these prompts.
    pub fn end_all(&mut self, frame: &FrameId, prompts: &[Arc<Prompt>]) -> Vec<TextPart> {
        let prompts = prompts.iter();
        prompts.filter_map(|p| self.end(frame, &p.id)).collect()
    }

    /// No piece of these cameras follows.
    pub fn lose(&mut self, is_lost: impl Fn(&CameraId) -> bool) -> Vec<TextPart> {
        let lost = self
            .0
            .extract_if(.., |(frame, _), _| is_lost(&frame.camera));
        lost.filter_map(|(_, of)| of.map(last)).collect()
    }

    /// What follows of the texts of this camera is not published.
    pub fn close(&mut self, camera: &CameraId) -> Vec<TextPart> {
        let texts = self.0.iter_mut();
        let own = texts.filter(|((frame, _), _)| frame.camera == *camera);
        own.filter_map(|(_, of)| of.take().map(last)).collect()
    }
}

fn last(of: PublishedText) -> TextPart {
    TextPart {
        of,
        text: String::new(),
        is_last: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::Task;

    fn frame(number: u64) -> FrameId {
        FrameId {
            camera: CameraId::new("gate").unwrap(),
            number,
        }
    }

    fn prompt(id: &str, revision: u32) -> Prompt {
        let id = PromptId::new(id).unwrap();
        Prompt::new(id, revision, Task::question("What is going on?"))
    }

    /// As a consumer reads them: subject, text, whether it is the last.
    fn read(parts: impl IntoIterator<Item = TextPart>) -> Vec<(String, String, bool)> {
        let read = |part: TextPart| {
            let of = match part.of.subject {
                TextSubject::Frame(number) => format!("{} {number}", part.of.prompt),
                TextSubject::Track(track) => format!("{} {track}", part.of.prompt),
            };
            (of, part.text, part.is_last)
        };
        parts.into_iter().map(read).collect()
    }

    fn part(of: &str, text: &str, is_last: bool) -> (String, String, bool) {
        (of.into(), text.into(), is_last)
    }

    /// An answer on frame 1 and a description of a person, whose question is asked once.
    fn two_texts(texts: &mut TextParts) -> Vec<TextPart> {
        let (person, track) = (
            PromptId::new("person").unwrap(),
            TrackId::new("b7c1", &frame(1).camera, 37),
        );
        let mut add = |prompt: &Prompt, piece| {
            let described = || Some((&person, &track)).filter(|_| prompt.id.as_str() != "over");
            texts.add(&frame(1), prompt, &piece, described)
        };
        let text = |text: &str| AnswerPiece::Text(text.into());
        [
            add(
                &prompt("scene", 3),
                AnswerPiece::Thought("Who is it?".into()),
            ),
            add(&prompt("scene", 3), text("It ")),
            add(&prompt("describe-1", Prompt::ONCE), text("She waves.")),
            add(&prompt("over", Prompt::ONCE), text("He has left.")),
            add(&prompt("scene", 3), text("rains.")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    #[test]
    fn each_text_has_one_last_part_however_it_ends() {
        let mut texts = TextParts::default();
        let begun = [
            part("scene 1", "It ", false),
            part("person b7c1-gate-37", "She waves.", false),
            part("scene 1", "rains.", false),
        ];
        let (scene, person) = (
            part("scene 1", "", true),
            part("person b7c1-gate-37", "", true),
        );

        assert_eq!(read(two_texts(&mut texts)), begun);
        let answered = texts.end(&frame(1), &prompt("scene", 3).id);
        assert_eq!(read(answered), std::slice::from_ref(&scene));
        assert!(texts.end(&frame(1), &prompt("scene", 3).id).is_none());
        let unanswered = [prompt("describe-1", 0), prompt("over", 0)].map(Arc::new);
        assert_eq!(
            read(texts.end_all(&frame(1), &unanswered)),
            std::slice::from_ref(&person)
        );
        assert!(texts.0.is_empty());

        // An engine is lost.
        two_texts(&mut texts);
        let both = [person, scene];
        assert_eq!(read(texts.lose(|camera| *camera == frame(1).camera)), both);
        assert!(texts.0.is_empty());

        // Another node of the fleet has the camera; the engine goes on writing.
        two_texts(&mut texts);
        assert_eq!(read(texts.close(&frame(1).camera)), both);
        assert!(two_texts(&mut texts).is_empty());
        let prompts = ["scene", "describe-1", "over"].map(|id| Arc::new(prompt(id, 3)));
        assert!(texts.end_all(&frame(1), &prompts).is_empty());
        assert!(texts.0.is_empty());
    }
}
