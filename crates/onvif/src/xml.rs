//! XML in and out.
//!
//! Elements are found by their local names: cameras differ in prefixes, and some in the year of a namespace. Where two services have an
//! element of one name, the request decides what the answer is about. Reading takes time and memory in proportion to the text.

use quick_xml::{
    Reader,
    escape::{escape, resolve_predefined_entity},
    events::{BytesStart, Event},
};

use spotter_core::plain_line;

/// Elements in elements; a tree that is deeper would take too much of the stack.
const MAX_DEPTH: usize = 64;
/// Cameras declare some dozens of namespaces in the first element.
const MAX_ATTRIBUTES: usize = 256;
/// Namespaces are looked for around each of them.
const MAX_PARAMETERS: usize = 64;
/// More than any answer has; limits the memory that a wrong one takes.
const MAX_NODES: usize = 200_000;

/// An element, or the document around the first one.
#[derive(Debug, Default)]
pub(crate) struct XmlNode {
    /// Without its prefix.
    pub(crate) name: String,
    prefix: String,
    /// With prefixes.
    attributes: Vec<(String, String)>,
    text: String,
    pub(crate) children: Vec<Self>,
    /// Only of children of `ReferenceParameters`.
    pub(crate) namespace: String,
}

impl XmlNode {
    fn of(element: &BytesStart<'_>) -> Result<Self, String> {
        let mut attributes = Vec::new();
        // The check for equal names compares each with all others.
        for attribute in element.attributes().with_checks(false) {
            if attributes.len() == MAX_ATTRIBUTES {
                return Err(format!(
                    "an element has more than {MAX_ATTRIBUTES} attributes"
                ));
            }
            let attribute = attribute.map_err(|error| no_xml(&error))?;
            let value = attribute.normalized_value(Default::default());
            let value = value.map_err(|error| no_xml(&error))?;
            attributes.push((attribute.key.as_ref().to_owned(), value.into_owned()));
        }
        let name = element.name();
        let (prefix, local) = name.as_ref().split_once(':').unwrap_or(("", name.as_ref()));
        Ok(Self {
            name: local.to_owned(),
            prefix: prefix.to_owned(),
            attributes,
            ..Self::default()
        })
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The document. Errors are plain lines.
pub(crate) fn read_xml(text: &str) -> Result<XmlNode, String> {
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    // The document and the open elements in it.
    let mut open = vec![XmlNode::default()];
    let (mut nodes, mut parameters) = (0, 0);
    loop {
        let event = reader.read_event().map_err(|error| no_xml(&error))?;
        let text = match &event {
            Event::Start(element) | Event::Empty(element) => {
                nodes += 1;
                if open.len() > MAX_DEPTH || nodes > MAX_NODES {
                    return Err(format!(
                        "it has more than {MAX_NODES} elements, or more than {MAX_DEPTH} in each other"
                    ));
                }
                let mut node = XmlNode::of(element)?;
                if open
                    .last()
                    .is_some_and(|around| around.name == "ReferenceParameters")
                {
                    parameters += 1;
                    if parameters > MAX_PARAMETERS {
                        return Err(format!(
                            "it has more than {MAX_PARAMETERS} reference parameters"
                        ));
                    }
                    node.namespace = namespace(&node, &open);
                }
                open.push(node);
                if matches!(event, Event::Empty(_)) {
                    end(&mut open)?;
                }
                continue;
            }
            Event::End(_) => {
                end(&mut open)?;
                continue;
            }
            Event::Text(text) => text.xml10_content(),
            Event::CData(text) => text.xml10_content(),
            Event::GeneralRef(reference) => {
                let character = reference
                    .resolve_char_ref()
                    .map_err(|error| no_xml(&error))?;
                let known = || resolve_predefined_entity(reference.as_ref()).map(str::to_owned);
                let text = character.map(String::from).or_else(known);
                text.ok_or("no XML: an unknown entity")?.into()
            }
            Event::DocType(_) => return Err("it has a document type".to_owned()),
            Event::Eof => break,
            _ => continue,
        };
        if let Some(inner) = open.last_mut() {
            inner.text += &text;
        }
    }
    match (open.pop(), open.len()) {
        (Some(document), 0) if document.children.len() == 1 && document.text.trim().is_empty() => {
            Ok(document)
        }
        _ => Err("no XML: it is not one element that ends".to_owned()),
    }
}

/// The innermost open element ends.
fn end(open: &mut Vec<XmlNode>) -> Result<(), String> {
    let ended = open.pop().unwrap_or_default();
    let around = open.last_mut().ok_or("no XML: an element ends twice")?;
    around.children.push(ended);
    Ok(())
}

/// The namespace of an element's prefix, which the innermost declaration decides.
fn namespace(node: &XmlNode, open: &[XmlNode]) -> String {
    let declaration = match node.prefix.is_empty() {
        true => "xmlns".to_owned(),
        false => format!("xmlns:{}", node.prefix),
    };
    let mut inside_out = std::iter::once(node).chain(open.iter().rev());
    let declared = inside_out.find_map(|node| node.attribute(&declaration));
    declared.unwrap_or_default().to_owned()
}

fn no_xml(error: &dyn std::fmt::Display) -> String {
    plain_line(&format!("no XML: {error}"))
}

/// The first element of this name inside of `node`.
pub(crate) fn find<'a>(node: &'a XmlNode, name: &str) -> Option<&'a XmlNode> {
    let mut children = node.children.iter();
    children.find_map(|child| match child.name == name {
        true => Some(child),
        false => find(child, name),
    })
}

/// All elements of this name inside of `node`, in the order of the text.
pub(crate) fn all<'a>(node: &'a XmlNode, name: &str) -> Vec<&'a XmlNode> {
    let mut found = Vec::new();
    for child in &node.children {
        found.extend((child.name == name).then_some(child));
        found.append(&mut all(child, name));
    }
    found
}

/// The text of the first element of this name, if there is any.
pub(crate) fn text_of<'a>(node: &'a XmlNode, name: &str) -> Option<&'a str> {
    text(find(node, name)?)
}

/// As [`text_of`], for people.
pub(crate) fn plain_text_of(node: &XmlNode, name: &str) -> Option<String> {
    text_of(node, name).map(plain_line)
}

/// The text of an element.
pub(crate) fn text(node: &XmlNode) -> Option<&str> {
    Some(node.text.trim()).filter(|text| !text.is_empty())
}

/// An element with text.
pub(crate) fn leaf(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape(text))
}

/// A name without its prefix.
pub(crate) fn local_name(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(count: usize) -> String {
        "<a>".repeat(count) + &"</a>".repeat(count)
    }

    // Faults: O4.
    #[test]
    fn hostile_documents_are_refused() {
        let long = "x".repeat(9000);
        for hostile in [
            nested(65),
            nested(500_000),
            format!("<r>{}</r>", "<e/>".repeat(MAX_NODES)),
            "<!DOCTYPE r [<!ENTITY e 'x'>]><r>&e;</r>".to_owned(),
            "<r>&e;</r>".to_owned(),
            format!("<a></b\n{long}>"),
            "<a>".to_owned(),
            "</a>".to_owned(),
            "<a/><a/>".to_owned(),
            "text".to_owned(),
            String::new(),
        ] {
            let error = read_xml(&hostile).map(|_| ()).unwrap_err();
            assert!(error.len() < 1000 && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn elements_are_found_with_their_text_in_order() {
        let xml = "\u{feff}<?xml version='1.0'?><x:r xmlns:x='u'><a> 1 &lt;<!-- no -->&#x32;<![CDATA[&]]></a><b c='&quot;d'/>\
            <ReferenceParameters><x:id xmlns='v'>7</x:id><id xmlns='w'/></ReferenceParameters><a>2</a></x:r>";
        let document = read_xml(xml).unwrap();
        let texts: Vec<_> = all(&document, "a").into_iter().map(text).collect();
        assert_eq!(texts, [Some("1 <2&"), Some("2")]);
        assert_eq!(find(&document, "b").unwrap().attribute("c"), Some("\"d"));
        let ids = all(&document, "id").into_iter().map(|id| &*id.namespace);
        assert_eq!(Vec::from_iter(ids), ["u", "w"]);
        assert_eq!(
            text_of(find(&document, "ReferenceParameters").unwrap(), "id"),
            Some("7")
        );
    }

    // Faults: O4.
    /// Each of these would be a work of seconds to hours for a parser that compares names with all names in force.
    #[test]
    fn many_names_are_read_in_time() {
        let declared =
            |count| -> String { (0..count).map(|at| format!(" xmlns:n{at}='u'")).collect() };
        for text in [
            format!(
                "<r{}>{}</r>",
                declared(250),
                "<e xmlns='u'/>".repeat(60_000)
            ),
            format!("<r>{}</r>", format!("<e{}/>", declared(200)).repeat(1000)),
        ] {
            assert!(read_xml(&text).is_ok());
        }
        let parameters = |count| {
            format!(
                "<ReferenceParameters>{}</ReferenceParameters>",
                "<e/>".repeat(count)
            )
        };
        for (text, part) in [
            (format!("<r{}/>", declared(40_000)), "256 attributes"),
            (
                format!("<r{}>{}</r>", declared(200), parameters(65)),
                "64 reference parameters",
            ),
            (
                format!("<r>{}</r>", parameters(1).repeat(65)),
                "64 reference parameters",
            ),
        ] {
            assert!(read_xml(&text).unwrap_err().contains(part), "{part}");
        }
    }
}
