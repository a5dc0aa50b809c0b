//! What is wrong with a configuration, in words an operator can act on, and its place in the file.

use std::{cell::RefCell, fmt, ops::Range};

use super::key::{Key, SectionReference};

/// Whether a problem forbids the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The program does not start.
    Error,
    /// The program logs it at each start.
    Warning,
}

/// One thing that is wrong. No field ever contains a secret or the login of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The file as it was named on the command line.
    pub file: String,
    /// Line and column, counted from 1, the column in characters; `None` when the file could not be read at all.
    pub place: Option<(usize, usize)>,
    /// The key with its tables, such as `camera.gate.rate`; empty when the problem is with the whole file.
    pub key: String,
    /// What is wrong and what to do.
    pub text: String,
    pub severity: Severity,
}

impl ConfigProblem {
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// `site.toml:14:1 camera.gate.promts: unknown key; did you mean "prompt"?`
impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.map(|(line, column)| format!(":{line}:{column}"));
        let key = match self.key.as_str() {
            "" => String::new(),
            key => format!(" {key}"),
        };
        let warning = match self.severity {
            Severity::Error => "",
            Severity::Warning => "warning: ",
        };
        let (file, place, text) = (&self.file, place.unwrap_or_default(), &self.text);
        write!(f, "{file}{place}{key}: {warning}{text}")
    }
}

/// Everything that is wrong with one file, sorted by line; at least one is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblems {
    file: String,
    list: Vec<ConfigProblem>,
}

impl ConfigProblems {
    /// Of `file`, in the order in which they are to be shown.
    pub fn new(file: &str, list: Vec<ConfigProblem>) -> Self {
        Self {
            file: file.to_owned(),
            list,
        }
    }

    /// The one mistake of a file whose text is not known.
    pub fn of_file(file: &str, text: String) -> Self {
        let problem = ConfigProblem {
            file: file.to_owned(),
            place: None,
            key: String::new(),
            text,
            severity: Severity::Error,
        };
        Self::new(file, vec![problem])
    }

    /// Errors and warnings, sorted by line.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigProblem> {
        self.list.iter()
    }

    /// How many of them forbid the start.
    pub fn errors(&self) -> usize {
        self.list
            .iter()
            .filter(|problem| problem.is_error())
            .count()
    }
}

/// All lines, then how many errors there are and what to do next.
impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.list {
            writeln!(f, "{problem}")?;
        }
        let count = self.errors();
        let noun = if count == 1 { "problem" } else { "problems" };
        let file = &self.file;
        write!(
            f,
            "{count} {noun}; `spotter check {file}` tests the file and starts nothing"
        )
    }
}

impl std::error::Error for ConfigProblems {}

/// Collects the problems of one file while it is read. Shared by all readers of the file, hence the cell.
pub(crate) struct Notes {
    file: String,
    text: String,
    list: RefCell<Vec<ConfigProblem>>,
    /// The reference of the keys that are read, where it is wanted.
    sections: Option<RefCell<Vec<SectionReference>>>,
}

impl Notes {
    /// Of a file named `file` that holds `text`.
    pub(crate) fn new(file: &str, text: &str) -> Self {
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
            list: RefCell::default(),
            sections: None,
        }
    }

    /// Of no file: readers describe their keys.
    pub(crate) fn describing() -> Self {
        Self {
            sections: Some(RefCell::default()),
            ..Self::new("", "")
        }
    }

    pub(crate) fn is_describing(&self) -> bool {
        self.sections.is_some()
    }

    /// Begins a section of the reference, or goes on with it.
    pub(super) fn describe_section(&self, section: SectionReference) {
        let Some(sections) = &self.sections else {
            return;
        };
        let is_new = (sections.borrow().iter()).all(|known| known.title != section.title);
        sections.borrow_mut().extend(is_new.then_some(section));
    }

    /// Adds a key to a section, once.
    pub(super) fn describe_key(&self, title: &str, key: Key, form: String, default: String) {
        let mut sections = self.sections.as_ref().map(RefCell::borrow_mut);
        let mut sections = sections.iter_mut().flat_map(|sections| sections.iter_mut());
        if let Some(section) = sections.find(|section| section.title == title)
            && section.keys.iter().all(|known| known.0.name != key.name)
        {
            section.keys.push((key, form, default));
        }
    }

    pub(crate) fn into_sections(self) -> Vec<SectionReference> {
        self.sections.map(RefCell::into_inner).unwrap_or_default()
    }

    /// Notes an error about the bytes `span`.
    pub(crate) fn error(&self, span: &Range<usize>, key: &str, text: impl Into<String>) {
        self.add(Severity::Error, span, key, text.into());
    }

    /// Notes something that does not forbid the start.
    pub(crate) fn warning(&self, span: &Range<usize>, key: &str, text: impl Into<String>) {
        self.add(Severity::Warning, span, key, text.into());
    }

    /// Notes a problem about the bytes `span`.
    pub(crate) fn add(&self, severity: Severity, span: &Range<usize>, key: &str, text: String) {
        self.list.borrow_mut().push(ConfigProblem {
            file: self.file.clone(),
            place: Some(self.place_of(span.start)),
            key: key.to_owned(),
            text,
            severity,
        });
    }

    /// Errors and warnings, sorted by place.
    pub(crate) fn into_list(self) -> Vec<ConfigProblem> {
        let mut list = self.list.into_inner();
        list.sort_by_key(|problem| problem.place);
        list
    }

    /// The warnings when nothing forbids the start, else everything; sorted by place.
    pub(crate) fn into_result(self) -> Result<Vec<ConfigProblem>, ConfigProblems> {
        let file = self.file.clone();
        let list = self.into_list();
        if list.iter().any(ConfigProblem::is_error) {
            Err(ConfigProblems::new(&file, list))
        } else {
            Ok(list)
        }
    }

    fn place_of(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[line_start..].chars().count() + 1;
        (before.matches('\n').count() + 1, column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let notes = Notes::new("a.toml", "x = 1\ny = \"ä\" # z");
        for offset in [0, 6, 13] {
            notes.error(&(offset..offset), "key", "wrong");
        }
        let shown = notes.into_result().unwrap_err().to_string();
        assert_eq!(
            shown,
            "a.toml:1:1 key: wrong\na.toml:2:1 key: wrong\na.toml:2:7 key: wrong\n\
             3 problems; `spotter check a.toml` tests the file and starts nothing"
        );
    }

    #[test]
    fn warnings_alone_do_not_forbid_the_start() {
        let notes = Notes::new("a.toml", "x = 1");
        notes.warning(&(4..5), "x", "odd");
        let warnings = notes.into_result().unwrap();
        assert_eq!(warnings[0].to_string(), "a.toml:1:5 x: warning: odd");
    }
}
