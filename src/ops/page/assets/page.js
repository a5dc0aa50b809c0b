// Asks for this page again and takes over what changed, so that focus, scrolling and open details stay, and a reader hears
// only what is new. One question at a time; none while nobody sees the page.
"use strict";

// Pictures that change all the time are motion.
const CALM = matchMedia("(prefers-reduced-motion: reduce)").matches;
const EVERY_MS = CALM ? 5000 : 1000;
const SLOWEST_MS = 30_000;
const ANSWER_LIMIT_MS = 10_000;

let pause = EVERY_MS;
let failed = 0;
let asking = false;
let timer;

// Makes `shown` like `wanted`. What has an id is the same thing wherever it stands among its siblings.
function follow(shown, wanted) {
  if (shown.isEqualNode(wanted)) return;
  if (shown.nodeType !== wanted.nodeType || shown.nodeName !== wanted.nodeName || shown.id !== wanted.id) {
    shown.replaceWith(wanted.cloneNode(true));
    return;
  }
  if (shown.nodeType !== Node.ELEMENT_NODE) {
    shown.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...shown.attributes]) {
    // Whether details are open is the reader's affair.
    if (name !== "open" && !wanted.hasAttribute(name)) shown.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (shown.getAttribute(name) !== value) shown.setAttribute(name, value);
  }
  const [old, fresh] = [[...shown.childNodes], [...wanted.childNodes]];
  fresh.forEach((child, i) => (old[i] ? follow(old[i], child) : shown.append(child.cloneNode(true))));
  old.slice(fresh.length).forEach((child) => child.remove());
}

async function ask() {
  const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_LIMIT_MS) });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  document.title = page.title;
  follow(document.body, page.body);
}

async function refresh() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    await ask();
    pause = EVERY_MS;
    failed = 0;
  } catch {
    pause = Math.min(pause * 2, SLOWEST_MS);
    failed += 1;
    // One answer may be lost on the way.
    if (failed > 1) document.getElementById("away").hidden = false;
  }
  asking = false;
  timer = setTimeout(refresh, pause);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  pause = EVERY_MS;
  refresh();
});
timer = setTimeout(refresh, EVERY_MS);
