// The part of a picture that is to be seen: drawn with mouse or finger, its corners moved by keys. Shares of the picture.

import { UNREAD, follow, h, s } from "./dom.js";
import { percent } from "./format.js";

const FIRST = [0.25, 0.25, 0.75, 0.75];
const SIDE_MIN = 0.02;
// A target of 44 pixels is what a finger hits.
export const REACH = 22;
const STEP = 0.001;
const LARGE_STEP = 0.01;
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export const digits = (share) => Math.round(Math.min(Math.max(share, 0), 1) * 1e4) / 1e4;

// How far an arrow key moves something across and down; null for other keys.
export function arrowStep({ key, shiftKey }) {
  const step = shiftKey ? LARGE_STEP : STEP;
  return KEYS[key]?.map((way) => way * step) ?? null;
}

// Of boxes; one without a side has no area.
export const area = ([x0, y0, x1, y1]) => Math.max(x1 - x0, 0) * Math.max(y1 - y0, 0);
export const isIn = ([x, y], [x0, y0, x1, y1]) => x0 <= x && x <= x1 && y0 <= y && y <= y1;

// From two corners in any order, each side at least so long.
export function between([xa, ya], [xb, yb], least = SIDE_MIN) {
  const side = (a, b) => {
    const from = Math.min(Math.max(Math.min(a, b), 0), 1 - least);
    return [from, Math.min(Math.max(Math.max(a, b), from + least), 1)].map(digits);
  };
  const [[x0, x1], [y0, y1]] = [side(xa, xb), side(ya, yb)];
  return [x0, y0, x1, y1];
}

// A corner moves by so much, and stays on its side of the other one.
function moved([x0, y0, x1, y1], corner, dx, dy) {
  const to = (from, by, least, most) => digits(Math.min(Math.max(from + by, least), most));
  return corner === 0
    ? [to(x0, dx, 0, x1 - SIDE_MIN), to(y0, dy, 0, y1 - SIDE_MIN), x1, y1]
    : [x0, y0, to(x1, dx, x0 + SIDE_MIN, 1), to(y1, dy, y0 + SIDE_MIN, 1)];
}

export class RegionBox {
  // `changed` is called with the box, or null, at the end of each change.
  constructor(changed) {
    this.changed = changed;
    this.box = null;
    this.drag = null;
    this.canvas = s("svg", {});
    this.element = h("div", { id: "region", class: "region", "data-own": "region" }, this.canvas);
    for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel", "keydown"])
      this.element.addEventListener(kind, (event) => this[kind](event));
    this.draw();
  }

  // In a document that has the element, what stands for it.
  shown() {
    return this.element.isConnected ? h("div", { id: "region", "data-own": "region" }) : this.element;
  }

  begin() {
    this.set(FIRST);
    this.element.querySelector(".corner").focus();
  }

  // Without a call of `changed`.
  clear() {
    this.box = null;
    this.draw();
  }

  set(box) {
    this.box = box;
    this.draw();
    this.changed(box);
  }

  place({ clientX, clientY }) {
    const { left, top, width, height } = this.element.getBoundingClientRect();
    return { share: [(clientX - left) / width, (clientY - top) / height], size: [width, height] };
  }

  pointerdown(event) {
    if (event.button !== 0 || this.drag) return;
    const { share, size } = this.place(event);
    const [x0, y0, x1, y1] = this.box;
    const apart = ([x, y]) => Math.hypot((x - share[0]) * size[0], (y - share[1]) * size[1]);
    const corners = [[x0, y0], [x1, y1]];
    const near = corners.map(apart);
    const corner = near[0] <= near[1] ? 0 : 1;
    // The opposite corner stays; elsewhere a new box begins.
    const from = near[corner] <= REACH ? corners[1 - corner] : share;
    this.drag = { from, before: this.box, id: event.pointerId };
    this.element.setPointerCapture(event.pointerId);
    event.preventDefault();
  }

  pointermove(event) {
    if (event.pointerId !== this.drag?.id) return;
    this.box = between(this.drag.from, this.place(event).share);
    this.draw();
  }

  pointerup(event) {
    if (event.pointerId !== this.drag?.id) return;
    this.drag = null;
    this.changed(this.box);
  }

  pointercancel(event) {
    if (event.pointerId !== this.drag?.id) return;
    const { before } = this.drag;
    this.drag = null;
    this.set(before);
  }

  keydown(event) {
    const corner = Number(event.target.dataset.corner);
    if (Number.isNaN(corner) || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = arrowStep(event);
    if (event.key === "Delete" || event.key === "Backspace") this.set(null);
    else if (step) this.set(moved(this.box, corner, ...step));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  draw() {
    follow(this.canvas, s("svg", {}, this.box && this.drawn(this.box)));
    this.element.toggleAttribute("hidden", this.box === null);
  }

  drawn([x0, y0, x1, y1]) {
    const veil = (x, y, width, height) =>
      s("rect", { class: "veil", x: percent(x), y: percent(y), width: percent(width), height: percent(height), ...UNREAD });
    const side = { x: percent(x0), y: percent(y0), width: percent(x1 - x0), height: percent(y1 - y0), ...UNREAD };
    const corner = (index, name, x, y) => s("svg", { x: percent(x), y: percent(y) },
      s("g", {
        class: "corner", id: `corner-${index}`, role: "button", tabindex: 0, "data-corner": index,
        "aria-label": `${name} corner of the part: ${percent(x)} from the left, ${percent(y)} from the top. Arrow keys move it, with Shift by more; Delete removes the part.`,
      }, s("circle", { class: "target", r: REACH }), s("circle", { class: "dot", r: 7 })));
    return [
      veil(0, 0, 1, y0), veil(0, y1, 1, 1 - y1), veil(0, y0, x0, y1 - y0), veil(x1, y0, 1 - x1, y1 - y0),
      s("rect", { class: "under", ...side }), s("rect", { class: "stroke", ...side }),
      corner(0, "Upper left", x0, y0), corner(1, "Lower right", x1, y1),
    ];
  }
}
