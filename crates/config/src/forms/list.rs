//! Lists of values of one form.

use super::form::Form;

/// The right elements of a list, after all wrong ones were noted. The form of an element describes itself in the plural.
pub(crate) fn list<'f, T: 'f>(element: Form<'f, T>) -> Form<'f, Vec<T>> {
    Form::new(format!("list of {}", element.text), move |value| {
        let elements = value.list()?;
        Some(
            elements
                .iter()
                .filter_map(|one| element.read(one))
                .collect(),
        )
    })
}

/// A list with at least one element; `empty` is what is wrong with none.
pub(crate) fn full_list<'f, T: 'f>(element: Form<'f, T>, empty: &'f str) -> Form<'f, Vec<T>> {
    let list = list(element);
    Form::new(list.text.clone(), move |value| {
        if value.list()?.is_empty() {
            value.error(empty);
        }
        list.read(value)
    })
}
