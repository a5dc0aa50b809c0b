//! The files of the page, compressed.

use std::sync::Arc;

use anyhow::Context as _;

use crate::packed_file::PackedFile;

/// The page's files, in `assets`.
const FILES: &[(&str, &str)] = &[
    ("page.html", include_str!("../assets/page.html")),
    ("page.css", include_str!("../assets/page.css")),
    ("icon.svg", include_str!("../assets/icon.svg")),
    ("access.js", include_str!("../assets/access.js")),
    ("canvas.js", include_str!("../assets/canvas.js")),
    ("correction.js", include_str!("../assets/correction.js")),
    ("dom.js", include_str!("../assets/dom.js")),
    ("draw.js", include_str!("../assets/draw.js")),
    ("draw_parts.js", include_str!("../assets/draw_parts.js")),
    ("help.js", include_str!("../assets/help.js")),
    ("event_parts.js", include_str!("../assets/event_parts.js")),
    ("events.js", include_str!("../assets/events.js")),
    ("format.js", include_str!("../assets/format.js")),
    ("judge.js", include_str!("../assets/judge.js")),
    ("main.js", include_str!("../assets/main.js")),
    ("marking.js", include_str!("../assets/marking.js")),
    ("now.js", include_str!("../assets/now.js")),
    ("overlay.js", include_str!("../assets/overlay.js")),
    ("plots.js", include_str!("../assets/plots.js")),
    ("region.js", include_str!("../assets/region.js")),
    ("server.js", include_str!("../assets/server.js")),
    ("shapes.js", include_str!("../assets/shapes.js")),
    ("sheet.js", include_str!("../assets/sheet.js")),
    ("try.js", include_str!("../assets/try.js")),
    ("verdict.js", include_str!("../assets/verdict.js")),
    ("zone.js", include_str!("../assets/zone.js")),
];

/// Each with its name.
pub fn packed_files() -> anyhow::Result<Vec<(&'static str, Arc<PackedFile>)>> {
    let pack = |&(name, text): &(&'static str, &'static str)| {
        let file = PackedFile::new(media_type(name), text);
        let file = file.with_context(|| format!("cannot compress {name} of the page"))?;
        Ok((name, Arc::new(file)))
    };
    FILES.iter().map(pack).collect()
}

/// Where a file of the page is.
pub fn file_path(name: &str) -> String {
    match name {
        "page.html" => "/".to_owned(),
        name => format!("/{name}"),
    }
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml; charset=utf-8",
        _ => "text/javascript; charset=utf-8",
    }
}
