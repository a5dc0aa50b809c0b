// Over a picture: zones and lines of the configuration, and what was found.
//
// Positions are shares of the picture, so strokes and letters do not scale with it. All of it is hidden from screen readers, which
// have the table of answers. Words are placed for a narrow picture, in which letters need the largest share of it: words that do
// not cover each other there do so in no wider one.

import { UNREAD, s } from "./dom.js";
import { number, percent, sum, two } from "./format.js";

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

export const ink = (prompt) => `ink${prompt % INKS}`;
export const short = (name) => (name.length > NAME_CHARS ? `${name.slice(0, NAME_CHARS)}…` : name);
const points = (corners) => corners.map(([x, y]) => `${x.toFixed(4)},${y.toFixed(4)}`).join(" ");
// Each stroke has a dark one under it.
const outlined = (tag, kind, attributes) => ["under", kind].map((name) => s(tag, { class: name, ...attributes }));
const overlap = (a, b) =>
  Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) * Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
// The first of those with the lowest cost.
const cheapest = (all, cost) => all.reduce((best, one) => (cost(one) < cost(best) ? one : best));

// A place of a word is where its base line begins, ends or has its middle: shares of the picture (x, y), pixels from there (dx, dy).
export class PictureWords {
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
    const spans = words.map(([kind, text], i) => [i > 0 && " ", s("tspan", { class: kind }, text)]);
    const at = { x: percent(place.x), y: percent(place.y), dx: two(place.dx), dy: two(place.dy), "text-anchor": place.anchor };
    this.drawn.push(s("text", at, spans));
  }
}

// At a share of a line's length on the screen, whose pixels are square; `along` is where the line goes there.
export function lineSpot({ points: corners }, aspect, share) {
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
export const bothSides = (spot, pixels) => [right(spot.along), back(right(spot.along))].map((way) => beside(spot, way, pixels));

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

export function markShape({ prompt, place: { box, point } }) {
  if (point) return s("g", { class: ink(prompt) }, outlined("circle", "line", { cx: percent(point[0]), cy: percent(point[1]), r: 5 }));
  const [x0, y0, x1, y1] = box;
  const place = { x: percent(x0), y: percent(y0), width: percent(x1 - x0), height: percent(y1 - y0), rx: 2 };
  return s("g", { class: ink(prompt) }, outlined("rect", "line", place));
}

// Rings that run in opposite directions enclose a hole, as in the path of an SVG.
function outlineShape({ prompt, polygon }) {
  const d = polygon.map((ring) => `M${points(ring)}Z`).join("");
  return s("g", { class: ink(prompt) }, outlined("path", "area", { d }));
}

function arrowShape({ x, y, along: [across, down] }) {
  const turned = { d: ARROW, transform: `rotate(${two((Math.atan2(down, across) * 180) / Math.PI)})` };
  return s("svg", { class: "plain", x: percent(x), y: percent(y) }, outlined("path", "line", turned));
}

export function overlay(camera) {
  const { zones = [], lines = [], prompts, look } = camera;
  const aspect = Math.max(look.size[0], 1) / Math.max(look.size[1], 1);
  const words = new PictureWords(aspect);
  // What does not move is written first, so that it stays where it is.
  const arrows = lines.map((line) => writeLine(words, camera, line, aspect));
  zones.forEach((zone) => writeZone(words, zone));
  const isNamed = look.found.length <= NAMED_MAX;
  look.found.forEach((mark) => writeMark(words, mark, isNamed && prompts[mark.prompt]?.id));
  return s("svg", { class: "overlay", ...UNREAD },
    s("svg", { class: "plain", viewBox: "0 0 1 1", preserveAspectRatio: "none" },
      zones.map((zone) => outlined("polygon", "zone", { points: points(zone.polygon) })),
      lines.map((line) => outlined("polyline", "line", { points: points(line.points) })),
      look.found.filter((mark) => mark.polygon).map(outlineShape)),
    look.found.filter((mark) => !mark.polygon).map(markShape),
    arrows.map(arrowShape),
    words.drawn);
}
