//! The view "Events" with a real history, by mouse and keys.

use spotter_history::{History, testing::stored_events};
use spotter_page::EventAnswers;

use super::*;

/// The view for someone who has logged in.
pub struct EventsView {
    pub browser: Browser,
    served: Served,
    _folder: tempfile::TempDir,
}

impl EventsView {
    /// `None`: nothing is stored.
    fn open(events: Option<&[(&str, u64)]>, size: (u32, u32)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let history = events.map(|events| stored_events(folder.path(), events));
        Self::of(history, folder, size)
    }

    /// Two events with pictures that a browser can decode.
    fn photographed() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let history = stored_events(folder.path(), &[("gate", 1), ("yard", 1)]);
        memory::photograph(folder.path());
        Self::of(Some(history), folder, (390, 844))
    }

    pub fn of(
        history: Option<History>,
        folder: tempfile::TempDir,
        (width, height): (u32, u32),
    ) -> Self {
        let served = starting_with(with_login());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        served.page.open(Arc::new(Painted::new(streaming_site(1))));
        served.page.open_events(EventAnswers::new(history, clock));
        let mut browser = Browser::start();
        browser.load(&format!("http://{}/", served.address), width, height);
        let login = json!({ "token": TOKEN });
        browser.says(&format!(
            "fetch('login', {{method: 'POST', headers: {{'content-type': 'application/json'}}, body: JSON.stringify({login})}}).then(() => 1)"
        ));
        browser.load(
            &format!("http://{}/?1#events", served.address),
            width,
            height,
        );
        Self {
            browser,
            served,
            _folder: folder,
        }
    }

    fn count(&mut self, selector: &str) -> u64 {
        let count = self
            .browser
            .says(&format!("document.querySelectorAll('{selector}').length"));
        count.as_u64().expect("a number")
    }

    fn focus(&mut self) -> Value {
        self.browser.says("document.activeElement.id")
    }

    /// Chooses in the filter.
    fn choose(&mut self, name: &str, value: &str) {
        self.browser.says(&format!(
            "(() => {{ const field = document.querySelector('[name={name}]'); field.value = '{value}'; \
             field.dispatchEvent(new Event('change', {{ bubbles: true }})) }})()"
        ));
    }

    fn click(&mut self, selector: &str) {
        self.browser
            .says(&format!("document.querySelector('{selector}').click()"));
    }
}

#[test]
fn events_are_opened_unfolded_and_deleted_by_keys() {
    for size in [(390, 844), (1440, 900)] {
        let events = [("gate", 1), ("gate", 2), ("gate", 3), ("yard", 1)];
        let mut view = EventsView::open(Some(&events), size);
        view.browser.until("document.querySelector('.event')");
        assert_eq!(view.count(".event"), 2, "repeats are one row");
        let text = view
            .browser
            .says("document.querySelector('.history').textContent");
        let text = text.as_str().expect("a text");
        for part in [
            "a red car",
            "83 %",
            "Reaches back to",
            "4 events",
            "Times are those of the box",
            "Show 2 more at this place",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let widths = view
            .browser
            .says("[innerWidth, document.documentElement.scrollWidth]");
        assert_eq!(widths, json!([size.0, size.0]));
        let nodes = view.browser.accessible_nodes();
        let nameless: Vec<_> = nodes.iter().filter(|node| node.name.is_empty()).collect();
        assert!(nameless.is_empty(), "{nameless:#?}");

        view.click(".more");
        view.browser
            .until("document.querySelectorAll('.event').length === 4");
        view.click(".more");
        view.browser
            .until("document.querySelectorAll('.event').length === 2");
        view.browser.press("j", 74);
        view.browser.press("j", 74);
        view.browser.press("k", 75);
        let first = view.focus();
        view.browser.press("Enter", 13);
        view.browser
            .until("document.querySelector('.detail') && location.hash.startsWith('#events/')");
        view.browser
            .until("document.activeElement.id === 'h-event'");
        view.browser.press("Escape", 27);
        view.browser
            .until(&format!("document.activeElement.id === {first}"));

        view.browser.press("Delete", 46);
        view.browser
            .until("document.activeElement.id === 'delete-yes'");
        view.browser.press("Escape", 27);
        view.browser
            .until("document.getElementById('question') === null");
        assert_eq!(view.count(".event"), 2, "nothing is deleted without a yes");
        view.browser
            .until(&format!("document.activeElement.id === {first}"));
        view.browser.press("Delete", 46);
        view.browser
            .until("document.activeElement.id === 'delete-yes'");
        view.browser.press("Enter", 13);
        view.browser
            .until("document.querySelectorAll('.event').length === 1");
        let list = get_with_token(&view.served, "/events.json");
        assert_eq!(list.matches("\"id\"").count(), 1, "{list}");
        assert_eq!(view.browser.complaints(), Vec::<&Value>::new());
    }
}

fn get_with_token(served: &Served, path: &str) -> String {
    let head = format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n");
    answer_with(served.address, path, &head)
}

#[test]
fn filter_and_bars_choose_events_and_a_camera_is_deleted() {
    let mut view = EventsView::open(Some(&[("gate", 1), ("gate", 2), ("yard", 1)]), (1440, 900));
    view.browser
        .until("document.querySelectorAll('.event').length === 2");
    view.browser
        .says("document.getElementById('filter-text').focus()");
    view.choose("text", "blue");
    view.browser
        .until("document.querySelectorAll('.event').length === 0");
    assert_eq!(view.focus(), "filter-text");
    view.click("[data-do=all]");
    view.browser
        .until("document.querySelectorAll('.event').length === 2");
    // The events are of 2026-08-22; the clock of the box is that of this machine.
    view.choose("from", "2026-08-21T00:00");
    view.choose("to", "2026-08-24T00:00");
    view.browser.until("document.querySelector('.history .span > :last-child').textContent.includes('08-24') && [...document.querySelectorAll('[data-bar]')].some((bar) => bar.title.endsWith('3 events'))");
    view.browser.says("[...document.querySelectorAll('[data-bar]')].find((bar) => bar.title.endsWith('3 events')).click()");
    view.browser.until("document.querySelectorAll('.event').length === 2 && document.querySelector('[name=from]').value.startsWith('2026-08-22')");
    view.click("[data-do=all]");
    view.browser.says("window.realFetch = fetch; window.fetch = async (path, sent) => path.startsWith('export.json') ? new Response('{\"error\":\"two exports are in progress\"}', { status: 429 }) : realFetch(path, sent)");
    view.click("#export");
    view.browser.until("document.querySelector('.history > [role=alert]')?.textContent === 'two exports are in progress'");
    view.choose("camera", "gate");
    view.browser
        .until("document.querySelectorAll('.event').length === 1");
    view.click("[data-do=delete-all]");
    view.browser.until("document.getElementById('question')?.textContent.includes('Delete 2 events of camera gate for good?')");
    view.click("#delete-yes");
    view.browser
        .until("document.querySelectorAll('.event').length === 0");
    let list = get_with_token(&view.served, "/events.json");
    assert!(
        list.contains("b7c1-yard-1") && !list.contains("b7c1-gate"),
        "{list}"
    );
}

#[test]
fn events_are_marked_filtered_and_corrected_by_keys() {
    let mut view = EventsView::open(Some(&[("gate", 1), ("yard", 1)]), (1440, 900));
    let count = "document.querySelectorAll('.event').length";
    let marks = "[...document.querySelectorAll('.pill')].map((pill) => pill.textContent).filter((text) => /right|wrong|corrected/.test(text)).join()";
    view.browser.until(&format!("{count} === 2"));
    view.browser.press("j", 74);
    let first = view.focus();
    view.browser.press("w", 87);
    view.browser.until(&format!("{marks} === 'wrong'"));
    assert_eq!(view.focus(), first);
    view.choose("mark", "right");
    view.browser.until(&format!("{count} === 0"));
    view.choose("mark", "wrong");
    view.browser.until(&format!("{count} === 1"));
    view.click("[data-do=all]");
    view.browser.until(&format!("{count} === 2"));
    view.browser.press("j", 74);
    view.browser.press("u", 85);
    view.browser.until(&format!("{marks} === ''"));
    view.browser.press("c", 67);
    view.browser
        .until("document.activeElement.id === 'object-0'");
    view.browser.press("ArrowRight", 39);
    view.browser.press("Escape", 27);
    view.browser
        .until("!document.getElementById('objects') && document.activeElement.id === 'h-event'");
    view.browser.press("c", 67);
    view.browser
        .until("document.activeElement.id === 'object-0'");
    view.browser.press("f", 70);
    view.browser.press("Enter", 13);
    view.browser.until(&format!(
        "{marks} === 'corrected' && document.getElementById('mark-found').ariaPressed === 'true'"
    ));
    let list = get_with_token(&view.served, "/events.json?mark=corrected");
    assert!(
        list.contains("\"all_found\":true") && list.matches("\"id\"").count() == 1,
        "{list}"
    );
    assert_eq!(view.browser.complaints(), Vec::<&Value>::new());
}

#[test]
fn pressed_mark_is_taken_off_and_foreign_undo_says_so() {
    let mut view = EventsView::open(Some(&[("gate", 1), ("yard", 1)]), (390, 844));
    let is_right = "document.querySelector('.detail .pill')?.textContent === 'right'";
    view.browser
        .until("document.querySelectorAll('.event').length === 2");
    view.browser.press("j", 74);
    view.browser.press("f", 70);
    view.browser.press("Enter", 13);
    view.browser
        .until("document.getElementById('mark-found')?.ariaPressed === 'false'");
    for wanted in [true, false, true] {
        view.click("#mark-right");
        view.browser.until(&format!("({is_right}) === {wanted}"));
    }
    view.browser.press("ArrowRight", 39);
    view.browser.until(&format!(
        "document.getElementById('mark-right') && !({is_right})"
    ));
    view.browser.press("u", 85);
    view.browser.until(
        "/^Mark of .* at .* taken back\\.$/.test(document.getElementById('said').textContent)",
    );
}

#[test]
fn late_picture_reaches_event_and_row_after_lost_answer() {
    let mut view = EventsView::photographed();
    view.browser.until("document.querySelector('.event')");
    view.browser.says("window.late = { picture: null, end_ms: null }; window.realFetch = fetch; window.fetch = async (path, sent) => { \
         const got = await realFetch(path, sent); \
         if (path.startsWith('events.json')) { \
           const list = await got.json(); \
           return window.late ? new Response(JSON.stringify({ ...list, events: list.events.map((event) => ({ ...event, ...late })) })) : new Response('', { status: 503 }) } \
         if (path !== 'events/b7c1-gate-1.json') return got; \
         return window.isBusy ? new Response('{\"error\":\"busy\"}', { status: 503 }) : new Response(JSON.stringify({ ...(await got.json()), ...window.late })) }");
    view.choose("camera", "gate");
    view.browser
        .until("document.querySelector('.event .empty')");
    view.browser
        .says("window.isBusy = true; location.hash = '#events/b7c1-gate-1'");
    let alarm = "document.querySelector('.detail [role=alert]')?.textContent";
    view.browser.until(&format!("{alarm} === 'busy'"));
    view.browser.says("window.isBusy = false");
    view.browser.until(&format!("{alarm} === undefined"));
    assert_eq!(view.count("#judged-b7c1-gate-1 .empty"), 1);
    view.browser.says("window.isBusy = true");
    view.browser.until(&format!("{alarm} === 'busy'"));
    view.browser
        .says("window.isBusy = false; delete window.late");
    view.browser.until(&format!(
        "document.querySelector('#judged-b7c1-gate-1 img') && {alarm} === undefined"
    ));
    view.browser.says("location.hash = '#events'");
    view.browser.until("document.querySelector('.event')");
    assert_eq!(view.count(".event .empty"), 0);
}

#[test]
fn row_is_painted_after_a_refusal_and_says_without_picture() {
    let mut view = EventsView::photographed();
    let painted = format!(
        "(() => {{ {} const all = [...document.querySelectorAll('.event canvas')]; return all.length > 0 && all.every(isPainted) }})()",
        memory::IS_PAINTED
    );
    view.browser.until(&painted);
    view.browser.says("window.asked = 0; window.realFetch = fetch; window.fetch = async (path, sent) => { \
         if (path.includes('yard-1.jpg')) return new Response('', { status: 404 }); \
         return path.includes('gate-1.jpg') && (asked += 1) === 1 ? new Response('', { status: 503 }) : realFetch(path, sent) }");
    view.browser.says("location.hash = '#now'");
    view.browser.until("document.getElementById('view-now')");
    view.browser.says("location.hash = '#events'");
    view.browser
        .until("document.querySelector('#event-b7c1-yard-1 .empty')");
    view.browser.until(&painted);
    assert_eq!(view.browser.says("window.asked"), 2);
}

#[test]
fn rows_far_from_the_screen_leave_the_document_and_return() {
    let cameras: Vec<String> = (0..130).map(|number| format!("camera{number}")).collect();
    let events: Vec<_> = cameras.iter().map(|camera| (camera.as_str(), 1)).collect();
    let mut view = EventsView::open(Some(&events), (390, 844));
    let to_the_end = "(scrollTo(0, document.body.scrollHeight), document.querySelectorAll('.rows').length === 3 && !document.getElementById('more-events'))";
    view.browser.until("document.querySelector('.event')");
    view.browser.press("j", 74);
    let first = view.focus();
    view.browser.until(to_the_end);
    view.browser
        .until("document.querySelector('#group-1').children.length === 0");
    let place = "[document.activeElement.id, ...['posinset', 'setsize'].map((name) => document.querySelector('#group-2 > :last-child').getAttribute(`aria-${name}`))]";
    assert_eq!(view.browser.says(place), json!([first, "130", "130"]));
    // Over the end of a group to one that is not in the document, and back to the last rows.
    view.browser
        .says("document.querySelector('#group-0 > :last-child .entry').focus()");
    view.browser.until(to_the_end);
    view.browser.press("j", 74);
    let moved = "document.activeElement === document.querySelector('#group-1 > :first-child .entry') && document.activeElement.getBoundingClientRect().top < innerHeight";
    assert_eq!(view.browser.says(moved), true);
    view.browser.says("document.activeElement.blur()");
    view.browser.until(to_the_end);
    view.browser
        .until("document.querySelector('#group-0').children.length === 0 && document.querySelector('#group-1').children.length === 0");
    assert!(view.count(".event") <= 30);
    let height = "document.querySelector('#group-0').getBoundingClientRect().height > 3000";
    assert_eq!(view.browser.says(height), true);
    view.browser.says("scrollTo(0, 0)");
    view.browser
        .until("document.querySelector('#group-0').children.length === 50");
    view.browser
        .until("document.querySelector('#group-2').children.length === 0");
    // An event is opened, another one is gone to, and its group was empty.
    view.browser
        .says("location.hash = document.querySelector('#group-0 > :last-child .entry').hash");
    view.browser
        .until("document.activeElement.id === 'h-event'");
    view.browser
        .says("window.last = document.querySelector('.detail').id");
    view.browser.press("j", 74);
    view.browser.until(
        "document.querySelector('.detail').id !== last && document.activeElement.id === 'h-event'",
    );
    view.browser.press("Escape", 27);
    view.browser.until(
        "document.activeElement === document.querySelector('#group-1 > :first-child .entry')",
    );
    view.browser.says("document.activeElement.blur()");
    // A newer event is stored: what is read stays.
    view.browser.press("j", 74);
    let read = view.focus();
    view.browser.says("window.realFetch = fetch; window.fetch = (path, sent) => realFetch(path, sent).then(async (got) => { \
         if (!path.startsWith('events.json') || path.includes('before')) return got; \
         const list = await got.json(); \
         return new Response(JSON.stringify({ ...list, events: [{ ...list.events[0], id: 'newer' }, ...list.events] })) })");
    view.browser
        .until("document.querySelector('[data-do=newest]')");
    assert_eq!(view.count("#group-0 > .event"), 50);
    assert_eq!(view.focus(), read);
}

#[test]
fn history_that_is_off_offers_lines_and_hides_from_strangers() {
    let mut view = EventsView::open(None, (390, 844));
    view.browser.until("document.getElementById('toml')");
    view.click("#toml");
    let selected = "((field) => field.value.slice(field.selectionStart, field.selectionEnd))(document.getElementById('toml'))";
    let lines = view.browser.says(selected);
    assert!(
        lines
            .as_str()
            .expect("a text")
            .starts_with("[history]\nkeep"),
        "{lines}"
    );
    view.browser
        .says("document.querySelector('#logout button').click()");
    view.browser
        .until("document.getElementById('toml') === null && document.getElementById('h-refusal')");
}

#[test]
fn place_is_deleted_with_its_number_of_events() {
    let events = [("gate", 1), ("gate", 2), ("gate", 3), ("yard", 1)];
    let mut view = EventsView::open(Some(&events), (1440, 900));
    view.browser.until("document.querySelector('.more')");
    view.click(".more");
    view.browser
        .until("document.querySelectorAll('.event').length === 4");
    // The first one of an unfolded place, alone.
    view.browser
        .says("document.querySelector('.more').closest('.event').querySelector('.entry').focus()");
    view.browser.press("Delete", 46);
    view.browser.until(
        "document.getElementById('delete-place')?.textContent === 'Delete all 3 at this place'",
    );
    view.click("#delete-yes");
    view.browser.until(
        "document.querySelector('.more')?.textContent === 'Show 1 more at this place within a day'",
    );
    // A repeat at its own address.
    view.browser
        .says("location.hash = '#events/' + document.querySelector('.more').id.slice(5)");
    view.browser
        .until("document.getElementById('delete-event')");
    view.click("#delete-event");
    view.browser.until(
        "document.getElementById('delete-place')?.textContent === 'Delete all 2 at this place'",
    );
    view.click("#delete-place");
    view.browser
        .until("location.hash === '#events' && document.querySelectorAll('.event').length === 1");
    view.browser.says("location.hash = '#events/b7c1-gate-1'");
    view.browser.until(
        "document.querySelector('.panel [role=alert]')?.textContent.includes('no such event')",
    );
    thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(view.count(".panel [role=alert]"), 1, "it stays");
    view.click(".panel a");
    view.browser
        .until("document.querySelectorAll('.event').length === 1");
}

#[test]
fn repeated_hour_is_the_first_and_ranges_are_not_empty() {
    let mut view = EventsView::open(Some(&[("gate", 1)]), (390, 844));
    view.browser.until("document.querySelector('.event')");
    view.browser.says("import('./zone.js').then(({ TimeZone }) => { window.zone = new TimeZone('Europe/Berlin', 60) }).then(() => 1)");
    for (script, wanted) in [
        (
            "new Date(zone.unixMs('2026-10-25T02:30')).toISOString()",
            "2026-10-25T00:30:00.000Z",
        ),
        (
            "new Date(zone.unixMs('2026-10-25T03:30')).toISOString()",
            "2026-10-25T02:30:00.000Z",
        ),
        (
            "new Date(zone.unixMs('2026-03-29T02:30')).toISOString()",
            "2026-03-29T01:30:00.000Z",
        ),
        (
            "new Date(zone.unixMs('2026-07-01T00:00:07')).toISOString()",
            "2026-06-30T22:00:07.000Z",
        ),
        (
            "zone.range(1782856807100, 1782856807300).join()",
            "2026-07-01T00:00:07,2026-07-01T00:00:08",
        ),
        // From 02:50 to 02:10 after it.
        (
            "zone.range(Date.UTC(2026, 9, 25, 0, 50), Date.UTC(2026, 9, 25, 1, 10)).join()",
            "2026-10-25T02:50:00,2026-10-25T03:10:00",
        ),
    ] {
        assert_eq!(view.browser.says(script), wanted, "{script}");
    }
}
