// The documentation that this program contains, at #help/PAGE or #help/PAGE/HEADING. It has no place in the navigation: troubles link it.

import { h } from "./dom.js";
import { read } from "./server.js";

export const help = { id: "help", title: "Documentation", needs: "figures", isUnlisted: true, open, render };

let shown = { path: null, text: null, error: null };

async function open(argument, redraw) {
  const path = pageOf(argument);
  if (shown.path === path && shown.error === null) return;
  const isName = PAGE.test(path);
  shown = { path, text: null, error: isName ? null : `The documentation has no page “${path}”.` };
  if (!isName) return;
  try {
    const text = await read(`docs/${path}`);
    if (shown.path === path) shown = { path, text, error: null };
  } catch (error) {
    shown = { path, text: null, error: error.message };
  }
  redraw();
}

// Another address, as `..`, leads out of the folder.
const PAGE = /^[\w-]+\.md$/;

const pageOf = (argument) => (argument ?? "operations.md").split("/")[0];

function render(_, argument) {
  const path = pageOf(argument);
  const heading = argument?.split("/")[1];
  if (shown.path !== path || shown.text === null)
    return h("p", { role: shown.error && "alert" }, shown.error ?? "Reading the documentation");
  const whole = blocks(shown.text);
  const part = heading ? section(whole, heading) : [];
  return h("article", { class: "panel doc", id: `doc-${path}-${heading ?? ""}` },
    h("p", { class: "quiet" }, `docs/${path} of this version`, part.length > 0 && [" · ", h("a", { href: `#help/${path}` }, "the whole page")]),
    leveled(part.length > 0 ? part : whole).map((block) => drawn(block, path)));
}

// As GitHub does.
const anchor = (text) => text.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replaceAll(" ", "-");

// A heading and what is below it.
function section(all, id) {
  const from = all.findIndex((block) => block.level && anchor(block.text) === id);
  if (from < 0) return [];
  const end = all.findIndex((block, i) => i > from && block.level <= all[from].level);
  return all.slice(from, end < 0 ? undefined : end);
}

// Headings get consecutive levels below the h1 of the page, wherever the part begins.
function leveled(all) {
  const above = [];
  return all.map((block) => {
    if (!block.level) return block;
    while (above.at(-1) >= block.level) above.pop();
    above.push(block.level);
    return { ...block, tag: `h${above.length + 1}` };
  });
}

// ---- Markdown, as far as docs use it

const STARTS = /^(#{1,6} |\||```|- |\d+\. |<!--)/;

function blocks(text) {
  const lines = text.split("\n");
  const found = [];
  const take = (goesOn) => {
    const taken = [];
    while (lines.length > 0 && goesOn(lines[0])) taken.push(lines.shift());
    return taken;
  };
  while (lines.length > 0) {
    const line = lines[0];
    const heading = line.match(/^(#{1,6}) (.*)/);
    if (heading) {
      lines.shift();
      found.push({ level: heading[1].length, text: heading[2] });
    } else if (line.startsWith("```")) {
      lines.shift();
      found.push({ code: take((one) => !one.startsWith("```")).join("\n") });
      lines.shift();
    } else if (line.startsWith("|")) {
      const rows = take((one) => one.startsWith("|")).map(cells);
      found.push({ head: rows[0], rows: rows.slice(2) });
    } else if (/^(- |\d+\. )/.test(line)) {
      const items = take((one) => /^(- |\d+\. | +\S)/.test(one));
      found.push({ isOrdered: /^\d/.test(line), items: joined(items) });
    } else if (line.startsWith("<!--")) {
      take((one) => !one.includes("-->"));
      lines.shift();
    } else if (line === "") {
      lines.shift();
    } else {
      const first = lines.shift();
      found.push({ paragraph: [first, ...take((one) => one !== "" && !STARTS.test(one))].join(" ") });
    }
  }
  return found;
}

const cells = (row) => row.replace(/^\| ?| ?\|$/g, "").split(/ ?(?<!\\)\| ?/).map((cell) => cell.replaceAll("\\|", "|"));

// Lines that begin with spaces belong to the item before.
const joined = (lines) =>
  lines.reduce((items, line) => {
    if (line.startsWith(" ")) items.push(`${items.pop() ?? ""} ${line.trim()}`);
    else items.push(line.replace(/^(- |\d+\. )/, ""));
    return items;
  }, []);

function drawn(block, path) {
  const words = (text) => inline(text, path);
  if (block.tag) return h(block.tag, {}, words(block.text));
  if (block.code != null) return h("pre", {}, h("code", {}, block.code));
  if (block.items) return h(block.isOrdered ? "ol" : "ul", {}, block.items.map((item) => h("li", {}, words(item))));
  if (block.rows)
    return h("div", { class: "table", tabindex: 0 }, h("table", {},
      h("thead", {}, h("tr", {}, block.head.map((cell) => (cell.trim() === "" ? h("td", {}) : h("th", { scope: "col" }, words(cell)))))),
      h("tbody", {}, block.rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, words(cell))))))));
  return h("p", {}, words(block.paragraph));
}

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)]+)\)/g;

export function inline(text, path) {
  const found = [];
  let end = 0;
  for (const { 0: all, 1: code, 2: bold, 3: label, 4: target, index } of text.matchAll(INLINE)) {
    found.push(text.slice(end, index));
    end = index + all.length;
    if (code) found.push(h("code", {}, code));
    else if (bold) found.push(h("b", {}, inline(bold, path)));
    else found.push(link(inline(label, path), target, path));
  }
  return [...found, text.slice(end)];
}

// Links to files that are not pages of the documentation are their text alone.
function link(label, target, path) {
  if (target.startsWith("https://")) return h("a", { href: target, rel: "noopener noreferrer" }, label);
  const [page, heading] = target.split("#");
  if (page.includes("/") || (page !== "" && !page.endsWith(".md"))) return label;
  return h("a", { href: `#help/${page || path}${heading ? `/${heading}` : ""}` }, label);
}
