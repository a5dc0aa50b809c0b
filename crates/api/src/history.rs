//! Which stored events a request deletes; the answers are those of the page.

use spotter_history::HistorySelection;
use spotter_page::EventRefusal;
use url::form_urlencoded;

use super::error::ApiError;

impl From<EventRefusal> for ApiError {
    fn from(why: EventRefusal) -> Self {
        let error = Self::new(why.status(), why.to_string());
        match why.pause() {
            Some(pause) => error.after(pause),
            None => error,
        }
    }
}

/// `repeats`, `camera`, `from_ms` and `to_ms` of a query.
pub(crate) fn selection(
    query: Option<&str>,
    id: Option<String>,
) -> Result<HistorySelection, ApiError> {
    let mut selection = HistorySelection {
        id,
        ..HistorySelection::default()
    };
    for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let wrong = || ApiError::wrong(format!("{key}: {value:?} is not a value of it"));
        let time = || value.parse().map(Some).map_err(|_| wrong());
        match &*key {
            "camera" => selection.camera = Some(value.into_owned()),
            "from_ms" => selection.from_ms = time()?,
            "to_ms" => selection.to_ms = time()?,
            "repeats" => selection.repeats = value.parse().map_err(|_| wrong())?,
            _ => {
                let text =
                    format!("{key}: no such key; there are camera, from_ms, to_ms and repeats");
                return Err(ApiError::wrong(text));
            }
        }
    }
    Ok(selection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_of_a_query_is_checked() {
        let read = selection(Some("camera=gate&from_ms=1&to_ms=2&repeats=true"), None);
        let expected = HistorySelection {
            id: None,
            camera: Some("gate".into()),
            from_ms: Some(1),
            to_ms: Some(2),
            repeats: true,
        };
        assert_eq!(read, Ok(expected));
        for wrong in ["cam=gate", "from_ms=now", "repeats=1"] {
            let error = selection(Some(wrong), None).unwrap_err();
            let (key, _) = wrong.split_once('=').unwrap();
            assert!(error.message.starts_with(key), "{}", error.message);
        }
    }
}
