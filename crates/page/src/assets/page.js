// Draws status.json, and once a second what changed in it, so that focus, scrolling and open details stay and a screen reader
// hears only what is new. It comes as server-sent events, or is asked for where none come; none of both while the page is hidden.
// Every text becomes a text node, never HTML. Addresses are relative, because a proxy may show the page below a path.

// Pictures that change all the time are motion.
const IS_CALM = matchMedia("(prefers-reduced-motion: reduce)").matches;
const EVERY_MS = IS_CALM ? 5000 : 1000;
const SLOWEST_MS = 30_000;
const ANSWER_LIMIT_MS = 10_000;

// ---- Elements

const SVG = "http://www.w3.org/2000/svg";

// Attributes that are null or false and such children are left out; lists of children are flattened.
function fill(element, attributes, children) {
  const is = (value) => value != null && value !== false;
  for (const [name, value] of Object.entries(attributes)) if (is(value)) element.setAttribute(name, value);
  element.append(...children.flat(Infinity).filter(is));
  return element;
}

const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const classes = (...names) => names.filter(Boolean).join(" ");

// Makes `shown` like `wanted`. What has an id is the same thing wherever it is among its siblings.
function follow(shown, wanted) {
  if (shown.isEqualNode(wanted)) return;
  if (shown.nodeType !== wanted.nodeType || shown.nodeName !== wanted.nodeName || shown.id !== wanted.id) {
    shown.replaceWith(wanted);
    return;
  }
  if (shown.nodeType !== Node.ELEMENT_NODE) {
    shown.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...shown.attributes]) {
    // The reader decides whether details are open.
    if (name !== "open" && !wanted.hasAttribute(name)) shown.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (shown.getAttribute(name) !== value) shown.setAttribute(name, value);
  }
  const [old, fresh] = [[...shown.childNodes], [...wanted.childNodes]];
  fresh.forEach((child, i) => (old[i] ? follow(old[i], child) : shown.append(child)));
  old.slice(fresh.length).forEach((child) => child.remove());
}

// ---- Numbers, times and states in words

const known = (value, words) => (value == null ? "unknown" : words(value));
const clockTime = (unixMs) => new Date(unixMs).toISOString().slice(11, 19);
const machineTime = (unixMs) => `${new Date(unixMs).toISOString().slice(0, 19)}Z`;
const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const sum = (values) => values.reduce((a, b) => a + b, 0);
const two = (value) => Math.round(value * 100) / 100;

// Digits in groups, with a narrow space that does not break.
const number = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");

// The two largest units: 41 s, 3 min 7 s, 2 h 5 min, 9 d 3 h.
function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const [large, small] =
    s < 60 ? [`${s} s`]
    : s < 3600 ? [`${Math.floor(s / 60)} min`, s % 60 && `${s % 60} s`]
    : s < 86_400 ? [`${Math.floor(s / 3600)} h`, Math.floor(s / 60) % 60 && `${Math.floor(s / 60) % 60} min`]
    : [`${Math.floor(s / 86_400)} d`, Math.floor(s / 3600) % 24 && `${Math.floor(s / 3600) % 24} h`];
  return small ? `${large} ${small}` : large;
}

const ago = (ms) => `${ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : duration(ms / 1000)} ago`;

// Two or three digits: 0.82 ms, 8.2 ms, 82 ms, 1.2 s.
function millis(ms) {
  if (ms < 0.995) return `${ms.toFixed(2)} ms`;
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${ms.toFixed(0)} ms`;
  return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
}

const CAMERA_STATES = {
  waiting_keyframe: "waiting for a key frame",
  auth_failed: "login refused",
  unsupported: "not supported",
};

const ENGINE_STATES = { runs: ["good", "running"], opens: ["busy", "opening"], ended: ["bad", "failed"] };

// ---- Pieces

const PILL_SHAPES = {
  good: "M3 8.5 6.5 12 13 4.5",
  busy: "M8 3v5l3 3M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 1 1 0-13",
  bad: "M8 3v6M8 12v1",
  off: "M3 8h10",
};
// Of drawings that a screen reader passes over.
const UNREAD = { "aria-hidden": "true", focusable: "false" };

// A state: shape, colour and words.
function pill(mood, words) {
  const shape = svg("svg", { viewBox: "0 0 16 16", ...UNREAD }, svg("path", { d: PILL_SHAPES[mood] }));
  return h("span", { class: `pill ${mood}` }, shape, words);
}

// The colour of a stage, for legends.
function chip(stage) {
  const square = svg("rect", { class: `s${stage}`, width: 10, height: 10, rx: 2 });
  return svg("svg", { class: "chip", viewBox: "0 0 10 10", ...UNREAD }, square);
}

const unseen = (words) => h("span", { class: "unseen" }, words);
const quiet = (...words) => h("p", { class: "quiet" }, words);
const figure = (value, words) => h("span", {}, h("b", {}, value), ` ${words}`);
const facts = (lines) =>
  h("dl", { class: "facts" }, lines.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

// Why a state is not good, and when the next try is. Off on purpose is no alarm.
function reason({ mood, reason: text, next_retry_s: next }) {
  if (text == null) return null;
  return h("p", { class: classes("reason", mood === "off" && "calm") }, text, ".", next != null && ` Next try in ${duration(next)}.`);
}

const sums = (caption, rows, head) =>
  h("table", { class: "sums" },
    h("caption", {}, caption),
    head && h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map(([name, ...values]) => h("tr", {}, h("th", { scope: "row" }, name), values.map((value) => h("td", {}, value))))));

const panel = (id, heading, state, ...content) =>
  h("section", { class: "panel", "aria-labelledby": `h-${id}` },
    h("div", { class: "title" }, h("h2", { id: `h-${id}` }, heading), state), content);

const part = (heading, state, ...content) =>
  h("div", { class: "engine" }, h("div", { class: "title" }, h("h3", {}, heading), state), content);

// ---- Plots: each has its numbers as text beside it, for screen readers

const PLOT = { width: 300, height: 56, lane: 12, lanes: 16 };
// Parts of a look's way through the engine, in the colours of the stages.
const PHASES = [2, 3, 4, 5];

// The smallest of 1, 2, 5, 10, 20 … that is not below `ms`.
function roundUp(ms) {
  const at = Math.max(ms, 1);
  const decade = 10 ** Math.floor(Math.log10(at));
  return [1, 2, 5, 10].map((step) => step * decade).find((step) => step >= at) ?? at;
}

const plot = (kind, height, label, ...content) =>
  svg("svg", { class: kind, role: "img", "aria-label": label, viewBox: `0 0 ${PLOT.width} ${height}`, preserveAspectRatio: "none" }, content);

const gridLine = (kind, x1, y1, x2, y2) => svg("line", { class: kind, x1, y1, x2, y2 });

// Columns of mean stage times on one scale that starts at zero. One path for each stage: a page has a hundred of these plots.
function latency({ p50_ms: p50, p95_ms: p95, mean_ms: means, columns_ms: columns }, stages) {
  if (p50 == null || p95 == null) return quiet("No messages in the last minute");
  const top = roundUp(Math.max(0, ...columns.filter(Boolean).map(sum)));
  const across = PLOT.width / columns.length;
  const tops = columns.map(() => PLOT.height);
  const layer = (name, stage) => {
    const piece = (column, i) => {
      const height = ((column?.[stage] ?? 0) / top) * PLOT.height;
      tops[i] -= height;
      return height < 0.05 ? "" : `M${two(i * across)} ${two(tops[i])}h${across - 1}v${two(height)}h${1 - across}z`;
    };
    const title = svg("title", {}, `${name}, mean ${millis(means[stage])}`);
    return svg("path", { class: `s${stage}`, d: columns.map(piece).join("") }, title);
  };
  const label = `Latency of the last minute, half of it below ${millis(p50)}, 95 percent below ${millis(p95)}; scale to ${millis(top)}`;
  return h("div", { class: "way" },
    h("p", { class: "figures" }, figure(millis(p50), "median"), figure(millis(p95), "95 %")),
    h("div", { class: "scaled" },
      plot("plot", PLOT.height, label,
        gridLine("grid", 0, PLOT.height / 2, PLOT.width, PLOT.height / 2),
        stages.map(layer),
        gridLine("axis", 0, PLOT.height, PLOT.width, PLOT.height)),
      h("span", { class: "top", "aria-hidden": "true" }, millis(top))),
    h("p", { class: "span", "aria-hidden": "true" }, h("span", {}, "1 min ago"), h("span", {}, "now")));
}

// Looks on their way through an engine, each in the first lane that is free.
function timeline({ bars, span_ms, device, busy_pct }) {
  const span = Math.max(span_ms, 1);
  const ends = [];
  const looks = bars.toSorted((a, b) => a.marks_ms[0] - b.marks_ms[0]).map(({ camera, marks_ms: marks }) => {
    const free = ends.findIndex((end) => end <= marks[0]);
    const lane = free < 0 ? ends.length : free;
    if (lane === PLOT.lanes) return null;
    ends[lane] = marks[4];
    const x = (ms) => (Math.min(Math.max(ms, 0), span) / span) * PLOT.width;
    return svg("g", {},
      svg("title", {}, `${camera} ${millis(marks[4] - marks[0])}`),
      PHASES.map((phase, i) => {
        const [from, to] = [x(marks[i]), x(marks[i + 1])];
        const place = { x: two(from), y: lane * PLOT.lane + 1, width: two(to - from), height: PLOT.lane - 2 };
        return to > from && svg("rect", { class: `s${phase}`, ...place });
      }));
  });
  const lanes = Math.max(ends.length, 1);
  const height = lanes * PLOT.lane;
  const label = `${counted(bars.length, "look")} in the last ${millis(span)} on ${device}, busy ${busy_pct.toFixed(0)} percent of the time`;
  const quarters = [1, 2, 3].map((quarter) => (quarter * PLOT.width) / 4);
  return plot(`timeline lanes${lanes}`, height, label, quarters.map((x) => gridLine("grid", x, 0, x, height)), looks);
}

// ---- Over a picture: zones and lines of the configuration, and what was found
//
// Positions are shares of the picture, so strokes and letters do not scale with it. All of it is hidden from screen readers, which
// have the table of answers. Words are placed for a narrow picture, in which letters need the largest share of it: words that do
// not cover each other there do so in no wider one.

const INKS = 6;
// With more objects than this in a picture, names would hide it; their colours are those of the prompts.
const NAMED_MAX = 6;
const NAME_CHARS = 14;
// Pixels: the narrow picture, a character with its outline, a line of text above and below its base line, and its middle.
const LETTERS = { width: 290, across: 8.2, above: 12, below: 4, middle: 4.5 };
// Up to the left side of a line that goes to the right, down to its right side; pixels from there to a direction's name.
const ARROW = "M0-12V12M-4-7 0-12 4-7M-4 7 0 12 4 7";
const ARROW_PX = 16;
const LINE_END_PX = 6;
// Where the arrow may be, in shares of the line's length.
const ARROW_AT = [0.5, 0.35, 0.65, 0.2, 0.8];

const ink = (prompt) => `ink${prompt % INKS}`;
const percent = (share) => `${two(share * 100)}%`;
const short = (name) => (name.length > NAME_CHARS ? `${name.slice(0, NAME_CHARS)}…` : name);
const points = (corners) => corners.map(([x, y]) => `${x.toFixed(4)},${y.toFixed(4)}`).join(" ");
// Each stroke has a dark one under it.
const outlined = (tag, kind, attributes) => ["under", kind].map((name) => svg(tag, { class: name, ...attributes }));
const overlap = (a, b) =>
  Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) * Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
// The first of those with the lowest cost.
const cheapest = (all, cost) => all.reduce((best, one) => (cost(one) < cost(best) ? one : best));

// A place of a word is where its base line begins, ends or has its middle: shares of the picture (x, y), pixels from there (dx, dy).
class PictureWords {
  constructor(aspect) {
    this.whole = { left: 0, top: 0, right: LETTERS.width, bottom: LETTERS.width / aspect };
    this.taken = [];
    this.drawn = [];
  }

  area(chars, { x, y, dx, dy, anchor }) {
    const width = chars * LETTERS.across;
    const left = x * this.whole.right + dx - { start: 0, middle: width / 2, end: width }[anchor];
    const base = y * this.whole.bottom + dy;
    return { left, top: base - LETTERS.above, right: left + width, bottom: base + LETTERS.below };
  }

  // The same place, or one at the edge of the picture beyond which the word would end.
  inside(chars, place) {
    const { left, top, right, bottom } = this.area(chars, place);
    const across = left < 0 ? { x: 0, dx: 2, anchor: "start" } : right > this.whole.right ? { x: 1, dx: -2, anchor: "end" } : {};
    const down = top < 0 ? { y: 0, dy: LETTERS.above + 1 } : bottom > this.whole.bottom ? { y: 1, dy: -LETTERS.below - 1 } : {};
    return { ...place, ...across, ...down };
  }

  // Square pixels that a word would cover of others, or that would be outside of the picture if it was not moved.
  cost(chars, place) {
    const area = this.area(chars, place);
    const outside = overlap(area, area) - overlap(area, this.whole);
    const moved = this.area(chars, this.inside(chars, place));
    return outside + sum(this.taken.map((other) => overlap(moved, other)));
  }

  keepFree(x, y, pixels) {
    const [left, top] = [x * this.whole.right, y * this.whole.bottom];
    this.taken.push({ left: left - pixels, top: top - pixels, right: left + pixels, bottom: top + pixels });
  }

  // `words` are pairs of a class and a text.
  write(words, places) {
    const chars = sum(words.map(([, text]) => text.length)) + words.length - 1;
    const place = this.inside(chars, cheapest(places, (one) => this.cost(chars, one)));
    this.taken.push(this.area(chars, place));
    const spans = words.map(([kind, text], i) => [i > 0 && " ", svg("tspan", { class: kind }, text)]);
    const at = { x: percent(place.x), y: percent(place.y), dx: two(place.dx), dy: two(place.dy), "text-anchor": place.anchor };
    this.drawn.push(svg("text", at, spans));
  }
}

// At a share of a line's length on the screen, whose pixels are square; `along` is where the line goes there.
function lineSpot({ points: corners }, aspect, share) {
  const pieces = corners.slice(1).map(([x1, y1], i) => {
    const [x, y] = corners[i];
    const [across, down] = [(x1 - x) * aspect, y1 - y];
    const length = Math.max(Math.hypot(across, down), Number.MIN_VALUE);
    return { x, y, length, along: [across / length, down / length] };
  });
  let rest = share * sum(pieces.map((piece) => piece.length));
  const at = pieces.find((piece, i) => rest <= piece.length || i === pieces.length - 1 || ((rest -= piece.length), false));
  const part = Math.min(rest, at.length);
  return { x: at.x + (at.along[0] * part) / aspect, y: at.y + at.along[1] * part, along: at.along };
}

// A word that begins `pixels` away from a spot, in that direction.
function beside({ x, y }, [across, down], pixels) {
  const anchor = across > 0.4 ? "start" : across < -0.4 ? "end" : "middle";
  return { x, y, dx: across * pixels, dy: down * (pixels + LETTERS.middle) + LETTERS.middle, anchor };
}

const back = ([across, down]) => [-across, -down];
const right = ([across, down]) => [-down, across];
const bothSides = (spot, pixels) => [right(spot.along), back(right(spot.along))].map((way) => beside(spot, way, pixels));

// The names of a line and its directions, each with the count of every prompt in its colour. Returns the spot of its arrow.
function writeLine(words, camera, line, aspect) {
  const directions = line.directions.map((way) => {
    const count = (prompt, index) => {
      const counts = prompt.lines[line.id];
      return counts?.[way] == null ? [] : [[ink(index), number(counts[way])]];
    };
    return [...camera.prompts.flatMap(count), ["plain", short(way)]];
  });
  const chars = directions.map((texts) => sum(texts.map(([, text]) => text.length + 1)) - 1);
  const cost = (spot) => sum(bothSides(spot, ARROW_PX).map((place, i) => words.cost(chars[i], place)));
  const arrow = cheapest(ARROW_AT.map((share) => lineSpot(line, aspect, share)), cost);
  words.keepFree(arrow.x, arrow.y, ARROW_PX);
  bothSides(arrow, ARROW_PX).forEach((place, i) => words.write(directions[i], [place]));
  const [first, last] = [lineSpot(line, aspect, 0), lineSpot(line, aspect, 1)];
  const ends = [[first, back(first.along)], [last, last.along]];
  const places = ends.flatMap(([spot, onwards]) => [beside(spot, onwards, LINE_END_PX), ...bothSides(spot, LINE_END_PX)]);
  words.write([["plain", short(line.id)]], places);
  return arrow;
}

// In one of a zone's corners, or in its middle.
function writeZone(words, { id, polygon }) {
  const [x, y] = [0, 1].map((axis) => sum(polygon.map((corner) => corner[axis])) / polygon.length);
  const corner = ([cx, cy]) => ({
    x: cx,
    y: cy,
    ...(cx < x ? { dx: 5, anchor: "start" } : { dx: -5, anchor: "end" }),
    dy: cy < y ? 15 : -6,
  });
  const corners = polygon.toSorted((a, b) => a[0] + a[1] - b[0] - b[1]).map(corner);
  words.write([["plain", short(id)]], [...corners, { x, y, dx: 0, dy: LETTERS.middle, anchor: "middle" }]);
}

// The score of an object, with the name of its prompt if that covers no other words.
function writeMark(words, mark, name) {
  const places = markPlaces(mark.place);
  const score = (mark.score * 100).toFixed(0);
  const named = name && `${short(name)} ${score}`;
  const fits = named && places.some((place) => words.cost(named.length, place) === 0);
  words.write([[ink(mark.prompt), fits ? named : score]], places);
}

// Above the object, else in it, below it, or at its other side. In the right part of the picture, text ends where its object ends.
function markPlaces({ box, point }) {
  const [x0, y0, x1, y1] = box ?? [...point, ...point];
  const [rows, dx] = box ? [[[y0, -5], [y0, 15], [y1, 15], [y1, -5]], 2] : [[[y0, -5], [y0, 13]], 9];
  return rows.flatMap(([y, dy]) => {
    const sides = [{ x: x0, y, dx, dy, anchor: "start" }, { x: x1, y, dx: -dx, dy, anchor: "end" }];
    return x0 > 0.7 ? sides.reverse() : sides;
  });
}

function markShape({ prompt, place: { box, point } }) {
  if (point) return svg("g", { class: ink(prompt) }, outlined("circle", "line", { cx: percent(point[0]), cy: percent(point[1]), r: 5 }));
  const [x0, y0, x1, y1] = box;
  const place = { x: percent(x0), y: percent(y0), width: percent(x1 - x0), height: percent(y1 - y0), rx: 2 };
  return svg("g", { class: ink(prompt) }, outlined("rect", "line", place));
}

// Rings that run in opposite directions enclose a hole, as in the path of an SVG.
function outlineShape({ prompt, polygon }) {
  const d = polygon.map((ring) => `M${points(ring)}Z`).join("");
  return svg("g", { class: ink(prompt) }, outlined("path", "area", { d }));
}

function arrowShape({ x, y, along: [across, down] }) {
  const turned = { d: ARROW, transform: `rotate(${two((Math.atan2(down, across) * 180) / Math.PI)})` };
  return svg("svg", { class: "plain", x: percent(x), y: percent(y) }, outlined("path", "line", turned));
}

function overlay(camera) {
  const { zones = [], lines = [], prompts, look } = camera;
  const aspect = Math.max(look.size[0], 1) / Math.max(look.size[1], 1);
  const words = new PictureWords(aspect);
  // What does not move is written first, so that it stays where it is.
  const arrows = lines.map((line) => writeLine(words, camera, line, aspect));
  zones.forEach((zone) => writeZone(words, zone));
  const isNamed = look.found.length <= NAMED_MAX;
  look.found.forEach((mark) => writeMark(words, mark, isNamed && prompts[mark.prompt]?.id));
  return svg("svg", { class: "overlay", ...UNREAD },
    svg("svg", { class: "plain", viewBox: "0 0 1 1", preserveAspectRatio: "none" },
      zones.map((zone) => outlined("polygon", "zone", { points: points(zone.polygon) })),
      lines.map((line) => outlined("polyline", "line", { points: points(line.points) })),
      look.found.filter((mark) => mark.polygon).map(outlineShape)),
    look.found.filter((mark) => !mark.polygon).map(markShape),
    arrows.map(arrowShape),
    words.drawn);
}

// ---- A camera's card

// The picture that is shown may be a second older than the newest answers.
const SAME_LOOK_MS = 1500;
// A look is old when it is older than this, and its picture says so.
const OLD_MS = 60_000;

function card(camera, status) {
  const { id, mood, look, frames, triggers = [] } = camera;
  const active = triggers.filter((trigger) => trigger.active).map((trigger) => trigger.id);
  const waits = mood === "good" && triggers.length > 0 && active.length === 0;
  const state = waits ? "waiting for a trigger" : CAMERA_STATES[camera.state] ?? camera.state.replaceAll("_", " ");
  return h("article", { class: "card", id: `cam-${id}`, "aria-labelledby": `h-${id}` },
    h("header", {}, h("h3", { id: `h-${id}` }, id), pill(mood, state)),
    look ? picture(camera, status.visitor) : h("div", { class: "still empty" }, h("p", {}, "No look yet")),
    h("div", { class: "body" },
      reason(camera),
      active.length > 0 && quiet(`Looked at because of ${active.join(", ")}`),
      answers(camera),
      latency(camera.latency, status.stages),
      losses(frames, camera.stream),
      details(camera, status)));
}

const noPicture = (visitor) =>
  visitor === "stranger" ? "Pictures are hidden" : "No picture yet; one follows within a second of the next look";

function picture(camera, visitor) {
  const { id, look } = camera;
  const isOld = look.age_ms > OLD_MS;
  const image = () => {
    const found = camera.prompts.map((prompt, i) => [look.found.filter((mark) => mark.prompt === i).length, prompt.id]);
    const words = found.filter(([count]) => count > 0).map(([count, name]) => `${count} ${name}`).join(", ") || "nothing found";
    return h("img", {
      src: `camera/${id}.jpg?look=${look.frame}`,
      alt: `Camera ${id} at ${clockTime(look.time_ms)} UTC: ${words}`,
      width: look.size[0],
      height: look.size[1],
      decoding: "async",
    });
  };
  return h("figure", {},
    h("div", { class: classes("still", !look.pictured && "empty", isOld && "old") },
      look.pictured ? [image(), overlay(camera)] : h("p", {}, noPicture(visitor))),
    h("figcaption", {},
      isOld && [h("strong", {}, "Old:"), " "],
      h("time", { datetime: machineTime(look.time_ms) }, `${clockTime(look.time_ms)} UTC`), `, ${ago(look.age_ms)}`));
}

function answers({ id, prompts, look }) {
  return h("table", { class: "answers" },
    h("caption", { class: "unseen" }, `Last answers of ${id}`),
    h("thead", { class: "unseen" }, h("tr", {}, ["Prompt", "Answer"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, prompts.map((prompt, i) => answerRow(prompt, i, look?.age_ms ?? 0))));
}

// A prompt that is asked less often than others says how old its answer is.
function answerRow({ id, words, lines, answer }, index, newestMs) {
  const square = svg("rect", { class: "line", x: 1.5, y: 1.5, width: 7, height: 7, rx: 1.5 });
  const small = (text) => h("span", { class: "words" }, text);
  const counts = Object.entries(lines).map(([line, ways]) =>
    small(`${line}: ${Object.entries(ways).map(([way, count]) => `${count} ${way}`).join(", ")}`));
  const when = (text) => h("span", { class: "when" }, text);
  const last = () =>
    h("td", { class: classes(answer.count > 0 && "some", answer.text != null && "words") },
      answer.text ?? answer.count ?? "hidden",
      Object.entries(answer.dwell_s).map(([zone, seconds]) => when(`${zone} ${duration(seconds)}`)),
      answer.age_ms > newestMs + SAME_LOOK_MS && when(ago(answer.age_ms)));
  return h("tr", {},
    h("th", { scope: "row" },
      svg("svg", { class: `ink ${ink(index)}`, viewBox: "0 0 10 10", ...UNREAD }, square),
      h("span", { class: "name" }, id),
      words !== id && words !== "" && small(words),
      counts),
    answer ? last() : h("td", { class: "none" }, "–", unseen(" no answer yet")));
}

// The frames that an operator may want to act on; all counters are in the details.
function losses(frames, stream) {
  const lost = [["replaced", frames.replaced], ["late", frames.late], ["failed", frames.failed], ["undecoded", stream.frames_late]];
  return h("p", { class: "losses" },
    figure(number(frames.looked), "looks"),
    lost.filter(([, n]) => n > 0).map(([name, n]) => h("span", { class: name }, h("b", {}, number(n)), ` ${name}`)));
}

function details(camera, status) {
  const { id, stream, frames, prompts, latency: minute, triggers = [], since_ms: since } = camera;
  const isFast = stream.note === "faster_than_declared" && stream.fps_declared != null;
  const rate = (fps) => `${fps.toFixed(1)} frames/s${isFast ? `, more than twice the declared ${stream.fps_declared.toFixed(1)}` : ""}`;
  const costs = prompts.filter((prompt) => prompt.cost);
  const costRow = ({ id: prompt, cost }) => [
    prompt,
    `${cost.follows_motion ? "≥ " : ""}${cost.crops}`,
    [
      cost.tflop.toFixed(2),
      cost.unshared_tflop != null && h("span", { class: "more" }, `${cost.unshared_tflop.toFixed(2)} not shared: another adapter`),
    ],
    cost.share == null ? "–" : `${(cost.share * 100).toFixed(1)} %`,
  ];
  return h("details", {},
    h("summary", {}, "Details", unseen(` of ${id}`),
      h("span", { class: "for" },
        h("time", { datetime: machineTime(since), title: `since ${clockTime(since)} UTC` }, `for ${duration((status.time_ms - since) / 1000)}`))),
    facts([
      ["Codec", stream.codec ?? "unknown"],
      ["Size", known(stream.size, ([width, height]) => `${width} × ${height}`)],
      ["Rate", known(stream.fps, rate)],
      ["Transport", stream.transport ?? "unknown"],
      ["Decoder", stream.decoder ?? "unknown"],
      ["Lost packets", number(stream.rtp_lost)],
      ["Packets of other senders", number(stream.rtp_foreign)],
      ["Corrupt frames", number(stream.frames_corrupt)],
      ["Not decoded in time", number(stream.frames_late)],
      ["Reconnects, 1 h", stream.reconnects_1h],
      ["Stalls, 1 h", stream.stalls_1h],
      ["Clock", clock(stream.clock)],
      ...triggers.map((trigger) => ["Trigger", `${trigger.id}: ${counted(trigger.activations, "time")}`]),
    ]),
    costs.length > 0 && sums("Cost of prompts", costs.map(costRow), ["prompt", "crops", "TFLOP", "share"]),
    sums("Frames since the start", [
      ["analysed", number(frames.looked)],
      ["skipped: no prompt was due", number(frames.skipped)],
      ["gated: no motion", number(frames.gated)],
      ["replaced by a newer one", number(frames.replaced)],
      ["late: too old", number(frames.late)],
      ["failed", number(frames.failed)],
      ["waiting or in progress", number(frames.open)],
      ["decoded", number(frames.arrived)],
    ]),
    sums(`Mean of ${counted(minute.messages, "message")} of the last minute`,
      status.stages.map((stage, i) => [[chip(i), stage], millis(minute.mean_ms[i])])));
}

function clock({ trusted, offset_ms, drift_ppm, note }) {
  const signed = (value, digits) => `${value < 0 ? "" : "+"}${value.toFixed(digits)}`;
  if (!trusted) return note == null ? "unknown" : `not trusted: ${note.replaceAll("_", " ")}`;
  return `trusted, ${known(offset_ms, (ms) => `${signed(ms, 0)} ms`)}, drift ${known(drift_ppm, (ppm) => `${signed(ppm, 1)} ppm`)}`;
}

// ---- The page

function page(status) {
  const { node, cameras, engines, broker, config, webhooks = [], api, fleet } = status;
  const troubled = cameras.filter((camera) => camera.mood === "bad");
  const failing = webhooks.filter((webhook) => webhook.mood === "bad");
  const troubles = troubled.length + failing.length + [broker, fleet].filter((one) => one?.mood === "bad").length;
  const title = `${troubles > 0 ? `(${troubles}) ` : ""}${node.name} · Spotter`;
  const body = h("body", {},
    h("p", { id: "away", class: "away", role: "alert", hidden: "" }),
    h("header", { class: "top" },
      h("h1", {},
        h("span", { class: "brand" }, "Spotter"), " ", h("span", { class: "node" }, node.name),
        node.mode != null && [" ", h("span", { class: "quiet" }, `mode ${node.mode}`)]),
      access(status),
      verdict(status, troubled, failing),
      tiles(node)),
    h("main", {},
      h("section", { class: "cameras", "aria-labelledby": "h-cameras" },
        h("div", { class: "title" },
          h("h2", { id: "h-cameras" }, "Cameras"),
          h("ul", { class: "legend", "aria-label": "Stages of the latency, from reception to publication" },
            status.stages.map((stage, i) => h("li", {}, chip(i), stage)))),
        h("div", { class: classes("grid", cameras.length === 1 && "one") }, cameras.map((camera) => card(camera, status)))),
      panel("engines", engines.length === 1 ? "Engine" : "Engines", null, engines.map(enginePart)),
      brokerPanel(broker),
      configPanel(config),
      webhooks.length > 0 && panel("webhooks", "Webhooks", null, webhooks.map(webhookPart)),
      api && apiPanel(api),
      fleet && fleetPanel(fleet)),
    h("footer", {},
      h("p", {},
        `Spotter ${node.version} · `,
        h("time", { datetime: machineTime(status.time_ms) }, `${clockTime(status.time_ms)} UTC`),
        ["status.json", "metrics", "healthz"].map((name) => [" · ", h("a", { href: name }, name)]))));
  return { title, body };
}

// The overall state in one sentence. Screen readers read it aloud when it changes, so it contains no running number.
function verdict({ cameras, engines, broker, fleet, config }, troubled, failing) {
  const good = cameras.filter((camera) => camera.mood === "good").length;
  const wanted = cameras.filter((camera) => camera.mood !== "off").length;
  const has = (state) => engines.some((engine) => engine.state === state);
  const isBad = troubled.length > 0 || has("ended") || broker.mood === "bad";
  const isGood = good === wanted && !has("opens") && broker.mood === "good";
  const links = troubled.map(({ id }, i) => [i > 0 && ", ", h("a", { href: `#cam-${id}` }, id)]);
  return h("p", { class: "verdict", role: "status", "aria-live": "polite" },
    pill(isBad ? "bad" : isGood ? "good" : "busy", streaming(good, wanted, cameras.length)),
    " ", pill(broker.mood, `broker ${broker.state}`),
    engines.filter((engine) => engine.state !== "runs").map(({ device, state }) => {
      const [mood, word] = ENGINE_STATES[state];
      return [" ", pill(mood, `engine ${device} ${word}`)];
    }),
    fleet?.mood === "bad" && [" ", pill("bad", `fleet ${fleet.name} incomplete`)],
    failing.map((webhook) => [" ", pill("bad", `webhook ${webhook.name} ${webhook.state}`)]),
    config.errors.length > 0 && [" ", pill("bad", "new configuration rejected")],
    links.length > 0 && h("span", { class: "who" }, "Check ", links));
}

function streaming(good, wanted, all) {
  if (all === 0) return "no cameras";
  if (wanted === 0) return "all cameras off";
  const off = all > wanted ? `, ${all - wanted} off` : "";
  if (wanted === 1) return `the camera is ${good === 1 ? "" : "not "}streaming${off}`;
  return (good === wanted ? `all ${wanted} cameras streaming` : `${good} of ${wanted} cameras streaming`) + off;
}

function tiles(node) {
  const figures = [
    ["Looks per second", known(node.looks_per_s, (hz) => hz.toFixed(1))],
    ["Latency, 95 %", known(node.total_p95_ms, millis)],
    ["CPU", known(node.cpu_pct, (pct) => `${pct.toFixed(0)} %`)],
    ["Memory", known(node.rss_mib, (mib) => `${mib.toFixed(0)} MiB`)],
    ["Uptime", duration(node.uptime_s)],
  ];
  return h("dl", { class: "tiles" },
    figures.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: value === "unknown" && "unknown" }, value))),
    h("div", { class: "wide" }, h("dt", {}, "Model"), h("dd", { class: "words" }, node.model)));
}

function enginePart(engine) {
  const { device, state, busy_pct, under_way, bars, span_ms } = engine;
  return part(device, pill(...ENGINE_STATES[state]),
    h("p", { class: "figures" },
      figure(`${busy_pct.toFixed(0)} %`, "busy"), figure(under_way, "in progress"), figure(bars.length, `finished in ${millis(span_ms)}`)),
    bars.length === 0
      ? quiet("No looks in this time")
      : [timeline(engine), h("p", { class: "span", "aria-hidden": "true" }, h("span", {}, ago(span_ms)), h("span", {}, "now"))]);
}

function brokerPanel(broker) {
  const dropped = broker.dropped.filter(([, n]) => n > 0).map(([why, n]) => [why, number(n)]);
  return panel("broker", "Broker", pill(broker.mood, broker.state),
    reason(broker),
    facts([
      ["Address", broker.address],
      ["Topics", broker.topics],
      ["Sent", number(broker.sent)],
      ["Acknowledgement, 95 %", known(broker.puback_p95_ms, millis)],
      ["Events waiting for the broker", number(broker.spooled)],
      ["Dropped", number(sum(broker.dropped.map(([, n]) => n)))],
    ]),
    dropped.length > 0 && sums("Messages dropped since the start", dropped));
}

function configPanel({ hash, at, errors }) {
  const isGood = errors.length === 0;
  return panel("config", "Configuration", pill(isGood ? "good" : "bad", isGood ? "active" : "new version rejected"),
    facts([["Hash", hash], ["Loaded", at]]),
    !isGood && [
      h("p", {}, "The previous configuration stays active. Errors in the new version:"),
      h("ul", { class: "errors" }, errors.map((error) => h("li", {}, error))),
    ]);
}

const webhookPart = (webhook) =>
  part(webhook.name, pill(webhook.mood, webhook.state),
    reason(webhook),
    facts([
      ["Receiver", webhook.address],
      ["Posted", number(webhook.posted)],
      ["Waiting", number(webhook.waiting)],
      ["Repeated requests", number(webhook.retried)],
      ["Refused", number(webhook.refused)],
      ["Dropped", number(webhook.dropped)],
    ]));

const apiPanel = (api) =>
  panel("api", "HTTP API", null,
    facts([
      ["Address", `${api.address}, ${api.tokens === 0 ? "no token needed" : counted(api.tokens, "token")}`],
      ["Requests in progress", number(api.open)],
      ["Answered", number(api.answered)],
      ["Refused", number(api.refused)],
      ["Failed", number(api.failed)],
    ]));

function fleetPanel(fleet) {
  const word = { good: "complete", busy: "joining" }[fleet.mood] ?? "incomplete";
  return panel("fleet", `Fleet ${fleet.name}`, pill(fleet.mood, word),
    reason(fleet),
    facts([
      ["Boxes", number(fleet.nodes.length)],
      ["Cameras watched", number(sum(fleet.nodes.map((node) => node.cameras.length)))],
      ["Cameras without a box", number(fleet.unowned.length)],
      ["Missing looks per second", fleet.missing_hz.toFixed(1)],
    ]),
    fleet.unowned.length > 0 && h("p", {}, `No box has: ${fleet.unowned.join(", ")}.`),
    fleet.nodes.map((node) =>
      part(node.name, pill(node.mood, node.state),
        h("p", { class: "figures" },
          figure(`${node.load_pct.toFixed(0)} %`, `of ${node.capacity_hz.toFixed(1)} looks/s`),
          node.refused > 0 && figure(node.refused, "not possible here"),
          node.labels.length > 0 && h("span", {}, node.labels.join(", "))),
        node.cameras.length === 0
          ? quiet("No cameras")
          : h("details", {}, h("summary", {}, counted(node.cameras.length, "camera")), h("p", {}, node.cameras.join(", "))))));
}

// ---- Logging in

// Browsers send no cookie of this page to a frame of another site, which sees nothing of the page above it.
const IS_IN_FOREIGN_FRAME = (() => {
  try {
    return window.top.location.origin !== location.origin;
  } catch {
    return true;
  }
})();
const OWN_TAB = { href: ".", target: "_blank", rel: "noopener" };
let loginError = null;

// Who may see pictures, and how to become one of them.
function access({ visitor, has_login: hasLogin }) {
  if (visitor === "logged_in")
    return h("form", { id: "logout", class: "access" }, h("button", {}, "Log out"), loginError && h("p", { role: "alert" }, loginError));
  if (visitor !== "stranger") return null;
  if (!hasLogin)
    return quiet("Pictures and texts are shown on the machine of Spotter alone, because this page has no login. To show them here, set ", h("code", {}, "http.tokens"), ".");
  if (IS_IN_FOREIGN_FRAME)
    return h("p", { class: "access" }, "To see pictures, ", h("a", OWN_TAB, "log in in a tab of its own"), ".");
  return h("form", { id: "login", class: "access" },
    h("label", { for: "token" }, "Token, to see pictures"),
    h("input", { id: "token", type: "password", autocomplete: "current-password", required: "", "aria-describedby": loginError && "login-error" }),
    h("button", {}, "Log in"),
    loginError && h("p", { id: "login-error", role: "alert" }, loginError));
}

async function change(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(ANSWER_LIMIT_MS),
  });
  if (answer.ok) return null;
  const { error } = await answer.json().catch(() => ({}));
  return error ?? `Spotter, or a proxy before it, answered with HTTP ${answer.status}`;
}

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { id } = event.target;
  const field = document.getElementById("token");
  const body = id === "login" ? { token: field.value } : {};
  try {
    loginError = await change(id, body);
  } catch {
    loginError = "No answer from Spotter";
  }
  if (loginError === null && field) field.value = "";
  refreshNow();
});

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
  openStream();
}

function show(status) {
  version ??= status.node.version;
  // The daemon was upgraded, and this file with it.
  if (version !== status.node.version) return location.reload();
  const { title, body } = page(status);
  document.title = title;
  follow(document.body, body);
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

let stream = null;
let silence;
let streamNotBefore = 0;

function openStream() {
  if (IS_CALM || document.hidden || stream !== null || performance.now() < streamNotBefore) return;
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

// For tests.
export { PictureWords, ago, bothSides, clockTime, counted, duration, lineSpot, machineTime, millis, number, roundUp, short, timeline };
