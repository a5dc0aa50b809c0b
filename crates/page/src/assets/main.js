// Draws status.json, and once a second what changed in it, so that focus, scrolling and open details stay and a screen reader
// hears only what is new. It comes as server-sent events, or is asked for where none come; none of both while the page is hidden.
//
// A view is { id, title, needs: "figures" | "pictures" | "login", render(status, argument, redraw) } and is shown at the address
// #ID or #ID/ARGUMENT. `render` returns the elements of the page, which the shown ones follow, so listeners of theirs would be lost:
// a view hears by its functions click, input, change, submit and key, which are called with the event; key returns true if the
// view has used the key. With `isUnlisted`, links alone lead there. `open(argument, redraw)` and `close()` are called before and after it is shown;
// `stays(event)` returns true if another address shall not be followed, because something is not saved.

import { access, may, refusal, submitAccess } from "./access.js";
import { follow, h } from "./dom.js";
import { draw as drawView } from "./draw.js";
import { clockTime, machineTime } from "./format.js";
import { events } from "./events.js";
import { help } from "./help.js";
import { judge } from "./judge.js";
import { now } from "./now.js";
import { ANSWER_LIMIT_MS } from "./server.js";
import { tryWords } from "./try.js";
import { troubles, verdict } from "./verdict.js";

const VIEWS = [now, tryWords, drawView, events, judge, help];

// Pictures that change all the time are motion.
const IS_CALM = matchMedia("(prefers-reduced-motion: reduce)").matches;
const EVERY_MS = IS_CALM ? 5000 : 1000;
const SLOWEST_MS = 30_000;

// ---- The page

let last = null;
// What is shown: a view, or why it is not, and its argument.
let shown = { view: null, argument: null, isOpen: false };

// The address that is followed: a new one once the view was asked whether it may be left.
let address = location.hash;

// The view of the address; other fragments are of the first view.
function wanted() {
  const [, id, argument = null] = address.match(/^#([^/]*)(?:\/(.*))?$/) ?? [];
  const view = VIEWS.find((one) => one.id === id);
  return view ? { view, argument } : { view: VIEWS[0], argument: null };
}

function draw() {
  if (last === null) return;
  const { view, argument } = wanted();
  const isOpen = may(view, last);
  if (view !== shown.view || argument !== shown.argument || isOpen !== shown.isOpen) {
    const before = shown;
    // A view may draw while it closes.
    shown = { view, argument, isOpen };
    if (before.isOpen) before.view.close?.();
    if (isOpen) view.open?.(argument, draw);
  }
  const { count } = troubles(last);
  const names = [listed(view).length > 1 && view.title, last.node.name, "Spotter"];
  document.title = `${count > 0 ? `(${count}) ` : ""}${names.filter(Boolean).join(" · ")}`;
  follow(document.body, page(last));
}

function page(status) {
  const { node, time_ms: time } = status;
  const { view, argument, isOpen } = shown;
  return h("body", {},
    h("p", { id: "away", class: "away", role: "alert", hidden: "" }),
    h("header", { class: "top" },
      h("h1", {},
        h("span", { class: "brand" }, "Spotter"), " ", h("span", { class: "node" }, node.name),
        node.mode != null && [" ", h("span", { class: "quiet" }, `mode ${node.mode}`)]),
      listed(view).length > 1 && navigation(view),
      access(status),
      verdict(status)),
    h("main", { id: `view-${view.id}` }, isOpen ? view.render(status, argument, draw) : refusal(view, status)),
    h("footer", {},
      h("p", {},
        `Spotter ${node.version} · `,
        h("time", { datetime: machineTime(time) }, `${clockTime(time)} UTC`),
        ["status.json", "metrics", "healthz"].map((name) => [" · ", h("a", { href: name }, name)]))));
}

// With one view there is nowhere to go, but from the documentation back.
const listed = (current) => VIEWS.filter((view) => !view.isUnlisted || view === current);

const navigation = (current) =>
  h("nav", { class: "views", "aria-label": "Views" },
    listed(current).map((view) => h("a", { href: `#${view.id}`, "aria-current": view === current && "page" }, view.title)));

// A camera's address may have led from another view, which did not have its card.
function navigate(event) {
  if (shown.isOpen && shown.view.stays?.(event)) return;
  address = location.hash;
  draw();
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

const pass = (event) => shown.isOpen && shown.view[event.type]?.(event);

function submit(event) {
  event.preventDefault();
  if (event.target.matches(".access")) submitAccess(event.target).then(refreshNow);
  else pass(event);
}

function press(event) {
  if (shown.isOpen && shown.view.key?.(event)) event.preventDefault();
}

for (const kind of ["click", "input", "change"]) document.addEventListener(kind, pass);
document.addEventListener("submit", submit);
document.addEventListener("keydown", press);
addEventListener("hashchange", navigate);

// ---- Requests

let pause = EVERY_MS;
let failures = 0;
let isAsking = false;
let timer;
let version;

async function ask() {
  const answer = await fetch("status.json?pictured", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_LIMIT_MS) });
  // A daemon that starts says so in words.
  if (!answer.ok) return showAway(await answer.text());
  show(await answer.json());
  await openStream();
}

function show(status) {
  version ??= status.node.version;
  // The daemon was upgraded, and this file with it.
  if (version !== status.node.version) return location.reload();
  last = status;
  draw();
}

function showAway(text) {
  const away = document.getElementById("away");
  away.textContent = text;
  away.hidden = false;
}

async function refresh() {
  if (isAsking || document.hidden) return;
  isAsking = true;
  try {
    await ask();
    pause = EVERY_MS;
    failures = 0;
  } catch (error) {
    console.error(error);
    pause = Math.min(pause * 2, SLOWEST_MS);
    failures += 1;
    // One answer may be lost on the way.
    if (failures > 1) showAway("No answer from Spotter. This page shows its last answer.");
  }
  isAsking = false;
  if (stream === null) timer = setTimeout(refresh, pause);
}

function refreshNow() {
  closeStream(0);
  clearTimeout(timer);
  pause = EVERY_MS;
  refresh();
}

// A proxy may keep events back: then the page asks.
const SILENCE_MS = 5000;
const NEXT_STREAM_MS = 60_000;

// A browser has six connections to a host for all its tabs: beside so many streams, a tab asks.
const STREAMS_MAX = 4;
const COUNT_MS = 100;

let stream = null;
let isOpening = false;
let silence;
let streamNotBefore = 0;
let others = 0;

const tabs = new BroadcastChannel("spotter-streams");
tabs.onmessage = ({ data }) => {
  if (data === "here") others += 1;
  else if (stream !== null || isOpening) tabs.postMessage("here");
};

async function hasRoom() {
  others = 0;
  isOpening = true;
  tabs.postMessage("who?");
  await new Promise((counted) => setTimeout(counted, COUNT_MS));
  isOpening = false;
  if (others >= STREAMS_MAX) streamNotBefore = performance.now() + NEXT_STREAM_MS;
  return others < STREAMS_MAX;
}

async function openStream() {
  if (IS_CALM || stream !== null || performance.now() < streamNotBefore || !(await hasRoom()) || document.hidden) return;
  const opened = new EventSource("status.events?pictured");
  const fail = (pauseMs) => {
    if (stream !== opened) return;
    closeStream(pauseMs);
    refresh();
  };
  const listen = () => {
    clearTimeout(silence);
    silence = setTimeout(() => fail(NEXT_STREAM_MS), SILENCE_MS);
  };
  opened.onmessage = ({ data }) => {
    listen();
    show(JSON.parse(data));
  };
  opened.onerror = () => fail(SILENCE_MS);
  stream = opened;
  listen();
}

function closeStream(pauseMs) {
  clearTimeout(silence);
  stream?.close();
  stream = null;
  streamNotBefore = performance.now() + pauseMs;
}

document.addEventListener("visibilitychange", refreshNow);
refresh();
