// Marks of events, with the buttons and keys that several views share, and how they are taken back.

import { ObjectEditor } from "./correction.js";
import { h } from "./dom.js";
import { alarm, placeOf } from "./event_parts.js";
import { request } from "./server.js";

const KEYS = { r: "right", y: "right", w: "wrong", n: "wrong", c: "correct", f: "found", u: "undo" };
const EDITOR_KEYS = { Enter: "save", Escape: "cancel", f: "found" };
const UNDO_MAX = 100;

const numbers = (place) => place.box ?? place.point;
const valuesOf = ({ mark = null, objects = null, all_found = false }) => ({ mark, objects, all_found });

export class EventMarking {
  // Host: changed() draws; marked(event, values, isUndo) has the new mark, objects and all_found of an event; corrected() follows a
  // correction that has ended, whose handles may have had the keyboard.
  constructor(host) {
    Object.assign(this, { host, editor: null, isAllFound: false, isSending: false, problem: null, steps: [] });
  }

  // Another picture is shown, or none.
  leave() {
    const hadEditor = this.editor !== null;
    Object.assign(this, { editor: null, isAllFound: false, problem: null });
    if (hadEditor) this.host.corrected();
  }

  hasAllFound(event) {
    return event.mark && !this.editor ? event.all_found === true : this.isAllFound;
  }

  // ---- Changes

  act(action, event) {
    if (this.isSending) return;
    const all_found = this.hasAllFound(event ?? {});
    const actions = {
      right: () => this.mark(event, { mark: "right", all_found }),
      wrong: () => this.mark(event, { mark: "wrong", all_found }),
      correct: () => this.begin(event),
      save: () => this.save(event),
      found: () => this.found(event),
      undo: () => this.undo(),
      cancel: () => this.end(),
      add: () => this.editor.addMiddle(),
      remove: () => this.editor.remove(),
    };
    actions[action]();
  }

  begin(event) {
    const place = placeOf(event);
    if (!place || event.picture == null) return;
    const objects = event.objects ?? [numbers(place)];
    const others = [numbers(place), ...(event.others ?? [])];
    const isSame = (a) => (b) => a.join() === b.join();
    this.isAllFound = event.all_found === true || this.isAllFound;
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
    return this.mark(event, { mark: "corrected", objects, all_found: this.isAllFound });
  }

  found(event) {
    const all_found = !this.hasAllFound(event);
    if (event.mark && !this.editor) return this.mark(event, { ...valuesOf(event), all_found });
    this.isAllFound = all_found;
    this.host.changed();
  }

  async mark(event, values) {
    const before = valuesOf(event);
    if (!(await this.send(event, values))) return;
    this.steps = [...this.steps, { event, before }].slice(-UNDO_MAX);
    this.leave();
    this.host.marked(event, this.sent);
  }

  async undo() {
    const step = this.steps.at(-1);
    if (!step) return this.fail("No mark of this visit is left to undo.");
    const { event, before } = step;
    const isDone = await this.send(event, before);
    // An event that is gone has no mark to undo.
    if (isDone || this.status === 404) this.steps.pop();
    if (!isDone) return this.host.changed();
    this.leave();
    this.host.marked(event, this.sent, true);
  }

  // Whether Spotter has stored it. Keys and buttons do nothing meanwhile.
  async send(event, { mark, objects, all_found }) {
    Object.assign(this, { isSending: true, problem: null, status: null });
    try {
      const body = mark === null ? { mark: "none" } : { mark, all_found, ...(mark === "corrected" && { objects }) };
      const stored = await request("events/mark", { id: event.id, ...body });
      this.sent = valuesOf({ ...stored, mark: stored.mark === "none" ? null : stored.mark });
      return true;
    } catch (error) {
      this.status = error.status;
      this.problem = `Not marked: ${error.message}.`;
      return false;
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

  click(target, event) {
    const action = target.closest?.("[data-mark]")?.dataset.mark;
    if (action) this.act(action, event);
  }

  // Whether the key was used. `shown`: the event at which it is aimed, or null.
  key(pressed, shown) {
    const { key, ctrlKey, metaKey, altKey, repeat, target } = pressed;
    if (target.matches?.("input, select, textarea")) return false;
    if ((ctrlKey || metaKey) && !altKey && key.toLowerCase() === "z") {
      if (this.editor) this.editor.undo();
      else this.act("undo");
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
    const button = (action, words, key, more = {}) => h("button", { type: "button", id: `mark-${action}`, "data-mark": action, ...more }, words, " ", key && h("kbd", {}, key));
    const isPressed = (is) => ({ "aria-pressed": String(is) });
    const hasPicture = event.picture != null && placeOf(event) !== null;
    const found = button("found", "All found", "F", { ...isPressed(this.hasAllFound(event)), "aria-describedby": "mark-note" });
    const buttons = this.editor
      ? [button("save", "Save", "Enter", { class: "main" }), button("cancel", "Cancel", "Esc"), button("add", `Add a ${this.editor.kind}`), button("remove", "Remove", "Del"), found]
      : [button("right", "Right", "R", { ...isPressed(event.mark === "right"), class: "vote" }), button("wrong", "Wrong", "W", { ...isPressed(event.mark === "wrong"), class: "vote" }),
        hasPicture && [button("correct", "Correct", "C", isPressed(event.mark === "corrected")), found], more,
        button("undo", "Undo", "U", { "aria-disabled": this.steps.length === 0 && "true" })];
    return h("div", { class: "marks", "aria-busy": this.isSending && "true" },
      alarm(this.problem),
      h("p", { class: "buttons" }, buttons),
      hasPicture && h("p", { id: "mark-note", class: "quiet" }, this.editor ? EDITING[this.editor.kind] : `All found: nothing else in this picture is “${event.words || event.prompt}”, beside the marks in it.`));
  }
}

const EDITING = {
  box: "Drag corners; drag elsewhere to add what was missed; a tap adds a faint box. Tab and arrow keys do the same.",
  point: "Drag points; a tap adds what was missed. Tab and arrow keys do the same.",
};
