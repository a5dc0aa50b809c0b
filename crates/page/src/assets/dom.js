// Elements, how they follow what is to be shown, and the pieces of which views are made. Every text becomes a text node, never HTML.

import { duration } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

// Attributes that are null or false and such children are left out; lists of children are flattened.
function fill(element, attributes, children) {
  const is = (value) => value != null && value !== false;
  for (const [name, value] of Object.entries(attributes)) if (is(value)) element.setAttribute(name, value);
  element.append(...children.flat(Infinity).filter(is));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const classes = (...names) => names.filter(Boolean).join(" ");

// Makes `shown` like `wanted`. What has `data-own` is changed by its view alone, as long as the
// value is the same.
export function follow(shown, wanted) {
  if (shown.isEqualNode(wanted)) return;
  if (shown.nodeType !== wanted.nodeType || shown.nodeName !== wanted.nodeName || shown.id !== wanted.id || shown.dataset?.own !== wanted.dataset?.own) {
    shown.replaceWith(wanted);
    return;
  }
  if (shown.nodeType !== Node.ELEMENT_NODE) {
    shown.nodeValue = wanted.nodeValue;
    return;
  }
  if (wanted.hasAttribute("data-own")) return;
  for (const { name } of [...shown.attributes]) {
    // The reader decides whether details are open.
    if (name !== "open" && !wanted.hasAttribute(name)) shown.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (shown.getAttribute(name) !== value) shown.setAttribute(name, value);
  }
  followChildren(shown, [...wanted.childNodes]);
}

// What has an id is the same thing wherever it is among its siblings, and is not moved where others are added or removed.
function followChildren(shown, wanted) {
  const old = new Map([...shown.children].filter((child) => child.id).map((child) => [child.id, child]));
  const ids = new Set(wanted.map((child) => child.id));
  let at = shown.firstChild;
  const pass = () => {
    const passed = at;
    at = at.nextSibling;
    return passed;
  };
  for (const child of wanted) {
    const same = child.id ? old.get(child.id) : null;
    while (at !== null && at !== same && (at.id ? !ids.has(at.id) : same)) pass().remove();
    if (same && same !== at) {
      shown.insertBefore(same, at);
      follow(same, child);
    } else if (at === null || (at.id && at !== same)) shown.insertBefore(child, at);
    else follow(pass(), child);
  }
  while (at !== null) pass().remove();
}

// Copies the text of a field, which is selected: without TLS a browser has no clipboard. True when it is copied.
export async function copied(field) {
  field.select();
  return (await navigator.clipboard?.writeText(field.value).then(() => true, () => false)) ?? false;
}

// ---- Pieces
const PILL_SHAPES = {
  good: "M3 8.5 6.5 12 13 4.5",
  busy: "M8 3v5l3 3M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 1 1 0-13",
  bad: "M8 3v6M8 12v1",
  off: "M3 8h10",
};
// Of drawings that a screen reader passes over.
export const UNREAD = { "aria-hidden": "true", focusable: "false" };

// A state: shape, colour and words.
export function pill(mood, words) {
  const shape = s("svg", { viewBox: "0 0 16 16", ...UNREAD }, s("path", { d: PILL_SHAPES[mood] }));
  return h("span", { class: `pill ${mood}` }, shape, words);
}

// The colour of a stage, for legends.
export function chip(stage) {
  const square = s("rect", { class: `s${stage}`, width: 10, height: 10, rx: 2 });
  return s("svg", { class: "chip", viewBox: "0 0 10 10", ...UNREAD }, square);
}

export const unseen = (words) => h("span", { class: "unseen" }, words);
export const quiet = (...words) => h("p", { class: "quiet" }, words);
export const figure = (value, words) => h("span", {}, h("b", {}, value), ` ${words}`);
export const facts = (lines) =>
  h("dl", { class: "facts" }, lines.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

// Why a state is not good, and when the next try is. Off on purpose is no alarm.
export function reason({ mood, reason: text, next_retry_s: next }) {
  if (text == null) return null;
  return h("p", { class: classes("reason", mood === "off" && "calm") }, text, ".", next != null && ` Next try in ${duration(next)}.`);
}

export const sums = (caption, rows, head) =>
  h("table", { class: "sums" },
    h("caption", {}, caption),
    head && h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map(([name, ...values]) => h("tr", {}, h("th", { scope: "row" }, name), values.map((value) => h("td", {}, value))))));

export const panel = (id, heading, state, ...content) =>
  h("section", { id: `panel-${id}`, class: "panel", "aria-labelledby": `h-${id}` },
    h("div", { class: "title" }, h("h2", { id: `h-${id}` }, heading), state), content);

export const part = (heading, state, ...content) =>
  h("div", { class: "engine" }, h("div", { class: "title" }, h("h3", {}, heading), state), content);
