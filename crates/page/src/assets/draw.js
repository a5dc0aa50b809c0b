// The view "Draw": zones, lines, masks and regions of a camera, drawn over its picture of now. What is changed is kept here step by
// step until it is saved as a whole; a version that was saved elsewhere meanwhile is shown beside it.

import { ShapeCanvas, pointWords } from "./canvas.js";
import { copied, follow, h, quiet } from "./dom.js";
import { HINTS, cameraNames, dialogParts, footParts, headParts, noteParts, sideParts, toolParts } from "./draw_parts.js";
import { arrowStep } from "./region.js";
import { AGAIN_MS, picture, request } from "./server.js";
import {
  POINTS_MIN, ShapeSteps, boxAround, canRemovePoint, capital, complete, cornersOf, differences, freeName, isSame, listOf, nameProblem, pathProblem,
  renamed, round, titleOf, withMiddle, withNew, withPoint, withPoints, withUser, withValues, without, withoutPoint,
} from "./shapes.js";

// A mask is painted into stored pictures before it is saved.
const SAVE_LIMIT_MS = 60_000;
// The daemon waits 10 s for a camera's next frame.
const PICTURE_LIMIT_MS = 15_000;
const PREVIEW_PAUSE_MS = 400;
// Only objects have places: questions about the whole picture have none.
const OBJECT_KINDS = ["detect", "point", "segment"];

const MIDDLE = { line: [[0.3, 0.6], [0.7, 0.6]], other: [[0.35, 0.35], [0.65, 0.35], [0.65, 0.65], [0.35, 0.65]] };

class ShapeEditor {
  constructor(camera, status) {
    this.camera = camera;
    this.status = status;
    this.loaded = null;
    this.trouble = null;
    this.steps = new ShapeSteps(complete({}));
    this.selected = null;
    this.point = null;
    // What the visitor does: { is: "looking" }, { is: "asking", at }, { is: "choosing", at } a prompt, { is: "drawing", kind, prompt, points },
    // { is: "leaving", to }, { is: "copying" }.
    this.mode = { is: "looking" };
    // { is: "idle" }, { is: "saving" }, { is: "refused", errors }, { is: "conflict", now, version }.
    this.saving = { is: "idle" };
    this.preview = null;
    this.isPreviewing = false;
    this.picture = { url: null, trouble: null };
    // How often a picture was asked for or dropped: an earlier answer is not shown.
    this.pictures = 0;
    // What was typed as the name of the shape `key`, and why it is none: { key, typed, why }.
    this.wrongName = null;
    this.canvas = new ShapeCanvas(this);
    this.build();
    this.load();
    this.loadPicture();
  }

  // ---- The daemon

  async load() {
    try {
      const loaded = await request(`camera/${this.camera}/shapes.json`);
      this.loaded = { ...loaded, now: complete(loaded.now) };
      this.steps.now = this.loaded.now;
      this.trouble = null;
    } catch (error) {
      this.trouble = error.message;
      setTimeout(() => this.loadAgain(), AGAIN_MS);
    }
    this.update();
  }

  // What was changed meanwhile stays, and is a conflict when it is saved if others were.
  loadAgain() {
    if (this.trouble !== null && this.root.isConnected && !this.isDirty) this.load();
  }

  // Without the mask for those who may change it. Kept in memory while the editor is shown.
  async loadPicture() {
    const own = (this.pictures += 1);
    const name = this.status.visitor === "logged_in" ? "unmasked" : "now";
    const asked = picture(`camera/${this.camera}/${name}.jpg`, PICTURE_LIMIT_MS);
    const [url, trouble] = await asked.then((found) => [found, null], (error) => [null, `No picture: ${error.message}`]);
    if (own === this.pictures) this.setPicture({ url, trouble });
    else if (url) URL.revokeObjectURL(url);
  }

  dropPicture() {
    this.pictures += 1;
    this.setPicture({ url: null, trouble: null });
  }

  setPicture(picture) {
    const { url } = this.picture;
    this.picture = picture;
    this.update();
    // No longer shown.
    if (url) URL.revokeObjectURL(url);
  }

  get isDirty() {
    return this.loaded !== null && !isSame(this.steps.now, this.loaded.now);
  }

  get isEditable() {
    return this.loaded !== null && this.loaded.owner == null && this.status.visitor === "logged_in" && this.saving.is !== "saving";
  }

  async save() {
    const wrong = this.shapes().find((shape) => shape.points && pathProblem(shape.points, shape.isClosed));
    if (wrong) {
      this.select(wrong.key, null);
      return this.say(`${capital(titleOf(wrong))} ${pathProblem(wrong.points, wrong.isClosed).text}`);
    }
    if (this.nameMistake) {
      this.root.querySelector('[name="name"]')?.focus();
      return this.say(`Not saved. ${this.nameMistake.why}`);
    }
    const shapes = this.steps.now;
    this.saving = { is: "saving" };
    this.update();
    try {
      await request("command", { op: "shapes_set", cam: this.camera, seen: this.loaded.version, shapes }, SAVE_LIMIT_MS);
      this.loaded = { ...this.loaded, now: shapes };
      await this.load();
      this.saving = { is: "idle" };
      this.say("Saved. It applies now, and after a restart.");
    } catch (error) {
      this.refused(error);
    }
    this.update();
  }

  refused({ message, answer }) {
    const { now, version, errors = [message] } = answer?.error ?? {};
    if (!now) {
      this.saving = { is: "refused", errors };
      return;
    }
    this.saving = { is: "conflict", now: complete(now), version };
    // What differs is marked.
    [this.selected, this.point] = [null, null];
  }

  keepMine() {
    this.loaded = { ...this.loaded, now: this.saving.now, version: this.saving.version };
    return this.save();
  }

  takeTheirs() {
    const { now, version } = this.saving;
    this.loaded = { ...this.loaded, now, version };
    this.saving = { is: "idle" };
    this.change(now);
    // Its lines for the file.
    this.load();
  }

  // How many stored events the shapes would have counted. Daemons without a history are not asked.
  askPreview() {
    clearTimeout(this.previewTimer);
    this.preview = null;
    if (!this.status.history || !this.isDirty) return;
    this.previewTimer = setTimeout(() => this.readPreview(), PREVIEW_PAUSE_MS);
  }

  // One at a time: each takes a core of the daemon for some seconds.
  async readPreview() {
    if (this.isPreviewing) return;
    const shapes = this.steps.now;
    this.isPreviewing = true;
    const answer = await request(`camera/${this.camera}/shapes-preview`, { shapes }).catch(() => null);
    this.isPreviewing = false;
    if (shapes !== this.steps.now) return this.askPreview();
    this.preview = answer;
    this.update();
  }

  // ---- Changes

  shapes() {
    return listOf(this.steps.now, this.loaded?.file_mask);
  }

  shape() {
    return this.shapes().find(({ key }) => key === this.selected) ?? null;
  }

  change(next, isSameStep = false) {
    this.steps.change(next, isSameStep);
    this.changed();
  }

  changed() {
    const shape = this.shape();
    if (!shape) [this.selected, this.point] = [null, null];
    else if (this.point >= (shape.points?.length ?? 0)) this.point = null;
    if (this.saving.is === "refused") this.saving = { is: "idle" };
    this.askPreview();
    this.update();
  }

  undo() {
    if (this.mode.is === "drawing") return this.undoPoint();
    this.say(this.steps.undo() ? "Undone" : "Nothing to undo");
    this.changed();
  }

  redo() {
    this.say(this.steps.redo() ? "Redone" : "Nothing to redo");
    this.changed();
  }

  select(key, point) {
    if (key !== this.selected) this.wrongName = null;
    [this.selected, this.point] = [key, point];
    const shape = this.shape();
    if (shape && point === null) this.say(`${capital(titleOf(shape))} selected`);
    this.update();
  }

  move(points, isSameStep) {
    this.change(withPoints(this.steps.now, this.selected, points), isSameStep);
  }

  revert() {
    this.steps.cancel();
    this.changed();
  }

  insert(edge) {
    const shape = this.shape();
    this.point = edge + 1;
    this.move(withMiddle(shape.points, edge), false);
    this.canvas.focusPoint(edge + 1);
    this.say(pointWords(this.shape(), edge + 1));
  }

  removePoint() {
    const shape = this.shape();
    if (!canRemovePoint(shape)) return this.say("This shape needs all its points");
    const index = this.point;
    this.point = Math.min(index, shape.points.length - 2);
    const hasFocus = this.canvas.element.contains(document.activeElement);
    this.move(withoutPoint(shape.points, index), false);
    if (hasFocus) this.canvas.focusPoint(this.point);
    this.say(`Point ${index + 1} removed`);
  }

  nudge([right, down], isSameStep) {
    const shape = this.shape();
    const [x, y] = shape.points[this.point];
    this.move(withPoint(shape, this.point, [x + right, y + down]), isSameStep);
    this.say(pointWords(this.shape(), this.point));
  }

  remove(key) {
    const at = this.shapes().findIndex((shape) => shape.key === key);
    this.change(without(this.steps.now, key));
    this.say("Deleted. Undo brings it back.");
    // Its button is gone.
    const rows = [...this.side.querySelectorAll(".shape-row > button")];
    (rows[Math.min(at, rows.length - 1)] ?? this.side.querySelector('[data-do="add"]'))?.focus();
  }

  get nameMistake() {
    return this.wrongName?.key === this.selected ? this.wrongName : null;
  }

  checkName(name) {
    const { kind, name: own, key } = this.shape();
    const why = nameProblem(this.steps.now, kind, name, own);
    this.wrongName = why && { key, typed: name, why };
    this.update();
  }

  rename(name) {
    const { kind, name: own, key } = this.shape();
    this.checkName(name);
    if (this.wrongName || name === own) return;
    this.selected = `${kind}:${name}`;
    this.change(renamed(this.steps.now, key, name));
  }

  // ---- Drawing something new

  ask(at) {
    if (!this.isEditable) return;
    this.mode = { is: "asking", at };
    this.update();
  }

  choose(kind) {
    const { at } = this.mode;
    const { prompts } = this.loaded;
    if (kind === "region" && prompts.length !== 1) this.mode = { is: "choosing", at };
    else this.begin(kind, prompts[0]?.id, at);
    this.update();
  }

  begin(kind, prompt, at) {
    [this.selected, this.point] = [null, null];
    this.mode = { is: "drawing", kind, prompt, points: at ? [at.map(round)] : [] };
    this.say(HINTS[kind]);
    this.update();
    if (!at) this.root.querySelector('[data-do="middle"]')?.focus();
  }

  place(at) {
    const { mode } = this;
    mode.points = [...mode.points, at.map(round)];
    if (mode.kind === "region" && mode.points.length === 2) return this.finish();
    this.update();
  }

  // The rectangle of a region while it is drawn.
  stretch(from, to) {
    this.mode.points = [from, [to[0], from[1]], to, [from[0], to[1]]].map((point) => point.map(round));
    this.update();
  }

  undoPoint() {
    this.mode.points = this.mode.points.slice(0, -1);
    this.update();
  }

  finish() {
    const { kind, prompt, points } = this.mode;
    if (points.length < POINTS_MIN[kind]) return this.say(`A ${kind} needs at least ${POINTS_MIN[kind]} points`);
    this.add(kind, prompt, points);
  }

  addMiddle() {
    const { kind, prompt } = this.mode;
    this.add(kind, prompt, MIDDLE[kind] ?? MIDDLE.other);
    this.canvas.focusPoint(0);
  }

  add(kind, prompt, points) {
    const given = kind === "region" ? cornersOf(boxAround(points)) : points;
    const name = kind === "region" ? prompt : kind === "mask" ? null : freeName(this.steps.now, kind);
    const { key, shapes } = withNew(this.steps.now, kind, name, given);
    const users = this.users(kind);
    this.mode = { is: "looking" };
    [this.selected, this.point] = [key, null];
    const isObvious = (kind === "zone" || kind === "line") && users.length === 1;
    this.change(isObvious ? withUser(shapes, key, users[0].id, true) : shapes);
    this.say(`${capital(titleOf(this.shape()))} added`);
  }

  // The prompts that may name a zone or a line.
  users(kind) {
    const { prompts } = this.loaded;
    return kind === "zone" || kind === "line" ? prompts.filter((prompt) => OBJECT_KINDS.includes(prompt.kind)) : [];
  }

  cancel() {
    if (this.canvas.stop()) return;
    const { is } = this.mode;
    if (is !== "looking") this.mode = { is: "looking" };
    else [this.selected, this.point] = [null, null];
    this.update();
  }

  // ---- Events

  act({ do: action, key, kind, prompt }) {
    const actions = {
      "add": () => this.ask(null),
      "wish": () => this.choose(kind),
      "region": () => this.begin("region", prompt, this.mode.at),
      "middle": () => this.addMiddle(),
      "finish": () => this.finish(),
      "cancel": () => this.cancel(),
      "select": () => this.select(key === this.selected ? null : key, null),
      "remove": () => this.remove(this.selected),
      "remove-point": () => this.removePoint(),
      "add-point": () => this.insert(this.point ?? 0),
      "swap": () => this.change(withValues(this.steps.now, this.selected, { directions: this.shape().directions.toReversed() })),
      "undo": () => this.undo(),
      "redo": () => this.redo(),
      "zoom-in": () => this.canvas.zoomBy(1.5, this.pointPlace()),
      "zoom-out": () => this.canvas.zoomBy(1 / 1.5),
      "picture": () => this.loadPicture(),
      "save": () => this.save(),
      "keep": () => this.keepMine(),
      "take": () => this.takeTheirs(),
      "copy": () => this.copy(),
      "leave": () => this.leave(),
    };
    actions[action]?.();
  }

  pointPlace() {
    const share = this.shape()?.points?.[this.point];
    return share ? this.canvas.toPixels(share) : undefined;
  }

  // A field of the selected shape.
  set({ name, value, checked }) {
    const [what, which] = name.split(" ");
    const { selected: key, steps: { now } } = this;
    switch (what) {
      case "name": return this.rename(value.trim());
      case "point": return this.change(withValues(now, key, { point: value }));
      case "reset": return this.change(withValues(now, key, { reset: value.trim() || null }));
      case "user": return this.change(withUser(now, key, which, checked));
      case "way": return this.change(withValues(now, key, { directions: this.shape().directions.with(Number(which), value.trim()) }));
    }
  }

  // Whether the key was used.
  key(event) {
    const { key, ctrlKey, metaKey, shiftKey, target } = event;
    // Those with a text of their own to take back.
    const isField = target.matches?.("textarea, select, input:not([type=checkbox], [type=radio])");
    if ((ctrlKey || metaKey) && key.toLowerCase() === "z" && !isField && this.isEditable) {
      if (shiftKey) this.redo();
      else this.undo();
      return true;
    }
    if (ctrlKey || metaKey || event.altKey || isField) return false;
    const [point, edge] = ["point", "edge"].map((name) => target.closest?.(`[data-${name}]`)?.dataset[name]);
    if (point !== undefined && this.pointKey(event)) return true;
    if (key === "Escape") this.cancel();
    else if (key === "Enter" && this.mode.is === "drawing" && !target.closest?.("button, a, input")) this.finish();
    else if (edge !== undefined && ["Enter", " ", "Insert"].includes(key)) this.insert(Number(edge));
    else return false;
    return true;
  }

  pointKey(event) {
    const { key, repeat: isRepeat } = event;
    const step = arrowStep(event);
    if (step) this.nudge(step, isRepeat);
    else if (key === "Delete" || key === "Backspace") this.removePoint();
    else if (key === "Insert" && !this.isLastOfLine()) this.insert(this.point);
    else return false;
    return true;
  }

  isLastOfLine() {
    const shape = this.shape();
    return shape.kind === "region" || (!shape.isClosed && this.point === shape.points.length - 1);
  }

  say(words) {
    this.spoken.textContent = words;
  }

  async copy() {
    this.mode = { is: "copying" };
    this.update();
    if (await copied(this.dialog.querySelector("textarea"))) this.say("Copied");
  }

  askLeaving(to) {
    this.mode = { is: "leaving", to };
    this.update();
  }

  leave() {
    const { to } = this.mode;
    this.steps = new ShapeSteps(this.loaded.now);
    this.mode = { is: "looking" };
    this.changed();
    location.hash = to;
  }

  // ---- What is shown

  build() {
    this.head = h("div", { class: "editor-head" });
    this.notes = h("div", { class: "notes" });
    this.tools = h("div", { class: "tools" });
    this.side = h("div", { class: "side" });
    this.foot = h("div", { class: "editor-foot" });
    this.spoken = h("p", { class: "unseen", role: "status" });
    this.dialog = h("dialog", { "aria-labelledby": "dialog-title" });
    // By its own keys; it may be open again.
    this.dialog.addEventListener("close", () => {
      if (!this.dialog.open && ["asking", "choosing", "leaving", "copying"].includes(this.mode.is)) this.cancel();
    });
    const board = h("div", { class: "board" }, this.canvas.stage, this.tools);
    this.root = h("section", { ...PLACE(this.camera), class: "editor" },
      this.head, this.notes, board, this.side, this.foot, this.spoken, this.dialog);
  }

  show(status) {
    const isAnother = status.visitor !== this.status.visitor;
    this.status = status;
    if (isAnother) this.loadPicture();
    this.update();
  }

  update() {
    const put = (place, parts) => follow(place, h("div", { class: place.className }, parts));
    put(this.head, headParts(this));
    put(this.notes, noteParts(this));
    put(this.tools, toolParts(this));
    put(this.side, sideParts(this));
    put(this.foot, footParts(this));
    follow(this.dialog, h("dialog", { "aria-labelledby": "dialog-title" }, dialogParts(this)));
    this.settle();
    this.canvas.show(this.scene());
  }

  // What the visitor typed or ticked follows what is so, but for the field that has the focus.
  settle() {
    for (const field of this.root.querySelectorAll("input, option")) {
      if (field.type === "checkbox" || field.type === "radio") field.checked = field.hasAttribute("checked");
      else if (field.tagName === "OPTION") field.selected = field.hasAttribute("selected");
      else if (field !== document.activeElement) field.value = field.getAttribute("value") ?? "";
    }
    const isAsked = this.dialog.childElementCount > 0;
    if (isAsked && !this.dialog.open && this.root.isConnected) this.dialog.showModal();
    if (!isAsked && this.dialog.open) this.dialog.close();
  }

  scene() {
    const { size, drawn_size: drawn } = this.loaded ?? {};
    const [width, height] = size ?? drawn ?? [16, 9];
    return {
      url: this.picture.url,
      aspect: width / height,
      label: `Picture of camera ${this.camera} with its shapes`,
      shapes: this.shapes(),
      selected: this.mode.is === "drawing" ? null : this.selected,
      point: this.point,
      conflict: this.saving.is === "conflict" ? differences(this.steps.now, this.saving.now) : [],
      drawing: this.mode.is === "drawing" ? this.mode : null,
      isEditable: this.isEditable,
    };
  }
}

// ---- The view

const PLACE = (camera) => ({ id: "draw-editor", "data-own": camera });

let editor = null;
let isShown = false;

function render(status, argument) {
  const names = cameraNames(status);
  const camera = argument ?? names[0];
  if (camera === undefined) return quiet("There is no camera to draw on.");
  if (!names.includes(camera)) return quiet(`There is no camera ${camera}.`);
  if (editor?.camera !== camera) {
    editor?.dropPicture();
    editor = new ShapeEditor(camera, status);
  }
  editor.show(status);
  // Only the first time: it is in the document then.
  return editor.root.isConnected ? h("section", PLACE(camera)) : editor.root;
}

// A link or the way back leads elsewhere while something is not saved: the address is set back, and the visitor asked.
function stays({ oldURL, newURL }) {
  if (!editor?.isDirty) return false;
  history.replaceState(null, "", oldURL);
  editor.askLeaving(new URL(newURL).hash);
  return true;
}

// Also when the login has ended and the view is closed.
addEventListener("beforeunload", (event) => editor?.isDirty && event.preventDefault());

function open() {
  isShown = true;
  editor?.loadPicture();
}

// What is not saved is kept for the way back, as after a login that has ended.
function close() {
  isShown = false;
  editor?.dropPicture();
  if (!editor?.isDirty) editor = null;
}

const inEditor = (event) => isShown && editor?.root.contains(event.target);

function click(event) {
  const pressed = inEditor(event) && event.target.closest("[data-do]");
  if (!pressed || pressed.getAttribute("aria-disabled") === "true") return;
  editor.act(pressed.dataset);
  // By a key: the shape's points are next.
  if (pressed.dataset.do === "select" && event.detail === 0) editor.canvas.focusPoint(0);
}

function changeField(event) {
  if (!inEditor(event)) return;
  if (event.target.name === "camera") location.hash = `#draw/${event.target.value}`;
  else editor.set(event.target);
}

// Names are checked while they are typed.
function input(event) {
  if (inEditor(event) && event.target.name === "name") editor.checkName(event.target.value);
}

const key = (event) => isShown && editor !== null && editor.key(event);

export const draw = { id: "draw", title: "Draw", needs: "pictures", render, open, close, stays, click, input, change: changeField, key };
