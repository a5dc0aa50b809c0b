// The view "Events": what the history has, the newest first, and one of them at #events/ID.
//
// Rows are in groups. A group that is far from the screen and does not have the keyboard is empty and keeps its height, so that
// thousands of events need no more memory than those in view.

import { UNREAD, facts, h, quiet, s, unseen } from "./dom.js";
import { alarm, freeSmallStills, judgeAddress, markPill, nameOf, offer, readEvent, shapesOf, smallStill, still } from "./event_parts.js";
import { bytes, counted, duration, machineTime, number, percentage, sum } from "./format.js";
import { EventMarking, takenBack } from "./marking.js";
import { AGAIN_MS, change, pause, refusal, request } from "./server.js";
import { TimeZone } from "./zone.js";

export const events = { id: "events", title: "Events", needs: "pictures", open, close, stays: (event) => marking.stays(event), render, click, change: filterChanged, submit, key };

const GROUP = 50;
const NEAR_PX = 1500;
const REFRESH_MS = 10_000;
// A picture follows its event within a second; what has none after a minute gets none.
const PICTURE_MS = 1000;
const YOUNG_MS = 60_000;
const DELETE_MS = 60_000;
// Of one answer.
const EVENTS_MAX = 500;
const DAY_MS = 86_400_000;
const NO_FILTER = { camera: "", prompt: "", zone: "", mark: "", text: "", from: "", to: "" };
const MARKS = ["right", "wrong", "corrected", "none"];

// ---- What is known

let redraw = () => {};
let filter = { ...NO_FILTER };
// The last answer, without its events, and all events that were read.
let page = null;
let rows = [];
let zone = new TimeZone("UTC", 0);
// All names that events had, also those that the configuration has no more and that do not fit the filter.
const seen = { camera: new Set(), prompt: new Set(), zone: new Set() };
// Why the list was not read, until it is, and why the last action failed, until the next one.
let readProblem = null;
let problem = null;
let isReading = false;
// To be read again after the reading that is in progress.
let isStale = false;
let isDeleting = false;
let hasNewer = false;
// The further events at the place of an event, by its id, as far as they are unfolded.
const repeats = new Map();
// The words of the question, its choices { words, selection }, and the id of the control that asked.
let question = null;
let asks = 0;
// The event at the address, with the `error` of reading it, where the list was scrolled to, and the event to which the keyboard goes.
let shown = null;
let scrolledTo = 0;
let focusId = null;
// Where the page is to be scrolled to after the next drawing.
let scrollWanted = null;
let timer;
// Of the event at the address; only the last one goes on.
let readings = 0;

let mayChange = false;
// The time of the box, by its last status.
let nowMs = 0;
// The event that is to be corrected once it is shown.
let correctId = null;

// Of a mark that was taken back.
let said = "";

const marking = new EventMarking({ changed: () => redraw(), isSeen: () => true, marked, corrected: () => (focusId = "h-event") });

const start = (event) => event.start_ms;

function query(more = {}) {
  const { from, to, ...plain } = filter;
  const times = { from_ms: from && zone.unixMs(from), to_ms: to && zone.unixMs(to) };
  const given = Object.entries({ ...plain, ...times, ...more }).filter(([, value]) => value !== "");
  return new URLSearchParams(given).toString();
}

const list = (more) => request(`events.json?${query(more)}`);

// Reads the newest events, or those after the last one.
async function read(isMore, limit = GROUP) {
  if (isReading) {
    isStale ||= !isMore;
    return;
  }
  const asked = query();
  isReading = true;
  isStale = false;
  try {
    const answer = await list(isMore ? { before: page.next, limit } : { limit });
    if (asked === query() && !isStale) accept(answer, isMore);
    readProblem = null;
  } catch (error) {
    readProblem = error.message;
  }
  isReading = false;
  redraw();
  if (asked !== query() || isStale) read(false);
}

// As far as the reader had them.
const readAgain = () => read(false, Math.min(EVENTS_MAX, Math.max(GROUP, rows.length)));

function accept({ events: found = [], ...answer }, isMore) {
  page = isMore ? { ...page, next: answer.next } : answer;
  if (answer.time_zone) zone = new TimeZone(answer.time_zone, answer.offset_min);
  if (isMore) {
    const known = new Set(rows.map((event) => event.id));
    rows.push(...found.filter((event) => !known.has(event.id)));
  } else {
    rows = found;
    repeats.clear();
    hasNewer = false;
  }
  for (const event of found) keepNames(event);
  changed();
}

function keepNames({ camera, prompt, zones }) {
  seen.camera.add(camera);
  seen.prompt.add(prompt);
  for (const id of zones ?? []) seen.zone.add(id);
}

// Replaces the list where its reader has not gone further, else says that there are newer events.
async function refresh() {
  clearTimeout(timer);
  timer = setTimeout(refresh, REFRESH_MS);
  if (document.hidden || isReading || page?.is_on === false || question !== null) return;
  if (page === null) return read(false);
  try {
    const asked = [query(), version].join();
    const answer = await list({ limit: GROUP });
    if (asked !== [query(), version].join()) return;
    const isSame = (event, i) => event.id === rows[i]?.id && event.repeats === rows[i].repeats && event.end_ms === rows[i].end_ms && event.picture === rows[i].picture && event.mark === rows[i].mark;
    if (answer.events.every(isSame) && (answer.events.length > 0 || rows.length === 0)) page = { ...answer, next: rows.length > GROUP ? page.next : answer.next };
    else if (rows.length <= GROUP && repeats.size === 0 && shown === null && !isHeld()) accept(answer, false);
    else hasNewer = isHeld() || answer.events[0]?.id !== rows[0]?.id;
    readProblem = null;
  } catch (error) {
    readProblem = error.message;
  }
  redraw();
}

// An event that no longer fits the filter by its mark stays while the keyboard is in the list.
const isHeld = () => filter.mark !== "" && document.activeElement?.closest(".event") != null;

async function open(argument, draw) {
  redraw = draw;
  if (correctId !== argument) correctId = null;
  watch = new IntersectionObserver(see, { rootMargin: `${NEAR_PX}px` });
  if (shown === null && argument !== null) scrolledTo = scrollY;
  scrollWanted = argument === null ? scrolledTo : 0;
  focusId = argument !== null ? "h-event" : shown && `event-${shown.id}`;
  if (argument === null && shown !== null) fillGroupOf(shown.id);
  shown = argument === null ? null : rows.find((event) => event.id === argument) ?? { id: argument };
  marking.leave();
  refresh();
  if (shown !== null) readShown(argument);
}

// Reads the event at the address until it was read and has its picture, or is gone. One request at a time.
async function readShown(id) {
  const own = (readings += 1);
  const isCurrent = () => own === readings && shown?.id === id;
  let isWhole = false;
  do {
    let next = PICTURE_MS;
    try {
      const event = await readEvent(id);
      if (!isCurrent()) return;
      if (isWhole) addPicture(event);
      else showWhole(event);
      isWhole = true;
    } catch (error) {
      if (!isCurrent()) return;
      if (error.status === 404) return showMissing(error.message);
      shown.error = error.message;
      next = AGAIN_MS;
    }
    redraw();
    do await pause(next);
    while (document.hidden && isCurrent());
  } while (isCurrent() && (!isWhole || mayGetPicture(shown)));
}

const mayGetPicture = (event) => event.picture == null && (event.end_ms == null || nowMs - event.start_ms < YOUNG_MS);

// Also to the row of the list. Of its mark, the page may know more than an answer on its way.
function addPicture({ mark, objects, all_found, repeats: _, ...found }) {
  delete shown.error;
  if (found.picture == null) return;
  for (const one of [shown, ...listed()]) if (one.id === found.id) Object.assign(one, found);
  changed();
}

function showWhole(event) {
  shown = event;
  if (correctId === event.id) marking.act("correct", event);
  correctId = null;
}

function showMissing(error) {
  correctId = null;
  const { id } = shown;
  shown = { id, error };
  if (listed().some((event) => event.id === id) && !forget({ id })) readAgain();
  redraw();
}

function close() {
  marking.leave();
  clearTimeout(timer);
  readings += 1;
  watch.disconnect();
  queueMicrotask(freeSmallStills);
  question = null;
  asks += 1;
  problem = null;
  said = "";
}

// ---- Groups of rows

let watch;
let near = new Set();
const heights = new Map();
// Rises with each change of the rows.
let version = 0;

function changed() {
  version += 1;
  focusId ??= document.activeElement?.id || null;
}

function see(entries) {
  for (const { target, isIntersecting, boundingClientRect } of entries) {
    if (isIntersecting) near.add(target.id);
    else if (!target.isConnected) watch.unobserve(target);
    else if (near.delete(target.id)) {
      heights.set(target.id, boundingClientRect.height);
      // It is replaced now, and an observer keeps what it observes in memory.
      watch.unobserve(target);
    }
  }
  redraw();
}

const groupId = (position) => `group-${Math.floor(position / GROUP)}`;

// The first groups are there before they can be seen. All are one list.
function group(first) {
  const id = groupId(first);
  const last = document.getElementById(id);
  const isFull = near.has(id) || !heights.has(id) || last?.contains(document.activeElement);
  const own = isFull ? `${version}-${mayChange}` : "empty";
  const isKept = last?.dataset.own === own || !isFull;
  const shownRows = isKept ? [] : rows.slice(first, first + GROUP).map((event, i) => row(event, first + i));
  return h("ol", { id, class: "rows", role: "none", "data-own": own, "aria-hidden": !isFull && "true" }, shownRows);
}

// An event that is to have the keyboard is in the document after the next drawing.
function fillGroupOf(id) {
  const head = headOf(id)?.id ?? id;
  heights.delete(groupId(rows.findIndex((event) => event.id === head)));
}

// After a drawing: groups are watched, those without rows get their height, and the keyboard goes where it was.
function settle() {
  freeSmallStills();
  for (const element of document.querySelectorAll(".rows")) {
    watch.observe(element);
    if (element.dataset.own === "empty") element.style.setProperty("height", `${heights.get(element.id)}px`);
  }
  const last = document.getElementById("more-events");
  if (last !== null && last.getBoundingClientRect().top < innerHeight + NEAR_PX && !isReading && readProblem === null) read(true);
  if (page === null) return;
  if (scrollWanted !== null) scrollTo(0, scrollWanted);
  if (focusId !== null) document.getElementById(focusId)?.focus({ preventScroll: true });
  scrollWanted = focusId = null;
}

// ---- The list

function render(status) {
  queueMicrotask(settle);
  mayChange = status.visitor === "logged_in";
  nowMs = status.time_ms;
  return [h("div", { class: "history" }, alarm(readProblem), alarm(problem), shown === null && alarm(marking.problem), h("p", { id: "said", role: "status", class: "quiet" }, said), content(status), isDeleting && quiet("Deleting"), question && asking())];
}

function content(status) {
  if (page === null) return quiet(readProblem === null && "Reading the events");
  if (!page.is_on) return offer(page.toml);
  if (shown !== null) return detail();
  const groups = Array.from({ length: Math.ceil(rows.length / GROUP) }, (_, index) => group(index * GROUP));
  return [
    filters(status),
    bars(),
    reach(status),
    h("section", { "aria-label": "Events" },
      hasNewer && h("p", { class: "buttons" }, h("button", { type: "button", "data-do": "newest" }, "Show newer events")),
      groups.length > 0 && h("div", { id: "event-list", role: "list" }, groups),
      rows.length === 0 && quiet("No event fits."),
      page.next !== null && h("p", { id: "more-events", class: "quiet" }, "Reading more")),
  ];
}

// Open where there is room; later, the reader decides.
function filters({ cameras }) {
  const isOpen = document.getElementById("filter") === null && matchMedia("(min-width: 48rem)").matches;
  const set = Object.values(filter).filter(Boolean).length;
  const of = (key) => cameras.flatMap((camera) => (camera[key] ?? []).map((one) => one.id));
  return h("details", { id: "filter", open: isOpen && "" },
    h("summary", {}, "Filter", set > 0 && ` (${set})`),
    h("form", { class: "filters", "aria-label": "Filter" },
      choice("camera", "Camera", sorted([...cameras.map((camera) => camera.id), ...seen.camera])),
      choice("prompt", "Prompt", sorted([...of("prompts"), ...seen.prompt])),
      choice("zone", "Zone", sorted([...of("zones"), ...seen.zone])),
      choice("mark", "Mark", MARKS),
      field("text", "Words or description", "search"),
      field("from", "From", "datetime-local"),
      field("to", "To", "datetime-local"),
      h("p", { class: "buttons" },
        [["1", "24 h"], ["7", "7 days"]].map(([days, words]) => h("button", { type: "button", "data-do": "days", "data-days": days }, words)),
        set > 0 && h("button", { type: "button", "data-do": "all" }, "Show all"))));
}

// The reader's own; what another action chooses comes into it by setFields.
const field = (name, label, type) =>
  h("label", {}, label, h("input", { id: `filter-${name}`, name, type, step: type === "datetime-local" && 1, value: filter[name], "data-own": "" }));

const sorted = (values) => values.toSorted();

function choice(name, label, known) {
  const values = [...new Set([...known, filter[name]])].filter(Boolean);
  return h("label", {}, label,
    h("select", { id: `filter-${name}`, name, "data-own": values.join() },
      h("option", { value: "" }, "all"),
      values.map((value) => h("option", { value, selected: value === filter[name] && "" }, value))));
}

function setFields() {
  for (const [name, value] of Object.entries(filter)) {
    const element = document.getElementById(`filter-${name}`);
    if (element !== null && element.value !== value) element.value = value;
  }
}

function bars() {
  const { bars: counts, bars_from_ms: from, bars_to_ms: to } = page;
  const top = Math.max(1, ...counts);
  const at = (i) => from + ((to - from) * i) / counts.length;
  const bar = (count, i) => {
    const height = (count / top) * 56;
    const name = `${zone.minute(at(i))} to ${zone.clock(at(i + 1)).slice(0, 5)}: ${counted(count, "event")}`;
    return h("button", { type: "button", id: `bar-${i}`, "data-do": "bar", "data-bar": i, title: name, "aria-label": name, tabindex: i === 0 ? null : -1 },
      s("svg", { viewBox: "0 0 10 56", preserveAspectRatio: "none", ...UNREAD }, s("rect", { class: "s3", x: 1, width: 8, y: 56 - height, height })));
  };
  return h("div", {},
    h("div", { class: "bars", role: "group", "aria-label": `Events by time, ${number(sum(counts))} in all; arrow keys go from one to the next` }, counts.map(bar)),
    h("p", { class: "span" }, h("span", {}, zone.minute(from)), h("span", {}, zone.minute(to))));
}

const ENDS = {
  keep: "older ones are deleted because of history.keep",
  size: "older ones are deleted because of history.size",
  start: "no limit has removed anything yet",
};

// How far back, how much, and what can be done with all that fit.
function reach(status) {
  const known = page.reach;
  const isPlain = !filter.prompt && !filter.zone && !filter.mark && !filter.text && (filter.camera || filter.from || filter.to);
  return h("div", { class: "reach" },
    known && h("p", { class: "quiet" },
      known.since_ms == null ? "No event is stored yet. " : `Reaches back to ${zone.minute(known.since_ms)}: ${ENDS[known.limit]}. `,
      `${counted(known.events, "event")}, ${bytes(known.bytes)}; ${bytes(known.bytes_a_day)} of the last day. `,
      `Times are those of the box: ${page.time_zone}.`),
    [known?.rows_stopped, known?.pictures_stopped].filter(Boolean).map((why) => h("p", { class: "reason" }, why)),
    h("p", { id: "history-buttons", class: "buttons" },
      h("a", { class: "button", id: "export", "data-do": "export", href: `events.zip?${query()}`, download: "" }, "Export as ZIP"),
      isPlain && mayChange && h("button", { type: "button", id: "delete-all", "data-do": "delete-all" }, `Delete all ${selectionWords()}`),
      !mayChange && h("span", { class: "quiet" }, status.has_login ? "To delete events, log in." : ["To delete events here, set ", h("code", {}, "http.tokens"), "."])));
}

const selectionWords = () =>
  [
    filter.camera && `of camera ${filter.camera}`,
    filter.from && `from ${filter.from.replace("T", " ")}`,
    filter.to && `to ${filter.to.replace("T", " ")}`,
  ].filter(Boolean).join(" ");

// `position` in the list; null of a repeat.
function row(event, position) {
  const unfolded = repeats.get(event.id);
  const place = position !== null && { "aria-posinset": position + 1, "aria-setsize": page.next === null ? rows.length : -1 };
  return h("li", { class: "event", role: "listitem", ...place },
    h("a", { id: `event-${event.id}`, class: "entry", href: `#events/${event.id}` },
      smallStill(event),
      h("span", { class: "entry-words" },
        h("span", { class: "head" }, h("b", {}, event.words || event.prompt), unseen(" at "), h("span", {}, event.camera)),
        h("time", { datetime: machineTime(start(event)) }, `${zone.day(start(event))} ${zone.clock(start(event))}`),
        h("span", { class: "quiet" }, [percentage(event.top_score), ...(event.zones ?? []), lasted(event)].filter(Boolean).join(" · ")),
        event.description && h("span", {}, event.description)),
      markPill(event.mark)),
    position !== null && event.repeats > 0 && h("button", { type: "button", id: `more-${event.id}`, class: "more", "data-do": "unfold", "data-id": event.id, "aria-expanded": String(unfolded != null) },
      `${unfolded ? "Hide" : "Show"} ${number(event.repeats)} more at this place within a day`),
    unfolded && h("ol", { class: "repeats" }, unfolded.map((one) => row(one, null))));
}

const lasted = (event) => (event.end_ms == null ? "not ended" : duration((event.end_ms - event.start_ms) / 1000));

// ---- One event

const allEvents = () => h("a", { class: "button", href: "#events" }, "All events");
const missing = () => h("div", { class: "panel" }, alarm(shown.error), h("p", { class: "buttons" }, allEvents()));

function detail() {
  if (shown.camera == null) return shown.error ? missing() : quiet("Reading the event");
  const [before, after] = beside(shown.id);
  const go = (event, words) => event && h("a", { class: "button", href: `#events/${event.id}` }, words);
  return h("article", { class: "panel detail", id: `detail-${shown.id}`, "aria-labelledby": "h-event" },
    h("div", { class: "title" }, h("h2", { id: "h-event", tabindex: -1 }, nameOf(shown)), markPill(shown.mark)),
    h("p", { class: "buttons" },
      allEvents(), go(before, "Newer"), go(after, "Older"),
      mayChange && h("button", { type: "button", id: "delete-event", "data-do": "delete", "data-id": shown.id }, "Delete")),
    alarm(shown.error),
    h("div", { class: "judged", id: `judged-${shown.id}` },
      still(shown, shown.picture, `${nameOf(shown)}, ${zone.minute(start(shown))}`, marking.editor ? marking.editor.shown() : shapesOf(shown))),
    mayChange && marking.render(shown, h("a", { class: "button", href: judgeAddress(shown) }, "Judge this prompt")),
    shown.description && h("p", {}, shown.description),
    facts([
      ["Time", `${zone.day(start(shown))} ${zone.clock(start(shown))}, ${zone.name}`],
      ["Lasted", lasted(shown)],
      ["Camera", shown.camera],
      ["Prompt", shown.prompt],
      ["Best score", percentage(shown.top_score)],
      ["Score at the begin", percentage(shown.score)],
      ["Zones", shown.zones?.join(", ") || "none"],
      ["Looks", shown.looks],
      ["More at this place within a day", shown.repeats],
    ]));
}

// Unfolded repeats are part of the list.
const listed = () => rows.flatMap((event) => [event, ...(repeats.get(event.id) ?? [])]);

// The events before and after one.
function beside(id) {
  const all = listed();
  const at = all.findIndex((event) => event.id === id);
  return at < 0 ? [] : [all[at - 1], all[at + 1]];
}

// ---- Deleting

// `find` returns the words and choices of a question, unless another one is asked meanwhile.
async function ask(asker, find) {
  const own = (asks += 1);
  problem = null;
  try {
    const found = await find();
    if (own !== asks) return;
    question = { ...found, asker };
  } catch (error) {
    if (own === asks) problem = error.message;
  }
  redraw();
  document.getElementById("delete-yes")?.focus();
}

const asking = () =>
  h("div", { id: "question", class: "question", role: "alertdialog", "aria-labelledby": "question-words" },
    h("p", { id: "question-words" }, question.words),
    h("p", { class: "buttons" },
      question.choices.map(({ words }, i) =>
        h("button", { type: "button", id: i === 0 ? "delete-yes" : "delete-place", "data-do": "delete-yes", "data-choice": i }, words)),
      h("button", { type: "button", id: "delete-no", "data-do": "delete-no" }, "Keep")));

// The list has the number of those that fit the filter; all at the place are deleted.
const askOne = (id, asker) =>
  ask(asker, async () => {
    const event = await readEvent(id);
    const one = { words: "Delete this event", selection: { id } };
    const all = { words: `Delete all ${number(event.repeats + 1)} at this place`, selection: { id, repeats: true } };
    return { words: `Delete ${nameOf(event)}, ${zone.minute(start(event))}, for good?`, choices: event.repeats > 0 ? [one, all] : [one] };
  });

// The bars of all times say how many there are.
function askAll(asker) {
  const { camera, from, to } = filter;
  const times = { ...(from && { from_ms: zone.unixMs(from) }), ...(to && { to_ms: zone.unixMs(to) }) };
  const selection = { ...(camera && { camera }), ...times };
  const which = selectionWords();
  return ask(asker, async () => {
    const { bars: counts } = await request(`events.json?${new URLSearchParams({ from_ms: 0, ...selection, limit: 1 })}`);
    return { words: `Delete ${counted(sum(counts), "event")} ${which} for good?`, choices: [{ words: "Delete", selection }] };
  });
}

function keep() {
  focusId = question.asker;
  question = null;
  redraw();
}

async function remove(selection) {
  const next = following(selection);
  question = null;
  asks += 1;
  isDeleting = true;
  redraw();
  problem = await change("events/delete", selection, DELETE_MS);
  isDeleting = false;
  if (problem !== null || !selection.id || !forget(selection)) readAgain();
  if (problem === null && selection.id) goOn(selection.id, next);
  redraw();
}

// Leaves a deleted event.
function goOn(id, next) {
  focusId = next ? `event-${next.id}` : null;
  if (next) fillGroupOf(next.id);
  if (shown?.id !== id) return;
  // The list gives the keyboard to what was shown.
  shown = next ?? null;
  location.hash = "#events";
}

const headOf = (id) => rows.find((event) => repeats.get(event.id)?.some((one) => one.id === id));

// What comes after the deleted ones in the list.
function following({ id, repeats: isPlace }) {
  if (!isPlace) return beside(id)[1];
  const head = headOf(id)?.id ?? id;
  const at = rows.findIndex((event) => event.id === head);
  return at < 0 ? undefined : rows[at + 1];
}

// Takes a deleted event from the list; returns false where the list must be read, because others change with it.
function forget({ id, repeats: isPlace }) {
  const head = headOf(id);
  const isAlone = rows.some((event) => event.id === id && !(event.repeats > 0));
  repeats.delete(id);
  if (isPlace || !(head || isAlone)) return false;
  if (head) forgetRepeat(head, id);
  else rows = rows.filter((event) => event.id !== id);
  changed();
  return true;
}

function forgetRepeat(head, id) {
  const left = repeats.get(head.id).filter((one) => one.id !== id);
  head.repeats -= 1;
  if (left.length > 0) repeats.set(head.id, left);
  else repeats.delete(head.id);
}

// ---- What the reader does

function show(wanted) {
  filter = { ...filter, ...wanted };
  near = new Set();
  heights.clear();
  problem = null;
  // Until the answer comes: all of them would be drawn.
  rows = rows.slice(0, GROUP);
  changed();
  read(false);
  redraw();
  setFields();
}

const ACTIONS = {
  all: () => show(NO_FILTER),
  newest: () => {
    scrollTo(0, 0);
    show({});
  },
  days: ({ days }) => show({ from: zone.field(Date.now() - Number(days) * DAY_MS), to: "" }),
  bar: ({ bar }) => {
    const { bars_from_ms: begin, bars_to_ms: end, bars: counts } = page;
    const at = (i) => begin + ((end - begin) * i) / counts.length;
    const [from, to] = zone.range(at(Number(bar)), at(Number(bar) + 1));
    show({ from, to });
  },
  export: exportAll,
  unfold: ({ id }) => unfold(id),
  delete: ({ id }, asker) => askOne(id, asker),
  "delete-all": (_, asker) => askAll(asker),
  "delete-yes": ({ choice }) => remove(question.choices[Number(choice)].selection),
  "delete-no": keep,
};

async function unfold(id) {
  problem = null;
  if (repeats.delete(id)) {
    changed();
    return redraw();
  }
  try {
    const answer = await list({ of: id, limit: EVENTS_MAX });
    repeats.set(id, answer.events);
    changed();
  } catch (error) {
    problem = error.message;
  }
  redraw();
}

// A refusal would be a download that fails, without its words.
async function exportAll() {
  const asked = query();
  problem = await refusal(`export.json?${asked}`);
  if (problem === null) h("a", { href: `events.zip?${asked}`, download: "" }).click();
  redraw();
}

function click(event) {
  const { target } = event;
  if (target.id === "toml") target.select();
  const control = target.closest?.("[data-do]");
  if (control?.tagName === "A") event.preventDefault();
  if (control) ACTIONS[control.dataset.do](control.dataset, control.id);
  else marking.click(event, shown);
}

function filterChanged({ target }) {
  if (target.name in filter && target.value !== filter[target.name]) show({ [target.name]: target.value });
}

function submit() {
  filterChanged({ target: document.activeElement });
}

const STEPS = { j: 1, ArrowDown: 1, ArrowRight: 1, k: -1, ArrowUp: -1, ArrowLeft: -1 };

function key(event) {
  if (question === null && mayChange && markByKey(event)) return true;
  if (event.ctrlKey || event.metaKey || event.altKey || marking.editor) return false;
  if (event.key === "Escape") return escape();
  if (question !== null || event.target.matches?.("input, select, textarea")) return false;
  const step = STEPS[event.key];
  const bar = event.target.closest?.("[data-bar]");
  if (bar && step) return focus(`bar-${Number(bar.dataset.bar) + step}`);
  if (event.key === "Delete") return askFocused(event.target);
  if (!step || page?.is_on !== true) return false;
  return shown === null ? focusBeside(step) : openBeside(step);
}

function markByKey(event) {
  if (shown !== null) return marking.key(event, shown.camera ? shown : null);
  const one = focused(event.target);
  const letter = event.ctrlKey || event.metaKey || event.altKey ? "" : event.key.toLowerCase();
  // A picture in the list is too small to correct it there, or to say that all is found.
  if (one === null || !["c", "f"].includes(letter)) return marking.key(event, one);
  if (letter === "c") {
    correctId = one.id;
    location.hash = `#events/${one.id}`;
  }
  return true;
}

const idOf = (target) => target.closest?.(".event")?.querySelector(".entry")?.id.slice("event-".length);

// The event of the list that has the keyboard.
function focused(target) {
  const id = idOf(target);
  return listed().find((event) => event.id === id) ?? null;
}

function marked(event, values, isUndo) {
  const isForeign = shown === null ? !listed().some((one) => one.id === event.id) : shown.id !== event.id;
  said = isUndo && isForeign ? takenBack(event, zone) : "";
  for (const one of [event, shown, ...listed()]) if (one?.id === event.id) Object.assign(one, values);
  changed();
  redraw();
}

function escape() {
  if (question !== null) keep();
  else if (shown !== null) location.hash = "#events";
  else return false;
  return true;
}

function askFocused(target) {
  const id = shown?.id ?? idOf(target);
  if (!id || !mayChange) return false;
  askOne(id, target.id);
  return true;
}

function focus(id) {
  const element = document.getElementById(id);
  element?.focus();
  element?.scrollIntoView({ block: "nearest" });
  return true;
}

function focusBeside(step) {
  const from = idOf(document.activeElement);
  if (!from) {
    const isInView = (entry) => entry.getBoundingClientRect().bottom > 0;
    return focus([...document.querySelectorAll(".entry")].find(isInView)?.id);
  }
  const next = beside(from)[step > 0 ? 1 : 0];
  if (!next) return true;
  fillGroupOf(next.id);
  redraw();
  return focus(`event-${next.id}`);
}

function openBeside(step) {
  const event = beside(shown.id)[step > 0 ? 1 : 0];
  if (event) location.hash = `#events/${event.id}`;
  return true;
}
