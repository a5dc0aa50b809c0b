// The view "Judge": how right the alarms of each prompt are, and, at #judge/CAMERA/PROMPT, those that chance has drawn, one picture at a
// time, until a better min_score can be proposed.

import { h, panel, quiet } from "./dom.js";
import { alarm, nameOf, offer, shapesOf, still } from "./event_parts.js";
import { counted, number, percentage } from "./format.js";
import { EventMarking } from "./marking.js";
import { request } from "./server.js";
import { TimeZone } from "./zone.js";

export const judge = { id: "judge", title: "Judge", needs: "pictures", open, close, render, click, key };

const DRAWN = 20;
const PRELOADED = 2;
// Recorded looks are replayed for the figures.
const FIGURES_MS = 30_000;
// The daemon replies within 45 s.
const COMMAND_MS = 60_000;
const SKIP_KEYS = ["s", "ArrowRight"];

let redraw = () => {};
let mayMark = false;
// { camera, prompt } at the address, null for all of them; what the daemon says about it; and why it was not read.
let chosen = null;
let answer = null;
let readProblem = null;
let zone = new TimeZone("UTC", 0);
// What is judged: { events, at, judged }; events before `at` are done.
let batch = { events: [], at: 0, judged: 0 };
let isJudging = false;
let isBusy = false;
// A proposal that is asked about.
let asked = null;
let problem = null;
let said = "";
let focusWanted = null;
let preloaded = [];

const marking = new EventMarking({ changed: () => redraw(), marked, corrected: () => (focusWanted = "h-judge") });

const current = () => (isJudging ? batch.events[batch.at] : null);

// ---- The daemon

const addressOf = ({ camera, prompt }) => `#judge/${encodeURIComponent(camera)}/${encodeURIComponent(prompt)}`;

function chosenOf(argument) {
  const [camera, prompt] = (argument ?? "").split("/").map(decodeURIComponent);
  return prompt ? { camera, prompt } : null;
}

async function read() {
  const of = chosen;
  try {
    const found = await request(of ? `judge.json?${new URLSearchParams(of)}` : "judge.json", undefined, FIGURES_MS);
    if (of === chosen) accept(found);
  } catch (error) {
    if (of === chosen) readProblem = `${error.message}.`;
  }
  redraw();
}

function accept(found) {
  answer = found;
  readProblem = null;
  if (found.time_zone) zone = new TimeZone(found.time_zone, found.offset_min);
}

// Asks for a change, and shows the answer or why there is none.
async function change(path, body, limitMs, done) {
  if (isBusy) return;
  const of = chosen;
  isBusy = true;
  problem = null;
  said = "";
  redraw();
  try {
    const found = await request(path, { ...chosen, ...body }, limitMs);
    if (of === chosen) done(found);
  } catch (error) {
    if (of === chosen) problem = `${error.message}.`;
  }
  isBusy = false;
  redraw();
}

// ---- Judging

const begin = () =>
  change("judge/draw", { wanted: DRAWN }, FIGURES_MS, (found) => {
    accept(found);
    if (found.queue.length === 0) {
      said = found.alarms === 0 ? "No alarm with a picture is stored yet." : "All alarms with pictures are judged. Judge again when there are more.";
      return;
    }
    batch = { events: found.queue, at: 0, judged: 0 };
    isJudging = true;
    focusWanted = "h-judge";
    goTo(0, "");
  });

function goTo(at, words) {
  batch.at = at;
  said = words;
  marking.leave();
  if (at >= batch.events.length) return end();
  preloaded = batch.events.slice(at + 1, at + 1 + PRELOADED).map(({ picture }) => Object.assign(new Image(), { src: picture }));
}

function end() {
  isJudging = false;
  preloaded = [];
  marking.leave();
  said = `${counted(batch.judged, "picture")} judged.`;
  focusWanted = "h-judge";
  read();
}

function marked(event, values, isUndo) {
  Object.assign(event, values);
  batch.judged += isUndo ? -1 : 1;
  if (isUndo) goBack(event);
  else if (event.mark && isJudging) goTo(batch.at + 1, `Marked ${event.mark}.`);
  redraw();
}

function goBack(event) {
  let at = batch.events.indexOf(event);
  // Of an earlier batch.
  if (at < 0) {
    at = batch.at;
    batch.events.splice(at, 0, event);
  }
  isJudging = true;
  goTo(at, "Mark taken back.");
}

function skip() {
  goTo(batch.at + 1, "Skipped.");
  redraw();
}

// ---- What is shown

function render(status) {
  mayMark = status.visitor === "logged_in";
  queueMicrotask(settle);
  return [h("div", { class: "history judge" }, alarm(readProblem), alarm(problem), content(status), asked && asking())];
}

function settle() {
  if (focusWanted === null || isBusy) return;
  const element = document.getElementById(focusWanted);
  focusWanted = null;
  element?.focus({ preventScroll: true });
  element?.closest(".panel, .question")?.scrollIntoView({ block: element.id === "h-judge" ? "start" : "nearest" });
}

function content(status) {
  if (answer === null) return quiet(readProblem === null && "Reading the marks");
  if (!answer.is_on) return offer(answer.toml);
  if (chosen === null) return list();
  return current() ? question(current()) : figures(status);
}

function list() {
  const { prompts } = answer;
  return panel("judge", "How right are the alarms?", null,
    quiet("Judge alarms that chance draws: then Spotter says how many are right, and which ", h("code", {}, "min_score"), " is better. ", h("a", { href: "#help/page.md/judge" }, "More about judging")),
    prompts.length === 0 && quiet("No prompt of a camera here finds objects."),
    h("ul", { class: "prompts" }, prompts.map((one) => h("li", {},
      h("a", { href: addressOf(one) },
        h("span", { class: "head" }, h("b", {}, one.words), h("span", {}, one.camera), one.prompt !== one.words && h("span", { class: "quiet" }, one.prompt)),
        h("span", { class: "quiet" }, inShort(one)))))));
}

function inShort({ alarms, drawn, judged, right, wrong, waiting }) {
  if (alarms === 0) return "no alarm yet";
  return [
    counted(alarms, "alarm"),
    drawn > 0 ? `${number(judged)} of ${number(drawn)} drawn are judged` : "none judged",
    right + wrong > 0 && `${number(right)} right, ${number(wrong)} wrong`,
    waiting > 0 && `${number(waiting)} to judge`,
  ].filter(Boolean).join(" · ");
}

// Between ** bold, between backticks code.
const inMarks = (sentence) =>
  sentence.split(/(\*\*[^*]+\*\*|`[^`]+`)/).map((part) =>
    part.startsWith("**") ? h("b", {}, part.slice(2, -2)) : part.startsWith("`") ? h("code", {}, part.slice(1, -1)) : part);

function figures(status) {
  const { camera, words, prompt, min_score: score, sentences, proposals, alarms, waiting } = answer;
  const uses = proposals.filter((proposal) => proposal.min_score !== null);
  return h("section", { class: "panel", id: "figures", "aria-labelledby": "h-judge" },
    h("div", { class: "title" },
      h("h2", { id: "h-judge", tabindex: -1 }, `“${words}” at ${camera}`),
      h("a", { class: "button", href: "#judge" }, "All prompts")),
    h("p", { role: "status" }, said),
    alarms === 0 && quiet("No alarm of this prompt is stored yet, as it is configured now."),
    h("div", { class: "sentences" }, sentences.map((sentence) => h("p", {}, inMarks(sentence)))),
    mayMark
      ? h("p", { class: "buttons" },
        h("button", { type: "button", id: "judge-begin", class: "main", "data-do": "begin", "aria-disabled": (isBusy || alarms + waiting === 0) && "true" }, `Judge ${DRAWN}`),
        uses.map((proposal) => h("button", { type: "button", id: `use-${proposal.target_percent}`, "data-do": "ask", "data-target": proposal.target_percent },
          `Use ${proposal.min_score}${uses.length > 1 ? `, for ${proposal.target_percent} of 100` : ""}`)))
      : quiet(status.has_login ? "To judge, log in." : ["To judge here, set ", h("code", {}, "http.tokens"), " and log in."]),
    quiet(`${prompt}, min_score ${score}. ${inShort(answer)}. `, h("a", { href: `#try/${camera}` }, "Try other words")));
}

const article = (words) => (/^(a|an|the|one|any|some)\s/i.test(words) ? "" : /^[aeiou]/i.test(words) ? "an " : "a ");

function question(event) {
  const { start_ms: start, words, near } = event;
  const when = `${zone.day(start)} ${zone.clock(start)}`;
  const alt = `${nameOf(event)}, ${when}`;
  const stage = h("div", { id: `judged-${event.id}`, class: "judged" }, still(event, event.picture, alt, marking.editor ? marking.editor.shown() : shapesOf(event)));
  // All of the picture is seen before it has loaded.
  stage.style.setProperty("--ratio", String(event.size[0] / event.size[1]));
  return h("section", { class: "panel judging", id: "judging", "aria-labelledby": "h-judge" },
    h("div", { class: "title" },
      h("h2", { id: "h-judge", tabindex: -1 }, `Is this ${article(words)}“${words}”?`),
      h("p", { class: "progress" },
        h("span", { role: "status" }, h("span", { class: "unseen" }, `${said} `), `${batch.at + 1} of ${batch.events.length}`), " ",
        h("button", { type: "button", id: "judge-stop", "data-do": "stop" }, "Stop"))),
    stage,
    h("p", { class: "quiet" }, near && h("b", {}, "below min_score: no alarm · "), `${event.camera} · ${when} · ${percentage(event.top_score)}`),
    marking.render(event, h("button", { type: "button", id: "judge-skip", "data-do": "skip" }, "Skip ", h("kbd", {}, "S"))));
}

function asking() {
  const { camera, prompt, min_score: score } = answer;
  return h("div", { id: "question", class: "question calm", role: "alertdialog", "aria-labelledby": "question-words" },
    h("p", { id: "question-words" },
      h("code", {}, "min_score"), ` of ${prompt} at ${camera} becomes `, h("b", {}, asked.min_score), ` instead of ${score}, at once. `,
      `Of the judged alarms, ${asked.right_lost} right and ${asked.wrong_lost} wrong would not have come. The marks stay as labels; a new count begins, which shows whether at least ${asked.target_percent} of 100 are right.`),
    h("p", { class: "buttons" },
      h("button", { type: "button", id: "use-yes", class: "main", "data-do": "use" }, `Use ${asked.min_score}`),
      h("button", { type: "button", id: "use-no", "data-do": "leave" }, `Leave ${score}`)));
}

// ---- What the reader does

function use() {
  const { target_percent, min_score } = asked;
  asked = null;
  change("judge/use", { target_percent, min_score }, COMMAND_MS, () => {
    said = `min_score is ${min_score} now. A new count begins.`;
    focusWanted = "h-judge";
    read();
  });
  redraw();
}

function leaveQuestion() {
  focusWanted = `use-${asked.target_percent}`;
  asked = null;
  redraw();
}

const ACTIONS = {
  begin: (_, control) => control.getAttribute("aria-disabled") !== "true" && begin(),
  skip,
  stop: () => (end(), redraw()),
  ask: ({ target }) => {
    asked = answer.proposals.find((proposal) => String(proposal.target_percent) === target);
    focusWanted = "use-yes";
    redraw();
  },
  use,
  leave: leaveQuestion,
};

function click({ target }) {
  if (target.id === "toml") target.select();
  const control = target.closest?.("[data-do]");
  if (control) ACTIONS[control.dataset.do](control.dataset, control);
  else marking.click(target, current());
}

function key(event) {
  if (asked !== null) return event.key === "Escape" && (leaveQuestion(), true);
  if (!mayMark || chosen === null) return false;
  if (marking.key(event, current())) return true;
  if (!isJudging || marking.editor || event.ctrlKey || event.metaKey || event.altKey) return false;
  if (event.key === "Escape") ACTIONS.stop();
  else if (SKIP_KEYS.includes(event.key)) event.repeat || skip();
  else return false;
  return true;
}

function open(argument, draw) {
  redraw = draw;
  const wanted = chosenOf(argument);
  if (JSON.stringify(wanted) !== JSON.stringify(chosen)) {
    answer = null;
    // Marks of another prompt are taken back there, or in Events.
    marking.steps = [];
  }
  chosen = wanted;
  focusWanted = null;
  read();
}

function close() {
  isJudging = false;
  preloaded = [];
  asked = problem = readProblem = null;
  said = "";
  marking.leave();
}
