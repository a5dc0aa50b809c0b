//! Launch templates (`pipelines/*.launch`): text with `{name}` placeholders, filled with checked values.
//!
//! URLs, paths and logins never pass through here: they are set as properties of the element named `source`.

/// What replaces a placeholder.
#[derive(Clone, Copy, Debug)]
pub enum TemplateValue<'a> {
    /// A property's value: quoted, so that no text can become an element.
    Text(&'a str),
    /// Elements of a launch text, inserted unchanged.
    Elements(&'a str),
}

/// Why a template cannot be filled. The tests of the templates find it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template has a placeholder for which there is no value.
    #[error("placeholder {{{0}}} has no value")]
    Unfilled(String),
    /// There is a value that the template does not use.
    #[error("value {0:?} has no placeholder")]
    Unused(String),
}

/// Fills every `{name}` of `template`; lines that begin with `#` are comments. Braces around anything else than a
/// lower-case name are left alone, because caps use them for lists.
pub fn fill(template: &str, values: &[(&str, TemplateValue<'_>)]) -> Result<String, TemplateError> {
    let text: Vec<&str> = template
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let text = text.join(" ");
    let mut filled = String::with_capacity(text.len());
    let mut used = Vec::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find('{') {
        filled.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let Some(name) = rest.split_once('}').map(|(name, _)| name).filter(is_name) else {
            filled.push('{');
            continue;
        };
        let (_, value) = values
            .iter()
            .find(|(key, _)| *key == name)
            .ok_or_else(|| TemplateError::Unfilled(name.to_owned()))?;
        match value {
            TemplateValue::Text(text) => filled.push_str(&quoted(text)),
            TemplateValue::Elements(elements) => filled.push_str(elements),
        }
        used.push(name);
        rest = &rest[name.len() + 1..];
    }
    filled.push_str(rest);
    match values.iter().find(|(key, _)| !used.contains(key)) {
        Some((key, _)) => Err(TemplateError::Unused((*key).to_owned())),
        None => Ok(filled),
    }
}

fn is_name(name: &&str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_and_quotes() {
        let values = [
            ("path", TemplateValue::Text("a \" ! fakesink \\")),
            (
                "decoder",
                TemplateValue::Elements("avdec_h264 name=decoder"),
            ),
        ];
        let template = "# a comment {x}\n filesrc location={path} !\n {decoder} ! f={ A, B }";
        assert_eq!(
            fill(template, &values).unwrap(),
            "filesrc location=\"a \\\" ! fakesink \\\\\" ! avdec_h264 name=decoder ! f={ A, B }"
        );
    }

    #[test]
    fn every_placeholder_and_every_value_counts() {
        let value = [("a", TemplateValue::Text("1"))];
        assert_eq!(
            fill("x={a} y={b}", &value),
            Err(TemplateError::Unfilled("b".into()))
        );
        assert_eq!(fill("x", &value), Err(TemplateError::Unused("a".into())));
    }
}
