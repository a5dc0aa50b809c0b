// Marks of events, with the buttons and keys that several views share, and how they are taken back.

import { OBJECTS_MAX, ObjectEditor } from "./correction.js";
import { h } from "./dom.js";
import { alarm, nameOf, placeOf, readEvent } from "./event_parts.js";
import { request } from "./server.js";

const KEYS = { r: "right", y: "right", w: "wrong", n: "wrong", c: "correct", f: "found", u: "undo" };
const EDITOR_KEYS = { Enter: "save", Escape: "cancel", f: "found" };
// A double click would press what the next picture has at the same place.
const MAY_DOUBLE = ["add", "remove"];
const UNDO_MAX = 100;

// The marks of this visit in all views, the last one at the end: { event, before }.
let steps = [];

const numbers = (place) => place.box ?? place.point;
const hasPicture = (event) => event.picture != null && placeOf(event) !== null;
// As `?v=` of its address says; undefined without a picture.
const pictureNumber = ({ picture }) => (picture == null ? undefined : Number(new URL(picture, location.href).searchParams.get("v")));
const valuesOf = ({ mark = null, objects = null, all_found = false }) => ({ mark, objects, all_found });

export class EventMarking {
  // Host: changed() draws; isSeen(event) tells whether the reader has had time to see it; marked(event, values, isUndo) has the new
  // mark, objects and all_found of an event, which may be of another view; corrected() follows a correction that has ended, whose
  // handles may have had the keyboard.
  constructor(host) {
    // `foundId`: the event without a mark that "All found" is pressed for. `leavingTo`: the address that a question is about.
    Object.assign(this, { host, editor: null, foundId: null, leavingTo: null, isSending: false, problem: null, visit: 0 });
    addEventListener("beforeunload", (event) => this.isDirty && event.preventDefault());
  }

  get isDirty() {
    return this.editor !== null && this.editor.steps.length > 0;
  }

  get canUndo() {
    return steps.length > 0;
  }

  // Another picture is shown, or none.
  leave() {
    const hadEditor = this.editor !== null;
    Object.assign(this, { editor: null, foundId: null, leavingTo: null, problem: null });
    this.visit += 1;
    if (hadEditor) this.host.corrected();
  }

  // A correction that is not saved is asked about before another address is followed.
  stays({ oldURL, newURL }) {
    if (!this.isDirty) return false;
    history.replaceState(null, "", oldURL);
    this.leavingTo = new URL(newURL).hash;
    this.host.changed();
    document.getElementById("mark-discard")?.focus();
    return true;
  }

  discard() {
    const { leavingTo } = this;
    this.leave();
    location.hash = leavingTo;
    this.host.changed();
  }

  goOn() {
    this.leavingTo = null;
    this.host.changed();
    this.editor.focus();
  }

  hasAllFound(event) {
    return event.mark && !this.editor ? event.all_found === true : this.foundId === event.id;
  }

  // ---- Changes

  act(action, event) {
    if (this.isSending || !this.canAct(action, event)) return;
    const actions = {
      right: () => this.vote(event, "right"),
      wrong: () => this.vote(event, "wrong"),
      correct: () => this.begin(event),
      save: () => this.save(event),
      found: () => this.found(event),
      undo: () => this.undo(),
      cancel: () => this.end(),
      add: () => this.editor.addMiddle(),
      remove: () => this.editor.remove(),
      discard: () => this.discard(),
      continue: () => this.goOn(),
    };
    actions[action]();
  }

  canAct(action, event) {
    if (action === "undo") return true;
    if ((action === "found" || action === "correct") && !hasPicture(event)) return false;
    return this.editor !== null || this.host.isSeen(event);
  }

  // The mark that an event has is taken off.
  vote(event, mark) {
    return this.mark(event, event.mark === mark ? valuesOf({}) : { mark, objects: null, all_found: this.hasAllFound(event) });
  }

  begin(event) {
    const place = placeOf(event);
    const objects = event.objects ?? [numbers(place)];
    const others = [numbers(place), ...(event.others ?? [])];
    const isSame = (a) => (b) => a.join() === b.join();
    if (event.all_found) this.foundId = event.id;
    this.editor = new ObjectEditor(objects, others.filter((other) => !objects.some(isSame(other))), place.box ? "box" : "point", () => this.host.changed());
    this.host.changed();
    this.editor.focus();
  }

  end() {
    this.leave();
    this.host.changed();
  }

  save(event) {
    const { objects } = this.editor;
    if (objects.length === 0) return this.fail("Without an object there is nothing to correct: mark it wrong.");
    return this.mark(event, { mark: "corrected", objects, all_found: this.hasAllFound(event) });
  }

  found(event) {
    const all_found = !this.hasAllFound(event);
    if (event.mark && !this.editor) return this.mark(event, { ...valuesOf(event), all_found });
    this.foundId = all_found ? event.id : null;
    this.host.changed();
  }

  async mark(event, values) {
    const before = valuesOf(event);
    const { visit } = this;
    const stored = await this.send(event, values);
    if (stored === null) return;
    steps = [...steps, { event, before }].slice(-UNDO_MAX);
    if (visit === this.visit) this.leave();
    this.host.marked(event, stored, false);
  }

  async undo() {
    const step = steps.at(-1);
    if (!step) return this.fail("No mark of this visit is left to undo.");
    const { event, before } = step;
    const { visit } = this;
    const stored = await this.send(event, before);
    // An event that is gone has no mark to undo.
    if (stored !== null || this.status === 404) steps = steps.filter((one) => one !== step);
    if (stored === null) return this.host.changed();
    if (visit === this.visit) this.leave();
    this.host.marked(event, stored, true);
  }

  // Returns what Spotter has stored, or null. Keys and buttons do nothing meanwhile.
  async send(event, { mark, objects, all_found }) {
    const { visit } = this;
    Object.assign(this, { isSending: true, problem: null, status: null });
    this.host.changed();
    try {
      const judged = { mark, all_found, picture: pictureNumber(event), ...(mark === "corrected" && { objects }) };
      const stored = await request("events/mark", { id: event.id, ...(mark === null ? { mark: "none" } : judged) });
      return valuesOf({ ...stored, mark: stored.mark === "none" ? null : stored.mark });
    } catch (error) {
      this.status = error.status;
      // There is a better picture now.
      if (error.status === 409) Object.assign(event, await readEvent(event.id).catch(() => null));
      if (visit === this.visit) this.problem = `${error.status ? "Not marked" : "Not known whether it is marked"}: ${error.message}.`;
      return null;
    } finally {
      this.isSending = false;
      this.host.changed();
    }
  }

  fail(words) {
    this.problem = words;
    this.host.changed();
  }

  // ---- What the reader does

  click({ target, detail }, event) {
    const action = target.closest?.("[data-mark]")?.dataset.mark;
    if (action && (detail <= 1 || MAY_DOUBLE.includes(action))) this.act(action, event);
  }

  // Whether the key was used. `shown`: the event at which it is aimed, or null.
  key(pressed, shown) {
    const { key, ctrlKey, metaKey, altKey, shiftKey, repeat, target } = pressed;
    if (target.matches?.("input, select, textarea")) return false;
    // Enter that is held down presses a button once.
    if (repeat && key === "Enter" && target.closest?.(".marks")) return true;
    if (this.leavingTo !== null) return key === "Escape" && (this.goOn(), true);
    if ((ctrlKey || metaKey) && !altKey && !shiftKey && key.toLowerCase() === "z") {
      if (this.editor) this.editor.undo();
      else if (!repeat) this.act("undo");
      return true;
    }
    if (ctrlKey || metaKey || altKey) return false;
    if (this.editor?.key(pressed)) return true;
    // Enter at a button presses it.
    if (this.editor && key === "Enter" && target.matches?.("button, a")) return false;
    const action = this.editor ? EDITOR_KEYS[key] : KEYS[key.toLowerCase()];
    if (!action || (shown === null && action !== "undo")) return false;
    // A key that is held down marks one event.
    if (!repeat) this.act(action, shown);
    return true;
  }

  // ---- What is shown

  // `more`: buttons of the view.
  render(event, more) {
    return h("div", { class: "marks", "aria-busy": this.isSending && "true" },
      alarm(this.problem),
      this.leavingTo !== null && this.leaving(),
      h("p", { class: "buttons" }, this.editor ? this.editing(event) : this.voting(event, more)),
      hasPicture(event) && h("p", { id: "mark-note", class: "quiet" }, this.note(event)));
  }

  voting(event, more) {
    const own = (is) => ({ ...pressed(is), "aria-disabled": !this.host.isSeen(event) && "true" });
    return [
      button("right", "Right", "R", { ...own(event.mark === "right"), class: "vote" }),
      button("wrong", "Wrong", "W", { ...own(event.mark === "wrong"), class: "vote" }),
      hasPicture(event) && [button("correct", "Correct", "C", own(event.mark === "corrected")), button("found", "All found", "F", { ...own(this.hasAllFound(event)), "aria-describedby": "mark-note" })],
      more,
      this.undoButton(),
    ];
  }

  editing(event) {
    return [
      button("save", "Save", "Enter", { class: "main" }), button("cancel", "Cancel", "Esc"),
      button("add", `Add a ${this.editor.kind}`, null, { "aria-disabled": this.editor.isFull && "true" }), button("remove", "Remove", "Del"),
      button("found", "All found", "F", { ...pressed(this.hasAllFound(event)), "aria-describedby": "mark-note" }),
    ];
  }

  undoButton() {
    return button("undo", "Undo", "U", { "aria-disabled": !this.canUndo && "true" });
  }

  note(event) {
    if (!this.editor) return `All found: nothing else in this picture is “${event.words || event.prompt}”, beside the marks in it.`;
    return this.editor.isFull ? `A picture has at most ${OBJECTS_MAX} objects here.` : EDITING[this.editor.kind];
  }

  leaving() {
    return h("div", { id: "unsaved", class: "question calm", role: "alertdialog", "aria-labelledby": "unsaved-words" },
      h("p", { id: "unsaved-words" }, "The correction is not saved."),
      h("p", { class: "buttons" }, button("discard", "Discard it"), button("continue", "Go on correcting", null, { class: "main" })));
  }
}

const pressed = (is) => ({ "aria-pressed": String(is) });
const button = (action, words, key, more = {}) => h("button", { type: "button", id: `mark-${action}`, "data-mark": action, ...more }, words, " ", key && h("kbd", {}, key));

// Of an event that is not shown.
export const takenBack = (event, zone) => `Mark of ${nameOf(event)}, ${zone.day(event.start_ms)} ${zone.clock(event.start_ms)} taken back.`;

const EDITING = {
  box: "Drag corners; drag elsewhere to add what was missed; a tap adds a faint box. Tab and arrow keys do the same.",
  point: "Drag points; a tap adds what was missed. Tab and arrow keys do the same.",
};
