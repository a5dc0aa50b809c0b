// The objects of a picture as a person corrects them: boxes whose corners are dragged, or points; further ones are drawn, and what
// else was found is added by a tap. Shares of the picture.

import { classes, follow, h, s } from "./dom.js";
import { percent } from "./format.js";
import { REACH, area, arrowStep, between, digits, isIn } from "./region.js";

export const OBJECTS_MAX = 50;
const SIDE_MIN = 0.004;
const SLOP_PX = 4;
const MIDDLE = { box: [0.4, 0.4, 0.6, 0.6], point: [0.5, 0.5] };
const CORNERS = ["Upper left", "Upper right", "Lower left", "Lower right"];

const cornersOf = ([x0, y0, x1, y1]) => [[x0, y0], [x1, y0], [x0, y1], [x1, y1]];
const opposite = (box, corner) => cornersOf(box)[3 - corner];
const shifted = (object, by) => {
  const step = [0, 1].map((axis) => {
    const along = object.filter((_, i) => i % 2 === axis);
    return Math.min(Math.max(by[axis], -Math.min(...along)), 1 - Math.max(...along));
  });
  return object.map((value, i) => digits(value + step[i % 2]));
};

export class ObjectEditor {
  // `objects` and `others` (what else was found) are boxes or points; `changed` is called after each change.
  constructor(objects, others, kind, changed) {
    Object.assign(this, { objects, others, kind, changed, selected: 0, steps: [], drag: null });
    this.canvas = s("svg", {});
    this.element = h("div", { id: "objects", class: "region", "data-own": "objects" }, this.canvas);
    for (const name of ["pointerdown", "pointermove", "pointerup", "pointercancel", "focusin"])
      this.element.addEventListener(name, (event) => this[name](event));
    this.draw();
  }

  // In a document that has the element, what stands for it.
  shown() {
    return this.element.isConnected ? h("div", { id: "objects", "data-own": "objects" }) : this.element;
  }

  get isFull() {
    return this.objects.length >= OBJECTS_MAX;
  }

  // ---- Changes

  set(objects, selected) {
    this.steps.push(this.objects);
    Object.assign(this, { objects, selected });
    this.draw();
    this.changed();
  }

  add(object) {
    if (!this.isFull) this.set([...this.objects, object], this.objects.length);
  }

  addMiddle() {
    this.add(MIDDLE[this.kind]);
    this.focus();
  }

  replace(index, object) {
    this.set(this.objects.with(index, object), index);
  }

  remove() {
    if (this.objects.length === 0) return;
    const left = this.objects.toSpliced(this.selected, 1);
    this.set(left, Math.max(Math.min(this.selected, left.length - 1), 0));
    this.focus();
  }

  undo() {
    const objects = this.steps.pop();
    if (!objects) return;
    Object.assign(this, { objects, selected: Math.max(Math.min(this.selected, objects.length - 1), 0) });
    this.draw();
    this.changed();
  }

  focus() {
    this.element.querySelector(`#object-${this.selected}`)?.focus();
  }

  // ---- Mouse and fingers

  place({ clientX, clientY }) {
    const { left, top, width, height } = this.element.getBoundingClientRect();
    return { share: [(clientX - left) / width, (clientY - top) / height].map(digits), size: [width, height] };
  }

  // The point, or the corner of a box, that a finger hits: of the selected object first.
  grip(share, size) {
    const apart = ([x, y]) => Math.hypot((x - share[0]) * size[0], (y - share[1]) * size[1]);
    const ends = this.objects.flatMap((object, index) => {
      const spots = this.kind === "box" ? cornersOf(object) : [object];
      return spots.map((spot, corner) => ({ index, corner, px: apart(spot) }));
    });
    const near = ends.filter(({ px }) => px <= REACH).sort((a, b) => a.px - b.px);
    return near.find(({ index }) => index === this.selected) ?? near[0] ?? null;
  }

  pointerdown(event) {
    if (event.button !== 0 || this.drag) return;
    const { share, size } = this.place(event);
    this.drag = { id: event.pointerId, from: share, grip: this.grip(share, size), before: this.objects, isMoved: false };
    this.element.setPointerCapture(event.pointerId);
    event.preventDefault();
  }

  pointermove(event) {
    const { drag } = this;
    if (event.pointerId !== drag?.id) return;
    const { share, size } = this.place(event);
    drag.isMoved ||= Math.hypot(...[0, 1].map((axis) => (share[axis] - drag.from[axis]) * size[axis])) > SLOP_PX;
    if (drag.isMoved) this.stretch(drag, share);
    this.draw();
  }

  stretch({ grip, before, from }, to) {
    if (grip) {
      const old = before[grip.index];
      const moved = this.kind === "box" ? between(opposite(old, grip.corner), to, SIDE_MIN) : to;
      Object.assign(this, { objects: before.with(grip.index, moved), selected: grip.index });
    } else if (this.kind === "box" && before.length < OBJECTS_MAX) {
      Object.assign(this, { objects: [...before, between(from, to, SIDE_MIN)], selected: before.length });
    }
  }

  pointerup(event) {
    const { drag } = this;
    if (event.pointerId !== drag?.id) return;
    this.drag = null;
    if (!drag.isMoved) return this.tap(drag);
    if (this.objects !== drag.before) this.steps.push(drag.before);
    this.changed();
  }

  pointercancel(event) {
    if (event.pointerId !== this.drag?.id) return;
    this.objects = this.drag.before;
    this.drag = null;
    this.selected = Math.max(Math.min(this.selected, this.objects.length - 1), 0);
    this.draw();
  }

  // Selects an object, adds what else was found there, or a point.
  tap({ grip, from }) {
    if (this.kind === "point") return grip ? this.select(grip.index) : this.add(from);
    const hits = (boxes, act) => boxes.map((box, index) => ({ box, act: () => act(index) })).filter(({ box }) => isIn(from, box));
    const all = [...hits(this.objects, (index) => this.select(index)), ...hits(this.unused(), (index) => this.add(this.unused()[index]))];
    all.sort((a, b) => area(a.box) - area(b.box))[0]?.act();
  }

  unused() {
    return this.others.filter((other) => !this.objects.includes(other));
  }

  select(index) {
    this.selected = index;
    this.draw();
  }

  // ---- Keys

  focusin({ target }) {
    const index = Number(target.closest?.("[data-object]")?.dataset.object);
    if (index !== this.selected && index < this.objects.length) this.select(index);
  }

  // Whether the key was used.
  key(event) {
    const { object, corner, other } = event.target.closest?.("#objects [tabindex]")?.dataset ?? {};
    const step = arrowStep(event);
    if (event.key === "Delete" || event.key === "Backspace") event.repeat || this.remove();
    // It is selected already.
    else if (object !== undefined && event.key === " ") return true;
    else if (other !== undefined && (event.key === " " || event.key === "Enter")) {
      this.add(this.unused()[Number(other)]);
      this.focus();
    } else if (step && object !== undefined) this.nudge(Number(object), corner, step);
    else return false;
    return true;
  }

  nudge(index, corner, by) {
    const old = this.objects[index];
    if (corner === undefined) return this.replace(index, shifted(old, by));
    const [x, y] = cornersOf(old)[Number(corner)];
    this.replace(index, between(opposite(old, Number(corner)), [x + by[0], y + by[1]], SIDE_MIN));
  }

  // ---- Drawing

  draw() {
    const others = this.unused().map((other, index) => this.other(other, index));
    const objects = this.objects.map((object, index) => [this.object(object, index), index === this.selected && this.kind === "box" && this.corners(object, index)]);
    follow(this.canvas, s("svg", {}, others, objects));
  }

  sides([x0, y0, x1, y1]) {
    return { x: percent(x0), y: percent(y0), width: percent(x1 - x0), height: percent(y1 - y0) };
  }

  shape(object) {
    const draw = (name) => (this.kind === "box"
      ? s("rect", { class: name, ...this.sides(object) })
      : s("circle", { class: name, cx: percent(object[0]), cy: percent(object[1]), r: 7 }));
    return [draw("under"), draw("stroke")];
  }

  object(object, index) {
    const [x, y] = object;
    const words = `${this.kind === "box" ? "Box" : "Point"} ${index + 1} of ${this.objects.length}: ${percent(x)} from the left, ${percent(y)} from the top`;
    return s("g", {
      id: `object-${index}`, class: classes("object", index === this.selected && "selected"), role: "button", tabindex: 0, "data-object": index,
      "aria-label": `${words}. Arrow keys move it, with Shift by more; Delete removes it.`,
    }, this.shape(object));
  }

  corners(box, index) {
    return cornersOf(box).map(([x, y], corner) => s("svg", { x: percent(x), y: percent(y) },
      s("g", {
        class: "corner", id: `object-corner-${corner}`, role: "button", tabindex: 0, "data-object": index, "data-corner": corner,
        "aria-label": `${CORNERS[corner]} corner of box ${index + 1}: ${percent(x)} from the left, ${percent(y)} from the top`,
      }, s("circle", { class: "target", r: REACH }), s("circle", { class: "dot", r: 6 }))));
  }

  other(other, index) {
    return s("g", { id: `other-${index}`, class: "other", role: "button", tabindex: 0, "data-other": index, "aria-label": `Add ${this.kind} ${index + 1} that was found too` }, this.shape(other));
  }
}
