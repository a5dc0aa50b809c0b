// The picture of the editor with all shapes over it, and what a mouse, fingers and keys do there. It shows a scene and keeps its zoom;
// what is done is said to its host, which changes the shapes and has the next scene shown.
//
// Scene: { url, aspect, shapes, selected, point, conflict, drawing, isEditable }, see `ShapeEditor.scene`. Host: select(key, point),
// move(points, isSameStep), revert(), insert(edge), ask(at), place(at),
// stretch(from, to), finish().

import { UNREAD, classes, follow, h, s } from "./dom.js";
import { two } from "./format.js";
import { bothSides, lineSpot } from "./overlay.js";
import { distanceTo, edgesOf, grabSpot, isBox, moved, pathProblem, shapesAt, titleOf, withMiddle, withPoint } from "./shapes.js";

// Pixels. A target of 44 pixels is what a finger hits.
const REACH = 22;
const DOT = 6;
const LETTERS = { across: 7.6, height: 16 };
const SLOP = { mouse: 3, touch: 8 };
const STAGE_SHARE_MAX = 0.72;
const ZOOM_MAX = 8;
// Edges that are shorter have no handle of their own: Insert at a point adds one in them.
const EDGE_MIN = 72;
// Up to the left side of a line that goes to the right, down to its right side; from there to a direction's name.
const ARROW = "M0-13V13M-4-8 0-13 4-8M-4 8 0 13 4 8";
const ARROW_PX = 18;
// Share of the line's length, beside the middle of its only edge, where a point is added.
const ARROW_AT = 0.36;

const at = ([x, y]) => `${two(x)},${two(y)}`;
const path = (points) => points.map(at).join(" ");
const middle = ([[x0, y0], [x1, y1]]) => [(x0 + x1) / 2, (y0 + y1) / 2];
const apart = ([x0, y0], [x1, y1]) => Math.hypot(x1 - x0, y1 - y0);
const isAmong = ([x, y], [width, height]) => x >= -1 && y >= -1 && x <= width + 1 && y <= height + 1;
// Dark below, so that a stroke is seen on any picture.
const stroked = (tag, attributes) => [s(tag, { ...attributes, class: "under" }), s(tag, { ...attributes, class: "stroke" })];
const shares = ([x, y]) => [x, y].map((share) => `${two(share * 100)} %`);

// Where a point is, for a screen reader.
export function pointWords(shape, index) {
  const [x, y] = shares(shape.points[index]);
  return `Point ${index + 1} of ${shape.points.length} of ${titleOf(shape)}: ${x} from the left, ${y} from the top`;
}

export class ShapeCanvas {
  constructor(host) {
    this.host = host;
    this.element = s("svg", { class: "canvas", id: "canvas", role: "group" });
    this.stage = h("div", { class: "stage" }, this.element);
    this.size = [0, 0];
    this.view = { zoom: 1, x: 0, y: 0 };
    this.pointers = new Map();
    this.gesture = null;
    this.cursor = null;
    for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel", "pointerleave"])
      this.element.addEventListener(kind, (event) => this[kind](event));
    this.element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    // Else a click follows at the same place, which may be a button by then.
    this.element.addEventListener("touchend", (event) => event.cancelable && event.preventDefault());
    // A finger may rest before it moves a point.
    this.element.addEventListener("contextmenu", (event) => event.pointerType === "touch" && event.preventDefault());
    // A drawing that listens itself would be reached by Tab.
    this.stage.addEventListener("focusin", ({ target }) => this.focus(target));
    new ResizeObserver(() => this.fit()).observe(this.stage);
  }

  // ---- Places

  toPixels([x, y]) {
    const { zoom, x: left, y: top } = this.view;
    return [left + x * this.size[0] * zoom, top + y * this.size[1] * zoom];
  }

  toShares([x, y]) {
    const { zoom, x: left, y: top } = this.view;
    return [(x - left) / (this.size[0] * zoom), (y - top) / (this.size[1] * zoom)];
  }

  place({ clientX, clientY }) {
    const { left, top } = this.element.getBoundingClientRect();
    return [clientX - left, clientY - top];
  }

  // As large as the column and the window allow.
  fit() {
    if (!this.scene) return;
    const width = this.stage.clientWidth;
    const height = Math.min(width / this.aspect, innerHeight * STAGE_SHARE_MAX);
    const size = [Math.round(height * this.aspect), Math.round(height)];
    if (size[0] === this.size[0] && size[1] === this.size[1]) return;
    this.size = size;
    this.view = { zoom: 1, x: 0, y: 0 };
    this.draw();
  }

  show(scene) {
    this.scene = scene;
    if (this.aspect !== scene.aspect) {
      this.aspect = scene.aspect;
      this.size = [0, 0];
    }
    if (this.size[0] === 0) this.fit();
    this.draw();
  }

  zoomBy(factor, centre = this.size.map((side) => side / 2)) {
    const zoom = Math.min(Math.max(this.view.zoom * factor, 1), ZOOM_MAX);
    this.look(zoom, this.toShares(centre), centre);
  }

  // Shows a place of the picture at a place of the stage; the picture covers all of the stage.
  look(zoom, [x, y], [toX, toY]) {
    const [width, height] = this.size;
    const inside = (value, side) => Math.min(Math.max(value, side - side * zoom), 0);
    this.view = { zoom, x: inside(toX - x * width * zoom, width), y: inside(toY - y * height * zoom, height) };
    this.draw();
  }

  // ---- Mouse and fingers

  selected() {
    return this.scene.shapes.find(({ key }) => key === this.scene.selected);
  }

  // The selected shape, if its points move.
  movable() {
    const shape = this.selected();
    return this.scene.isEditable && shape?.points && !shape.isFixed ? shape : null;
  }

  pixels(shape) {
    return { ...shape, points: shape.points?.map((point) => this.toPixels(point)) };
  }

  pointerdown(event) {
    if (event.button !== 0) return;
    const place = this.place(event);
    // A pointer that is gone already cannot be captured.
    try {
      this.element.setPointerCapture(event.pointerId);
    } catch {
      return;
    }
    this.pointers.set(event.pointerId, place);
    if (this.pointers.size === 2) this.pinch();
    else if (this.pointers.size === 1) this.gesture = { ...this.grab(place), from: place, view: this.view, slop: SLOP[event.pointerType] ?? SLOP.touch };
  }

  pinch() {
    if (this.gesture?.isStep) this.host.revert();
    const ends = [...this.pointers.values()];
    this.gesture = { is: "pinch", apart: apart(...ends), zoom: this.view.zoom, share: this.toShares(middle(ends)) };
  }

  grab(place) {
    const shape = this.movable();
    if (this.scene.drawing) return { is: "draw" };
    if (!shape) return { is: "pan" };
    // At its handle, or at the point itself.
    const reach = (one) => (one.at ? distanceTo([one.at, one.spot], place) : Infinity);
    const nearest = (all) => all.filter((one) => reach(one) <= REACH).sort((a, b) => reach(a) - reach(b))[0];
    const point = nearest(this.handles(shape));
    if (point) return { is: "point", shape, index: point.index };
    const edge = nearest(this.edgeHandles(shape));
    if (edge) return { is: "edge", shape, edge: edge.index };
    const [hit] = shapesAt([this.pixels(shape)], place, REACH / 2);
    return hit ? { is: "shape", shape } : { is: "pan" };
  }

  pointermove(event) {
    const place = this.place(event);
    if (!this.gesture) {
      this.cursor = place;
      if (this.scene.drawing) this.draw();
      return;
    }
    if (!this.pointers.has(event.pointerId)) return;
    this.pointers.set(event.pointerId, place);
    const { gesture } = this;
    if (gesture.is === "pinch") {
      const ends = [...this.pointers.values()];
      if (ends.length < 2) return;
      const zoom = Math.min(Math.max((gesture.zoom * apart(...ends)) / gesture.apart, 1), ZOOM_MAX);
      this.look(zoom, gesture.share, middle(ends));
      return;
    }
    gesture.isDrag ||= apart(gesture.from, place) > gesture.slop;
    if (gesture.isDrag) this.drag(gesture, place);
  }

  drag(gesture, place) {
    const { shape, from, view } = gesture;
    const by = [0, 1].map((axis) => (place[axis] - from[axis]) / (this.size[axis] * view.zoom));
    const move = (points) => {
      this.host.move(points, gesture.isStep === true);
      gesture.isStep = true;
    };
    switch (gesture.is) {
      case "edge": {
        const points = withMiddle(shape.points, gesture.edge);
        Object.assign(gesture, { is: "point", shape: { ...shape, points }, index: gesture.edge + 1 });
        this.host.select(shape.key, gesture.index);
        return this.drag(gesture, place);
      }
      case "point": {
        const [x, y] = gesture.shape.points[gesture.index];
        return move(withPoint(gesture.shape, gesture.index, [x + by[0], y + by[1]]));
      }
      case "shape":
        return move(moved(shape.points, ...by));
      case "draw":
        if (this.scene.drawing.kind === "region") return this.host.stretch(this.toShares(from), this.toShares(place));
    }
    // What moves nothing else moves the picture.
    this.look(view.zoom, this.toShares(from), place);
    gesture.from = place;
  }

  pointerup(event) {
    const { gesture } = this;
    if (!this.pointers.delete(event.pointerId) || !gesture) return;
    if (gesture.is === "pinch") {
      if (this.pointers.size === 0) this.gesture = null;
      return;
    }
    this.gesture = null;
    if (!gesture.isDrag) this.tap(gesture, this.place(event));
    else if (gesture.is === "draw" && this.scene.drawing?.kind === "region") this.host.finish();
  }

  pointercancel(event) {
    this.pointers.delete(event.pointerId);
    if (this.gesture?.isStep) this.host.revert();
    this.gesture = null;
  }

  pointerleave() {
    this.cursor = null;
    if (this.scene.drawing) this.draw();
  }

  tap({ is, shape, index, edge }, place) {
    if (is === "draw") return this.tapDrawing(place);
    if (is === "point") return this.host.select(shape.key, index);
    if (is === "edge") return this.host.insert(edge);
    const hits = shapesAt(this.scene.shapes.map((one) => this.pixels(one)), place, REACH / 2);
    if (hits.length === 0) return this.scene.selected ? this.host.select(null, null) : this.host.ask(this.toShares(place));
    // Once more at the same place: the next one below.
    const next = hits.findIndex(({ key }) => key === this.scene.selected) + 1;
    this.host.select(hits[next % hits.length].key, null);
  }

  // The first point closes an area, the last one ends a line.
  tapDrawing(place) {
    const { kind, points } = this.scene.drawing;
    const ends = kind === "line" ? [points.at(-1)] : [points[0], points.at(-1)];
    const isEnd = points.length > 1 && ends.some((point) => apart(this.toPixels(point), place) <= REACH / 2);
    if (isEnd) this.host.finish();
    else this.host.place(this.toShares(place));
  }

  // Ends what a finger or the mouse does. Whether there was such.
  stop() {
    const { gesture } = this;
    this.gesture = null;
    if (gesture?.isStep) this.host.revert();
    return gesture !== null;
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoomBy(Math.exp(-event.deltaY / 300), this.place(event));
  }

  // ---- Keys: a handle that is reached by Tab is selected, and seen.

  focus(target) {
    const handle = target.closest("[data-point]");
    if (!handle) return;
    const index = Number(handle.dataset.point);
    const share = this.selected()?.points[index];
    if (share && !isAmong(this.toPixels(share), this.size)) this.look(this.view.zoom, share, this.size.map((side) => side / 2));
    if (this.scene.point !== index) this.host.select(this.scene.selected, index);
  }

  focusPoint(index) {
    this.element.querySelector(`[data-point="${index}"]`)?.focus();
  }

  // ---- Drawing

  handles(shape) {
    return shape.points.map((share, index) => {
      const spot = this.toPixels(share);
      return { index, spot, at: isAmong(spot, this.size) ? grabSpot(spot, this.size, REACH) : null };
    });
  }

  edgeHandles(shape) {
    if (isBox(shape)) return [];
    return edgesOf(shape.points.map((share) => this.toPixels(share)), shape.isClosed).map((edge, index) => {
      const spot = middle(edge);
      return { index, spot, at: apart(...edge) >= EDGE_MIN && isAmong(spot, this.size) ? grabSpot(spot, this.size, REACH) : null };
    });
  }

  draw() {
    if (!this.scene) return;
    const [width, height] = this.size;
    const { shapes, selected, conflict, drawing } = this.scene;
    const marked = new Set([selected, ...conflict.map(({ key }) => key)]);
    const isFree = this.view.zoom === 1 && !selected && !drawing;
    const wanted = s("svg", {
      class: classes("canvas", drawing && "drawing", isFree && "scrolls"),
      id: "canvas", role: "group", "aria-label": this.scene.label, width, height, viewBox: `0 0 ${width} ${height}`,
    },
      s("defs", {}, s("pattern", { id: "hatch", width: 9, height: 9, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        s("rect", { class: "hatched", width: 9, height: 9 }), s("rect", { class: "hatching", width: 3, height: 9 }))),
      this.picture(),
      s("g", { ...UNREAD },
        shapes.toSorted((a, b) => marked.has(a.key) - marked.has(b.key)).map((shape) => this.shape(shape, marked.has(shape.key) && "selected")),
        conflict.map(({ theirs }) => theirs && this.shape(theirs, "theirs")),
        this.labels(shapes)),
      s("g", {}, this.movable() ? this.grips(this.movable()) : drawing && this.drawn(drawing)));
    follow(this.element, wanted);
  }

  picture() {
    const { zoom, x, y } = this.view;
    const [width, height] = this.size.map((side) => side * zoom);
    return this.scene.url
      ? s("image", { href: this.scene.url, x: two(x), y: two(y), width: two(width), height: two(height), preserveAspectRatio: "none", ...UNREAD })
      : s("rect", { class: "blank", width, height });
  }

  shape(shape, state) {
    if (!shape.points) return null;
    const { kind, isClosed, points } = this.pixels(shape);
    const tag = isClosed ? "polygon" : "polyline";
    const fill = kind === "mask" && s(tag, { points: path(points), fill: "url(#hatch)" });
    return s("g", { class: classes("shape", `of-${kind}`, state) },
      fill, stroked(tag, { points: path(points) }), !isClosed && this.arrow(points), this.crossing(points, isClosed));
  }

  // The edges that must not cross.
  crossing(points, isClosed) {
    const wrong = pathProblem(points, isClosed)?.edges ?? [];
    const edges = edgesOf(points, isClosed);
    return wrong.map((index) => s("polyline", { class: "crossing", points: path(edges[index]) }));
  }

  arrow(points) {
    const { x, y, along: [across, down] } = lineSpot({ points }, 1, ARROW_AT);
    return s("g", { transform: `translate(${at([x, y])}) rotate(${two((Math.atan2(down, across) * 180) / Math.PI)})` }, stroked("path", { d: ARROW }));
  }

  // Names, each at the first place where it covers no other one.
  labels(shapes) {
    const taken = [];
    const covers = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && Math.abs(a.y - b.y) < LETTERS.height;
    const write = (text, [x, y], { anchor = "start", point, state } = {}) => {
      const width = text.length * LETTERS.across + (point ? 18 : 0);
      const left = { start: x, middle: x - width / 2, end: x - width }[anchor];
      const box = { x: Math.min(Math.max(left, 4), this.size[0] - width - 4), y: Math.min(Math.max(y, 16), this.size[1] - 6), width };
      const isLow = box.y + 8 * LETTERS.height > this.size[1];
      for (let tries = 0; tries < 8 && taken.some((other) => covers(box, other)); tries += 1) box.y += isLow ? -LETTERS.height : LETTERS.height;
      taken.push(box);
      return s("g", { class: classes("label", state), transform: `translate(${two(box.x)},${two(box.y)})` },
        point && pointFigure(point), s("text", { x: point ? 18 : 0 }, text));
    };
    return shapes.filter(({ points }) => points).map((shape) => {
      const { points, kind, key, name, point } = this.pixels(shape);
      if (!points.some((spot) => isAmong(spot, this.size)) && !isAmong(middle([points[0], points.at(-1)]), this.size)) return null;
      const state = key === this.scene.selected && "selected";
      const [left, top] = points.toSorted((a, b) => a[1] - b[1] || a[0] - b[0])[0];
      if (kind !== "line") return write(kind === "region" ? `${name}, closer` : name, [left + 6, top + 18], { point, state });
      const places = bothSides(lineSpot({ points }, 1, ARROW_AT), ARROW_PX);
      const ways = shape.directions.map((way, i) => write(way, [places[i].x + places[i].dx, places[i].y + places[i].dy], { anchor: places[i].anchor, state }));
      // Before its first point.
      const [[x, y], [nextX]] = points;
      return [ways, write(name, nextX > x ? [x - 12, y + 5] : [x + 12, y + 5], { anchor: nextX > x ? "end" : "start", point, state })];
    });
  }

  grips(shape) {
    const edge = ({ index, at: spot }) => spot && s("g", {
      id: `edge-${index}`, class: "edge", role: "button", tabindex: 0, "data-edge": index, transform: `translate(${at(spot)})`,
      "aria-label": `Add a point between ${index + 1} and ${((index + 1) % shape.points.length) + 1}`,
    }, s("circle", { class: "target", r: REACH }), s("circle", { class: "dot", r: DOT }), s("path", { d: "M-3 0H3M0-3V3" }));
    const point = ({ index, spot, at: grip }) => {
      const isSelected = index === this.scene.point;
      const place = grip ?? spot;
      return s("g", {
        id: `point-${index}`, class: classes("point", isSelected && "selected"), role: "button", tabindex: 0, "data-point": index,
        "aria-label": pointWords(shape, index), "aria-describedby": "draw-hint",
      },
        grip && apart(spot, grip) > 1 && [s("line", { class: "stem", x1: two(spot[0]), y1: two(spot[1]), x2: two(grip[0]), y2: two(grip[1]) }),
          s("circle", { class: "end", cx: two(spot[0]), cy: two(spot[1]), r: 3 })],
        s("circle", { class: "target", cx: two(place[0]), cy: two(place[1]), r: REACH }),
        s("circle", { class: "dot", cx: two(place[0]), cy: two(place[1]), r: isSelected ? DOT + 3 : DOT }));
    };
    return [this.handles(shape).map(point), s("g", {}, this.edgeHandles(shape).map(edge))];
  }

  // What is drawn so far, up to the mouse.
  drawn({ kind, points: corners }) {
    const points = corners.map((share) => this.toPixels(share));
    const isClosed = kind === "region";
    const [x, y] = [points[0], this.cursor];
    return s("g", { class: classes("shape selected", `of-${kind}`), ...UNREAD },
      stroked(isClosed ? "polygon" : "polyline", { points: path(points) }),
      !isClosed && x && y && s("polyline", { class: "next", points: path([points.at(-1), y]) }),
      !isClosed && points.length > 2 && this.crossing(points, false),
      points.map(([cx, cy], i) => {
        const isFirst = i === 0 && kind !== "line";
        return s("circle", { class: classes("dot", isFirst && "first"), cx: two(cx), cy: two(cy), r: isFirst ? DOT + 2 : DOT });
      }));
  }
}

// A box and the point of it that counts.
export const pointFigure = (point) =>
  s("g", { class: "figure" }, s("rect", { x: 2, y: -11, width: 9, height: 12, rx: 1 }), s("circle", { cx: 6.5, cy: point === "centre" ? -5 : 1, r: 2.6 }));
