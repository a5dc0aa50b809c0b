//! XML in and out.
//!
//! Elements are found by their local names: cameras differ in prefixes, and some in the year of a namespace. Where two services have an
//! element of one name, the request decides what the answer is about.

use quick_xml::{
    Writer,
    events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event},
};
use roxmltree::{Document, Node, ParsingOptions};

/// More than any answer has; limits the memory that a wrong one takes.
const MAX_NODES: u32 = 200_000;

pub(crate) type XmlNode<'a> = Node<'a, 'a>;

pub(crate) fn read_xml(text: &str) -> Result<Document<'_>, String> {
    let options = ParsingOptions {
        nodes_limit: MAX_NODES,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(text.trim_start_matches('\u{feff}'), options)
        .map_err(|error| format!("no XML: {error}"))
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

/// The text of an element.
pub(crate) fn text(node: XmlNode<'_>) -> Option<&str> {
    node.text().map(str::trim).filter(|text| !text.is_empty())
}

/// Writes elements with escaped text. The prefixes of names are declared by the outermost element.
pub(crate) struct XmlText(Writer<Vec<u8>>);

impl XmlText {
    pub(crate) fn new() -> Self {
        let mut text = Self(Writer::new(Vec::new()));
        text.write(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)));
        text
    }

    /// An element with what `content` writes.
    pub(crate) fn element(&mut self, name: &str, content: impl FnOnce(&mut Self)) {
        self.element_with(name, &[], content);
    }

    pub(crate) fn element_with(
        &mut self,
        name: &str,
        attributes: &[(&str, &str)],
        content: impl FnOnce(&mut Self),
    ) {
        let start = BytesStart::new(name).with_attributes(attributes.iter().copied());
        self.write(Event::Start(start));
        content(self);
        self.write(Event::End(BytesEnd::new(name)));
    }

    /// An element with text.
    pub(crate) fn leaf(&mut self, name: &str, text: &str) {
        self.element(name, |inner| inner.text(text));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.write(Event::Text(BytesText::new(text)));
    }

    pub(crate) fn finish(self) -> String {
        String::from_utf8(self.0.into_inner()).unwrap_or_default()
    }

    fn write(&mut self, event: Event<'_>) {
        // Memory accepts all that is written.
        _ = self.0.write_event(event);
    }
}

/// A name without its prefix.
pub(crate) fn local_name(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}
