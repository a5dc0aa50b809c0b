// What the editor shows around its picture: functions of the editor's state to elements. Buttons say what they do by `data-do`.

import { pointFigure } from "./canvas.js";
import { UNREAD, classes, h, quiet, s } from "./dom.js";
import { counted } from "./format.js";
import { POINTS_MIN, canRemovePoint, capital, differences, errorKey, pathProblem, titleOf } from "./shapes.js";

const WISHES = [
  ["zone", "Only alarms here", "A zone. Prompts that have it report only what is in it."],
  ["mask", "Hide this place from every picture", "A mask. It is painted black before the model or anyone else sees the picture."],
  ["region", "Look closer here", "A region of one prompt. The model sees this part alone, in more detail."],
  ["line", "Count who passes", "A line. Objects that cross it are counted in two directions."],
];
const ICONS = {
  zone: "M2 5 9 2 14 7 11 14 3 12z",
  line: "M2 13 14 3M5 4 11 11",
  mask: "M2 3H14V13H2zM2 9 8 3M4 13 14 4M10 13 14 9",
  region: "M7 2a5 5 0 1 1 0 10 5 5 0 1 1 0-10M10.5 10.5 14 14",
};
export const HINTS = {
  zone: "Click the corners in order. The first one, or Enter, ends it.",
  mask: "Click the corners in order. The first one, or Enter, ends it.",
  line: "Click where it begins, bends and ends. The last point again, or Enter, ends it.",
  region: "Drag a rectangle, or click two of its corners.",
};
const MASK_NOTE =
  "Hidden from the model and from every picture. Saving a new or larger one removes the stored pictures of this camera. It can be enlarged here, and deleted again. Masks of the file are removed in the file alone.";
// Of fields that people write names in.
const NAME_FIELD = { autocomplete: "off", autocapitalize: "off", spellcheck: "false" };
const POINTS = [["bottom", "Its feet", "the middle of the lower edge"], ["centre", "Its middle", "the centre of the box"]];

const icon = (kind) => s("svg", { class: "icon", viewBox: "0 0 16 16", ...UNREAD }, s("path", { d: ICONS[kind] }));
const button = (action, words, more = {}) => h("button", { type: "button", "data-do": action, ...more }, words);

// In a fleet, also the cameras that other boxes watch: they are looked at here.
export function cameraNames({ cameras, fleet }) {
  const ofFleet = fleet?.nodes.flatMap((node) => node.cameras) ?? [];
  return [...new Set([...cameras.map(({ id }) => id), ...ofFleet])];
}

export function headParts(editor) {
  const others = cameraNames(editor.status);
  return [
    h("h2", { id: "h-draw" }, "Draw"),
    others.length > 1
      ? h("label", { class: "which" }, "Camera ",
        h("select", { name: "camera" }, others.map((id) => h("option", { value: id, selected: id === editor.camera && "" }, id))))
      : h("p", { class: "which" }, `Camera ${editor.camera}`),
  ];
}

export function noteParts(editor) {
  const { loaded, picture: { trouble } } = editor;
  return [
    editor.trouble && h("p", { class: "reason", role: "alert" }, `The shapes of this camera cannot be shown: ${editor.trouble}`),
    loaded && readOnly(editor),
    loaded && aspectNote(loaded),
    trouble && quiet(trouble),
    editor.saving.is === "conflict" && conflictPart(editor),
  ];
}

// Why nothing can be changed here, and what to do.
function readOnly(editor) {
  const { owner } = editor.loaded;
  const { visitor, has_login: hasLogin } = editor.status;
  const note = (...words) => h("p", { class: "reason calm" }, words);
  if (owner) {
    const link = /^https?:/.test(owner.url ?? "") && h("a", { href: owner.url }, `Open ${owner.name}`);
    return note(`The box ${owner.name} watches this camera: its shapes are changed there. `, link);
  }
  if (visitor === "logged_in") return null;
  if (hasLogin) return note("Log in to change shapes.");
  return note("Shapes can be looked at here, and not changed, because this page has no login. Set ", h("code", {}, "http.tokens"),
    " in the configuration, and log in with one of them.");
}

function conflictPart(editor) {
  const what = ({ key, mine, theirs }) => {
    const title = capital(titleOf(mine ?? theirs));
    return h("li", { id: `differs-${key}` }, !theirs ? `${title}: only in yours` : !mine ? `${title}: only in the saved ones` : `${title}: not the same`);
  };
  return h("div", { id: "draw-conflict", class: "conflict", role: "alert" },
    h("p", {}, h("strong", {}, "Other shapes were saved meanwhile."), " Nothing of yours is saved yet. ",
      h("span", { class: "mine" }, "Yours"), " and ", h("span", { class: "their" }, "the saved ones"), " are in the picture."),
    h("ul", {}, differences(editor.steps.now, editor.saving.now).map(what)),
    h("p", { class: "buttons" }, button("keep", "Keep mine"), button("take", "Take the saved ones")));
}

export function toolParts(editor) {
  const { mode, isEditable } = editor;
  const isDrawing = mode.is === "drawing";
  const { points = [], kind } = mode;
  const open = isDrawing && points.length > 2 && kind !== "region" ? pathProblem(points, false) : null;
  return [
    h("p", { id: "draw-hint", class: "hint" }, open ? h("span", { class: "wrong" }, capital(open.text)) : hint(editor)),
    isDrawing
      ? h("p", { class: "buttons", id: "tools-drawing" },
        points.length === 0 && button("middle", "Put one in the middle"),
        points.length > 0 && button("undo", "Undo point"),
        points.length >= POINTS_MIN[kind] && button("finish", "Done", { class: "main" }),
        button("cancel", "Cancel"))
      : h("p", { class: "buttons", id: "tools-looking" },
        isEditable && [
          button("undo", "Undo", { "aria-disabled": editor.steps.past.length === 0 && "true" }),
          button("redo", "Redo", { "aria-disabled": editor.steps.future.length === 0 && "true" })],
        button("zoom-out", "−", { "aria-label": "Zoom out" }), button("zoom-in", "+", { "aria-label": "Zoom in" }),
        button("picture", "Refresh", { "aria-label": "Refresh the picture" })),
  ];
}

function hint(editor) {
  if (editor.mode.is === "drawing") return HINTS[editor.mode.kind];
  if (!editor.isEditable) return "Two fingers, or Ctrl and the wheel, zoom.";
  const shape = editor.shape();
  if (!shape) return "Click a place in the picture to draw there, or a shape to change it.";
  if (shape.isFixed) return "This mask is in the file and changes there alone.";
  if (!shape.points) return `${shape.name} ${regionWords(shape)}.`;
  const keys = "Drag points, or go to them with Tab: arrow keys move by 0.1 %, with Shift by 1 %.";
  return shape.kind === "region" ? keys : `${keys} Insert adds a point, Delete removes it.`;
}

export function sideParts(editor) {
  const shapes = editor.shapes();
  return [
    editor.isEditable && editor.mode.is !== "drawing" && button("add", "Draw something", { class: "wide", "aria-haspopup": "dialog" }),
    shapes.length === 0 && editor.loaded
      ? quiet("Nothing is drawn on this camera: every prompt sees the whole picture, and everything in it counts.")
      : h("ul", { class: "shape-list", "aria-label": "Shapes" }, shapes.map((shape) => row(editor, shape))),
  ];
}

function row(editor, shape) {
  const isSelected = shape.key === editor.selected;
  return h("li", { id: `row-${shape.key}`, class: classes("shape-row", isSelected && "selected") },
    button("select", [icon(shape.kind), h("span", {}, h("b", {}, rowTitle(shape)), h("small", {}, rowWords(shape)))],
      { "data-key": shape.key, "aria-expanded": isSelected ? "true" : "false" }),
    problems(editor, shape).map((text) => h("p", { class: "wrong" }, text)),
    isSelected && h("div", { class: "inspector" }, inspector(editor, shape)));
}

// What the file's rules, or the daemon, say against it.
function problems(editor, shape) {
  const own = shape.points && pathProblem(shape.points, shape.isClosed);
  const said = editor.saving.is === "refused" ? editor.saving.errors.filter((error) => errorKey(error) === shape.key) : [];
  return [own && `${capital(own.text)}.`, ...said].filter(Boolean);
}

function inspector(editor, shape) {
  const { kind, isFixed } = shape;
  if (isFixed) return quiet("From the configuration file. It is removed or changed there; further masks can be drawn here.");
  if (!editor.isEditable) return kind === "zone" || kind === "line" ? pointPart(editor, shape) : null;
  const parts = {
    zone: () => [namePart(editor, shape), usersPart(editor, shape, "Only alarms here for"), pointPart(editor, shape)],
    line: () => [namePart(editor, shape), usersPart(editor, shape, "Counts"), waysPart(shape), pointPart(editor, shape), resetPart(shape)],
    mask: () => quiet(MASK_NOTE),
    region: () => quiet(shape.points
      ? `The model sees this part alone for ${shape.name}.`
      : `${shape.name} ${regionWords(shape)}. Delete the region, and it sees the whole picture.`),
  };
  return [parts[kind](), buttons(editor, shape)];
}

function namePart(editor, { name, kind }) {
  const mistake = editor.nameMistake;
  return [
    h("label", {}, "Name", h("input", {
      name: "name", value: mistake?.typed ?? name, maxlength: 32, ...NAME_FIELD,
      "aria-invalid": mistake && "true", "aria-describedby": mistake && "name-error",
    })),
    mistake && h("p", { id: "name-error", class: "wrong", role: "alert" }, mistake.why),
  ];
}

function usersPart(editor, { kind, users }, legend) {
  const able = editor.users(kind);
  if (able.length === 0) return quiet(`This camera has no prompt that finds objects, so nothing uses the ${kind}.`);
  return h("fieldset", {}, h("legend", {}, legend),
    able.map(({ id, words }) => h("label", { class: "tick" },
      h("input", { type: "checkbox", name: `user ${id}`, checked: users.includes(id) && "" }), id, words && words !== id && h("small", {}, words))),
    users.length === 0 && h("p", { class: "wrong" }, "No prompt uses it yet: choose one."));
}

function pointPart(editor, { point, kind }) {
  return h("fieldset", {}, h("legend", {}, kind === "zone" ? "An object is in it with" : "An object crosses it with"),
    POINTS.map(([value, title, words]) => h("label", { class: "tick" },
      h("input", { type: "radio", name: "point", value, checked: value === point && "", disabled: !editor.isEditable && "" }),
      s("svg", { class: "box-figure", viewBox: "-1 -13 15 19", ...UNREAD }, pointFigure(value)),
      h("span", {}, title, h("small", {}, words)))));
}

function waysPart({ directions }) {
  const field = (index, words) => h("label", {}, words, h("input", { name: `way ${index}`, value: directions[index], maxlength: 32, ...NAME_FIELD }));
  return h("div", { class: "ways" }, field(0, "To the right of the line"), button("swap", "Swap"), field(1, "To its left"));
}

function resetPart({ reset }) {
  return h("label", {}, "Counts return to 0 at",
    h("input", { name: "reset", value: reset ?? "", placeholder: "00:00 Europe/Berlin", ...NAME_FIELD }),
    h("small", {}, "Empty: by a command only."));
}

function buttons(editor, shape) {
  const canAdd = shape.points && shape.kind !== "region" && !(editor.point !== null && editor.isLastOfLine());
  return h("p", { class: "buttons" },
    editor.point !== null && canRemovePoint(shape) && button("remove-point", `Remove point ${editor.point + 1}`),
    canAdd && button("add-point", editor.point === null ? "Add a point" : `Add a point after ${editor.point + 1}`),
    button("remove", shape.kind === "region" ? "Delete the region" : `Delete ${titleOf(shape)}`, { class: "danger" }));
}

export function footParts(editor) {
  if (!editor.loaded) return null;
  const { saving, isDirty } = editor;
  // Those that are in their places on a stream of another form are saved as they are.
  const isSaved = !isDirty && !editor.loaded.has_other_aspect;
  const general = saving.is === "refused" ? saving.errors.filter((error) => !editor.shapes().some(({ key }) => key === errorKey(error))) : [];
  return [
    saving.is === "refused" && h("div", { role: "alert" }, h("p", { class: "wrong" }, "Not saved."), general.map((error) => h("p", { class: "wrong" }, error))),
    editor.preview && h("p", { class: "preview" }, previewWords(editor.preview)),
    h("p", { id: "draw-buttons", class: "buttons" },
      editor.status.visitor === "logged_in" && !editor.loaded.owner && [
        button("save", saving.is === "saving" ? "Saving …" : "Save", { class: "main", "aria-disabled": (isSaved || saving.is === "saving") && "true" }),
        h("span", { class: "quiet state" }, isDirty ? "Not saved yet" : "All saved")],
      button("copy", "Copy TOML", { "aria-haspopup": "dialog" })),
  ];
}

export function dialogParts(editor) {
  const close = (words) => button("cancel", words);
  const title = (words) => h("h2", { id: "dialog-title" }, words);
  const { mode } = editor;
  switch (mode.is) {
    case "asking":
      return [title("What do you want here?"),
        h("ul", { class: "wishes" }, WISHES.filter(([kind]) => kind !== "region" || editor.loaded.prompts.length > 0).map(([kind, words, more]) =>
          h("li", {}, button("wish", [icon(kind), h("span", {}, h("b", {}, words), h("small", {}, more))], { "data-kind": kind })))),
        h("p", { class: "buttons" }, close("Cancel"))];
    case "choosing":
      return [title("Which prompt looks closer?"),
        h("ul", { class: "wishes" }, editor.loaded.prompts.map(({ id, words }) =>
          h("li", {}, button("region", h("span", {}, h("b", {}, id), h("small", {}, words)), { "data-prompt": id })))),
        h("p", { class: "buttons" }, close("Cancel"))];
    case "copying":
      return [title("Lines for the configuration file"),
        quiet(editor.isDirty
          ? "Of what is saved; your last changes are not in them."
          : "With them in the file, nothing is lost when the overrides are reset."),
        h("textarea", { readonly: "", rows: 12, spellcheck: "false", "aria-label": "TOML" }, editor.loaded.toml),
        h("p", { class: "buttons" }, close("Close"))];
    case "leaving":
      return [title("Leave without saving?"),
        h("p", {}, `The changes to the shapes of ${editor.camera} are not saved.`),
        h("p", { class: "buttons" }, button("cancel", "Stay here", { class: "main" }), button("leave", "Leave, and lose them", { class: "danger" }))];
    default:
      return [];
  }
}

const rowTitle = ({ kind, name }) => ({ mask: capital(name), region: `${name}, closer` })[kind] ?? name;

const regionWords = ({ around }) => (around === "motion" ? "looks where something moves" : `looks at the zone ${around}`);

function rowWords(shape) {
  const { kind, users, isFixed } = shape;
  if (kind === "mask") return isFixed ? "hidden, from the file" : "hidden from every picture";
  if (kind === "region") return shape.points ? "region of a prompt" : regionWords(shape);
  return users.length === 0 ? `${kind}, no prompt uses it` : `${kind} of ${users.join(", ")}`;
}

function previewWords({ events, counted: count, days, hours, reason }) {
  if (reason != null) return reason;
  const time = hours == null ? counted(days, "day") : counted(hours, "hour");
  return `Of ${counted(events, "event")} of the last ${time}, ${count} would have counted.`;
}

// Positions are shares, so another aspect ratio moves them in the scene.
function aspectNote({ size, drawn_size: drawn, has_other_aspect: isOther }) {
  if (!isOther) return null;
  const sizes = `The stream is ${size.join(" × ")} now; the shapes were drawn on ${drawn.join(" × ")}, which is of another form.`;
  return h("p", { class: "reason" }, `${sizes} Nothing was moved: look whether each shape is still in its place, and save.`);
}
