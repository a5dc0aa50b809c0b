//! The views of a look inside the engine, and how far they are. Pure.

use super::views::LookView;
use crate::scheduler::request::LookId;
use spotter_core::LookFailure;

/// The views of a look that has not ended.
pub(super) struct OpenViews {
    /// In the order in which the scheduler got them.
    views: Vec<OpenView>,
    /// Why prompts have no answer; a failure counts for more than lateness.
    missing: Option<ViewEnd>,
    is_short_answered: bool,
}

struct OpenView {
    /// The scheduler's, for which each view is a look.
    id: LookId,
    seen: LookView,
    progress: ViewProgress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ViewProgress {
    Begun,
    ShortAnswered,
    Ended,
}

/// How a view ended, or all views of a look together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ViewEnd {
    Answered,
    Late,
    Failed(LookFailure),
}

/// What the views of a look together have reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ViewsNews {
    /// Nothing but free texts is missing, or nothing that will come. Once, unless the look ends before.
    ShortAnswered,
    Ended(ViewEnd),
}

impl OpenViews {
    /// `unfit`: why the look has other views that cannot be answered.
    pub fn new(
        views: impl IntoIterator<Item = (LookId, LookView)>,
        unfit: Option<LookFailure>,
    ) -> Self {
        let begun = |(id, seen)| OpenView {
            id,
            seen,
            progress: ViewProgress::Begun,
        };
        Self {
            views: views.into_iter().map(begun).collect(),
            missing: unfit.map(ViewEnd::Failed),
            is_short_answered: false,
        }
    }

    /// What the view sees.
    pub fn seen(&self, view: LookId) -> Option<&LookView> {
        let mut views = self.views.iter();
        Some(&views.find(|other| other.id == view)?.seen)
    }

    /// The view that has a prompt of the look, given by its index, and the prompt's index there; `None` when the view has ended.
    pub fn view_of(&self, prompt: usize) -> Option<(LookId, usize)> {
        let mut open = (self.views.iter()).filter(|view| view.progress != ViewProgress::Ended);
        open.find_map(|view| {
            let index = view
                .seen
                .prompts
                .iter()
                .position(|&other| other == prompt)?;
            Some((view.id, index))
        })
    }

    /// Adds prompts of the look, given by their indices, to a view.
    pub fn follow_up(&mut self, view: LookId, prompts: impl IntoIterator<Item = usize>) {
        let mut views = self.views.iter_mut();
        if let Some(view) = views.find(|other| other.id == view) {
            view.seen.prompts.extend(prompts);
        }
    }

    /// A prompt of the look cannot be answered.
    pub fn unfit(&mut self, why: LookFailure) {
        if !matches!(self.missing, Some(ViewEnd::Failed(_))) {
            self.missing = Some(ViewEnd::Failed(why));
        }
    }

    /// Those that have not ended.
    pub fn open(&self) -> impl Iterator<Item = LookId> {
        let open = self.views.iter();
        open.filter(|view| view.progress != ViewProgress::Ended)
            .map(|view| view.id)
    }

    /// Only free texts of the view are missing.
    pub fn short_answered(&mut self, view: LookId) {
        let mut views = self.views.iter_mut();
        if let Some(view) = views.find(|other| other.id == view)
            && view.progress == ViewProgress::Begun
        {
            view.progress = ViewProgress::ShortAnswered;
        }
    }

    /// A view has ended. Returns the views that end with it, to be cancelled: the look begins with its first view, so when that is
    /// late, those are late too that others wait for.
    pub fn end(&mut self, view: LookId, end: ViewEnd) -> Vec<LookId> {
        let is_first = self.views.first().is_some_and(|first| first.id == view);
        let takes_others = is_first && end == ViewEnd::Late;
        match (&self.missing, &end) {
            (_, ViewEnd::Answered) | (Some(ViewEnd::Failed(_)), _) => {}
            (Some(_), ViewEnd::Late) => {}
            _ => self.missing = Some(end),
        }
        let mut with_it = Vec::new();
        for other in &mut self.views {
            if other.id == view {
                other.progress = ViewProgress::Ended;
            } else if takes_others && other.progress == ViewProgress::Begun {
                other.progress = ViewProgress::Ended;
                with_it.push(other.id);
            }
        }
        with_it
    }

    /// What is new since the last call.
    pub fn news(&mut self) -> Option<ViewsNews> {
        let all = |least: &[ViewProgress]| self.views.iter().all(|v| least.contains(&v.progress));
        if all(&[ViewProgress::Ended]) {
            let end = self.missing.take().unwrap_or(ViewEnd::Answered);
            return Some(ViewsNews::Ended(end));
        }
        let is_new = !self.is_short_answered;
        if is_new && all(&[ViewProgress::Ended, ViewProgress::ShortAnswered]) {
            self.is_short_answered = true;
            return Some(ViewsNews::ShortAnswered);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tiling;
    use spotter_core::PromptView;

    fn three(unfit: Option<LookFailure>) -> OpenViews {
        let view = |index: usize| LookView {
            view: PromptView::default(),
            part: None,
            tiling: Tiling { rows: 1, cols: 1 },
            adapter: None,
            prompts: vec![index],
        };
        let views = (0..3).map(|index| (LookId(index as u64), view(index)));
        OpenViews::new(views, unfit)
    }

    #[test]
    fn look_is_short_answered_once_and_ends_last() {
        let mut views = three(None);
        for id in [0, 1] {
            views.short_answered(LookId(id));
            assert_eq!(views.news(), None);
        }
        assert!(views.end(LookId(1), ViewEnd::Answered).is_empty());
        assert_eq!(views.news(), None);
        views.short_answered(LookId(2));
        assert_eq!(views.news(), Some(ViewsNews::ShortAnswered));
        assert!(views.end(LookId(2), ViewEnd::Answered).is_empty());
        assert_eq!(views.news(), None);
        assert_eq!(views.open().collect::<Vec<_>>(), [LookId(0)]);
        assert!(views.end(LookId(0), ViewEnd::Answered).is_empty());
        assert_eq!(views.news(), Some(ViewsNews::Ended(ViewEnd::Answered)));
    }

    #[test]
    fn late_or_failed_view_concerns_its_own_prompts() {
        let failed = || ViewEnd::Failed(LookFailure::Unfit("no page".into()));
        let mut views = three(None);
        views.short_answered(LookId(0));
        views.end(LookId(2), failed());
        assert_eq!(views.news(), None);
        // The first view's free text is still written.
        assert!(views.end(LookId(1), ViewEnd::Late).is_empty());
        assert_eq!(views.news(), Some(ViewsNews::ShortAnswered));
        views.end(LookId(0), ViewEnd::Answered);
        assert_eq!(views.news(), Some(ViewsNews::Ended(failed())));
    }

    #[test]
    fn unfit_view_fails_the_look_after_the_others_are_answered() {
        let unfit = LookFailure::Unfit("too long".into());
        let mut views = three(Some(unfit.clone()));
        for id in [0, 1, 2] {
            assert_eq!(views.news(), None);
            views.end(LookId(id), ViewEnd::Answered);
        }
        let failed = ViewsNews::Ended(ViewEnd::Failed(unfit));
        assert_eq!(views.news(), Some(failed));
    }

    #[test]
    fn late_first_view_ends_those_without_short_answers() {
        let mut views = three(None);
        views.short_answered(LookId(1));
        assert_eq!(views.end(LookId(0), ViewEnd::Late), [LookId(2)]);
        assert_eq!(views.news(), Some(ViewsNews::ShortAnswered));
        views.end(LookId(1), ViewEnd::Answered);
        assert_eq!(views.news(), Some(ViewsNews::Ended(ViewEnd::Late)));
    }
}
