//! XML in and out.
//!
//! Elements are found by their local names: cameras differ in prefixes, and some in the year of a namespace. Where two services have an
//! element of one name, the request decides what the answer is about.

use quick_xml::{
    Reader,
    escape::escape,
    events::{BytesStart, Event},
};
use roxmltree::{Document, Node, ParsingOptions};
use spotter_core::plain_line;

/// More than any answer has; limits the memory that a wrong one takes.
const MAX_NODES: u32 = 200_000;
/// Elements in elements.
const MAX_DEPTH: usize = 64;
/// Declarations of namespaces that are in force at one element.
const MAX_NAMESPACES: usize = 256;
/// Of one element, with its declarations.
const MAX_ATTRIBUTES: usize = 256;
/// Bytes of a name with its prefix.
const MAX_NAME: usize = 256;
/// Comparisons of names by the parser: ten times those of an answer with 100 messages.
const MAX_COMPARISONS: usize = 8_000_000;

pub(crate) type XmlNode<'a> = Node<'a, 'a>;

/// Errors are plain lines.
pub(crate) fn read_xml(text: &str) -> Result<Document<'_>, String> {
    check_shape(text)?;
    let options = ParsingOptions {
        nodes_limit: MAX_NODES,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(text.trim_start_matches('\u{feff}'), options)
        .map_err(|error| no_xml(&error))
}

fn no_xml(error: &dyn std::fmt::Display) -> String {
    plain_line(&format!("no XML: {error}"))
}

/// Refuses texts for which the work of the parser, which compares each name with all that are in force, is out of proportion to their
/// length.
fn check_shape(text: &str) -> Result<(), String> {
    let mut reader = Reader::from_str(text);
    // Of each open element: the declarations in force.
    let mut open: Vec<usize> = Vec::new();
    let mut comparisons = 0;
    loop {
        let (element, is_empty) = match reader.read_event().map_err(|error| no_xml(&error))? {
            Event::Start(element) => (element, false),
            Event::Empty(element) => (element, true),
            Event::End(_) => {
                open.pop();
                continue;
            }
            Event::DocType(_) => return Err("it has a document type".to_owned()),
            Event::Eof => return Ok(()),
            _ => continue,
        };
        let (attributes, declarations) = shape(&element)?;
        let in_force = open.last().copied().unwrap_or_default() + declarations;
        if open.len() >= MAX_DEPTH || in_force > MAX_NAMESPACES {
            return Err(format!(
                "its elements are nested deeper than {MAX_DEPTH}, or more than {MAX_NAMESPACES} namespaces are declared"
            ));
        }
        // The parser copies the declarations of the element outside without those that are declared again.
        let copied = if declarations > 0 {
            in_force * in_force
        } else {
            0
        };
        comparisons += copied + attributes * (attributes + in_force) + in_force;
        if comparisons > MAX_COMPARISONS {
            return Err("it has too many names".to_owned());
        }
        if !is_empty {
            open.push(in_force);
        }
    }
}

/// The attributes of an element, and how many of them declare namespaces.
fn shape(element: &BytesStart<'_>) -> Result<(usize, usize), String> {
    let (mut attributes, mut declarations) = (0, 0);
    let mut longest = element.name().as_ref().len();
    // The check for equal names is the expensive one.
    for attribute in element.attributes().with_checks(false) {
        let key = attribute.map_err(|error| no_xml(&error))?.key;
        longest = longest.max(key.as_ref().len());
        attributes += 1;
        declarations += usize::from(key.as_namespace_binding().is_some());
    }
    if attributes > MAX_ATTRIBUTES || longest > MAX_NAME {
        return Err(format!(
            "an element has more than {MAX_ATTRIBUTES} attributes or a name of more than {MAX_NAME} bytes"
        ));
    }
    Ok((attributes, declarations))
}

/// The first element of this name below `node`.
pub(crate) fn find<'a>(node: XmlNode<'a>, name: &str) -> Option<XmlNode<'a>> {
    all(node, name).next()
}

/// All elements of this name below `node`, in the order of the text.
pub(crate) fn all<'a>(node: XmlNode<'a>, name: &str) -> impl Iterator<Item = XmlNode<'a>> {
    let below = node.descendants().skip(1);
    below.filter(move |node| node.is_element() && node.tag_name().name() == name)
}

/// The text of the first element of this name, if there is any.
pub(crate) fn text_of<'a>(node: XmlNode<'a>, name: &str) -> Option<&'a str> {
    text(find(node, name)?)
}

/// As [`text_of`], for people.
pub(crate) fn plain_text_of(node: XmlNode<'_>, name: &str) -> Option<String> {
    text_of(node, name).map(plain_line)
}

/// The text of an element.
pub(crate) fn text(node: XmlNode<'_>) -> Option<&str> {
    node.text().map(str::trim).filter(|text| !text.is_empty())
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

    fn nested(count: usize, attribute: impl Fn(usize) -> String) -> String {
        let open = |at| format!("<a{}>", attribute(at));
        let open: String = (0..count).map(open).collect();
        format!("{open}{}", "</a>".repeat(count))
    }

    // Faults: O4.
    /// Each of these keeps the parser busy for seconds to hours, or ends its stack.
    #[test]
    fn hostile_documents_are_refused_before_they_are_parsed() {
        let declared = |count| -> String {
            let declaration = |at| format!(" xmlns:n{at}='u'");
            (0..count).map(declaration).collect()
        };
        let siblings = |element: &str, count: usize| -> String {
            format!("<r{}>{}</r>", declared(250), element.repeat(count))
        };
        let long = "x".repeat(4000);
        for hostile in [
            nested(1500, |at| format!(" xmlns:n{at}='u'")),
            nested(60, |at| {
                format!(
                    " xmlns:n{at}='u' xmlns:m{at}='u' xmlns:o{at}='u' xmlns:p{at}='u' xmlns:q{at}='u'"
                )
            }),
            nested(65, |_| String::new()),
            nested(500_000, |_| String::new()),
            format!("<r{}/>", declared(257)),
            format!("<r>{}</r>", format!("<e{}/>", declared(200)).repeat(1000)),
            siblings("<e xmlns='u'/>", 18_000),
            siblings("<n1:e/>", 60_000),
            siblings("<n1:e n2:a='' n3:a='' n4:a='' n5:a=''/>", 20_000),
            format!(
                "<r{}/>",
                (0..40_000)
                    .map(|at| format!(" a{at}=''"))
                    .collect::<String>()
            ),
            format!("<r xmlns:{long}='u'/>"),
            format!("<{long}/>"),
            "<!DOCTYPE r [<!ENTITY e 'x'>]><r>&e;</r>".to_owned(),
        ] {
            let start = &hostile[..hostile.len().min(80)];
            let refused = read_xml(&hostile).map(|_| ()).unwrap_err();
            assert!(!refused.starts_with("no XML"), "{refused}: {start}");
        }
    }

    // Faults: O4.
    #[test]
    fn answer_with_many_namespaces_and_messages_is_read() {
        let declared = |from: usize, to: usize| -> String {
            (from..to)
                .map(|at| format!(" xmlns:n{at}='urn:{at}'"))
                .collect()
        };
        let message = format!(
            "<n1:Message{}><n2:Topic{}>t</n2:Topic><n3:Data><n3:SimpleItem Name='State' Value='true'/></n3:Data></n1:Message>",
            declared(1, 4),
            declared(4, 7)
        );
        let answer = format!("<n1:r{}>{}</n1:r>", declared(1, 61), message.repeat(100));
        let document = read_xml(&answer).unwrap();
        assert_eq!(all(document.root(), "SimpleItem").count(), 100);
    }

    #[test]
    fn error_about_hostile_text_is_one_short_line() {
        let text = format!("<a></b\n{}>", "x".repeat(9000));
        let error = read_xml(&text).map(|_| ()).unwrap_err();
        assert!(error.len() < 1000 && !error.contains('\n'), "{error}");
    }
}
