// The view "Judge": how right the alarms of each prompt are, and, at #judge/CAMERA/PROMPT, those that chance has drawn, one picture at a
// time, until a better min_score can be proposed.

import { h, panel, quiet } from "./dom.js";
import { alarm, judgeAddress, nameOf, offer, shapesOf, still } from "./event_parts.js";
import { counted, number, percentage } from "./format.js";
import { EventMarking, takenBack } from "./marking.js";
import { AGAIN_MS, pause, request } from "./server.js";
import { TimeZone } from "./zone.js";

export const judge = { id: "judge", title: "Judge", needs: "pictures", open, close, stays: (event) => marking.stays(event), render, click, key };

const DRAWN = 20;
const PRELOADED = 2;
// A person needs longer than that to judge a picture.
const SEEN_MS = 300;
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
// What is judged; events before `at` are done.
let batch = { events: [], at: 0 };
let isOpen = false;
let isJudging = false;
let isBusy = false;
// A proposal that is asked about.
let asked = null;
let problem = null;
let said = "";
let focusWanted = null;
let preloaded = [];
let timer;
// The picture that waits until it is seen, and the last one that was.
let unseen = null;
let seen = null;

const marking = new EventMarking({
  changed: () => redraw(), isSeen: (event) => seen === pictureOf(event), marked, corrected: () => (focusWanted = "h-judge"),
});

const current = () => (isJudging ? batch.events[batch.at] : null);
const pictureOf = (event) => `${event.id} ${event.picture}`;

// After a drawing: the picture is seen some time after it has loaded, or has failed.
async function watchPicture() {
  const shown = current() && pictureOf(current());
  if (shown === unseen || shown === seen) return;
  unseen = shown;
  seen = null;
  if (shown === null) return;
  await document.querySelector(".judged img")?.decode().catch(() => {});
  await pause(SEEN_MS);
  if (unseen !== shown) return;
  unseen = null;
  seen = shown;
  redraw();
}

// ---- The daemon

function chosenOf(argument) {
  const [camera, prompt] = (argument ?? "").split("/").map(decodeURIComponent);
  return prompt ? { camera, prompt } : null;
}

async function read() {
  clearTimeout(timer);
  const of = chosen;
  try {
    const found = await request(of ? `judge.json?${new URLSearchParams(of)}` : "judge.json", undefined, FIGURES_MS);
    if (of === chosen) accept(found);
  } catch (error) {
    if (of === chosen && isOpen) {
      readProblem = `${error.message}.`;
      timer = setTimeout(read, AGAIN_MS);
    }
  }
  redraw();
}

function accept(found) {
  const isOther = answer?.is_on && chosen !== null && found.min_score !== answer.min_score;
  if (isOther) said = `${said} The count began again: its min_score is ${found.min_score} now.`.trimStart();
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
  if (of === chosen) isBusy = false;
  redraw();
}

// ---- Judging

function begin() {
  asked = null;
  change("judge/draw", { wanted: DRAWN }, FIGURES_MS, (found) => {
    accept(found);
    if (found.queue.length === 0) {
      said = whyNone(found);
      return;
    }
    batch = { events: found.queue.slice(0, DRAWN), at: 0 };
    isJudging = true;
    focusWanted = "h-judge";
    goTo(0, said);
  });
}

function whyNone({ alarms, judged }) {
  if (alarms === 0) return "No alarm with a picture is stored yet.";
  return judged >= alarms ? "All alarms are judged. Judge again when there are more." : "No alarm is left to judge. The others repeat alarms that were judged, or have no picture.";
}

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
  said = `${counted(batch.events.filter(({ mark }) => mark).length, "picture")} judged.`;
  focusWanted = "h-judge";
  read();
}

function marked(event, values, isUndo) {
  const wasShown = event === current();
  Object.assign(event, values);
  if (isUndo) goBack(event);
  else if (wasShown && event.mark) goTo(batch.at + 1, `Marked ${event.mark}.`);
  redraw();
}

function goBack(event) {
  const at = batch.events.indexOf(event);
  if (at < 0) {
    // Of an earlier batch, another prompt or the view "Events".
    said = takenBack(event, zone);
    return;
  }
  isJudging = true;
  goTo(at, "Mark taken back.");
}

function skip() {
  if (marking.isSending || seen !== pictureOf(current())) return;
  goTo(batch.at + 1, "Skipped.");
  redraw();
}

// ---- What is shown

function render(status) {
  mayMark = status.visitor === "logged_in";
  queueMicrotask(settle);
  return [h("div", { class: "history judge", "aria-busy": isBusy && "true" }, alarm(readProblem), alarm(problem), content(status), asked && asking())];
}

function settle() {
  watchPicture();
  if (focusWanted === null || isBusy || answer === null) return;
  const element = document.getElementById(focusWanted);
  focusWanted = null;
  element?.focus({ preventScroll: true });
  element?.closest(".panel, .question")?.scrollIntoView({ block: element.id === "h-judge" ? "start" : "nearest" });
}

function content(status) {
  if (answer === null) return readProblem === null ? quiet("Reading the marks") : chosen && h("p", { class: "buttons" }, allPrompts());
  if (!answer.is_on) return offer(answer.toml);
  if (chosen === null) return list();
  return current() ? question(current()) : figures(status);
}

const allPrompts = () => h("a", { class: "button", href: "#judge" }, "All prompts");

function list() {
  const { prompts } = answer;
  return panel("judge", "How right are the alarms?", null,
    quiet("Judge alarms that chance draws: then Spotter says how many are right, and which ", h("code", {}, "min_score"), " is better. ", h("a", { href: "#help/page.md/judge" }, "More about judging")),
    prompts.length === 0 && quiet("No prompt of a camera here finds objects."),
    h("ul", { class: "prompts" }, prompts.map((one) => h("li", {},
      h("a", { href: judgeAddress(one) },
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
      allPrompts()),
    h("p", { role: "status" }, said),
    alarm(marking.problem),
    alarms === 0 && quiet("No alarm of this prompt is stored yet, as it is configured now."),
    h("div", { class: "sentences" }, sentences.map((sentence) => h("p", {}, inMarks(sentence)))),
    mayMark
      ? h("p", { class: "buttons" },
        h("button", { type: "button", id: "judge-begin", class: "main", "data-do": "begin", "aria-disabled": (isBusy || alarms + waiting === 0) && "true" }, isBusy ? "Drawing…" : `Judge ${DRAWN}`),
        uses.map((proposal) => h("button", { type: "button", id: `use-${proposal.target_percent}`, "data-do": "ask", "data-target": proposal.target_percent },
          `Use ${proposal.min_score}${uses.length > 1 ? `, for ${proposal.target_percent} of 100` : ""}`)),
        marking.canUndo && h("div", { class: "marks" }, marking.undoButton()))
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
        h("span", { role: "status" }, h("span", { class: /^(Mark of|The count)/.test(said) ? "quiet" : "unseen" }, `${said} `), `${batch.at + 1} of ${batch.events.length}`), " ",
        h("button", { type: "button", id: "judge-stop", "data-do": "stop" }, "Stop"))),
    stage,
    h("p", { class: "quiet" }, near && h("b", {}, "below min_score: no alarm · "), `${event.camera} · ${when} · ${percentage(event.top_score)}`),
    marking.render(event, h("button", { type: "button", id: "judge-skip", "data-do": "skip", "aria-disabled": seen !== pictureOf(event) && "true" }, "Skip ", h("kbd", {}, "S"))));
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
  change("judge/use", { target_percent, min_score }, COMMAND_MS, ({ warning = null }) => {
    problem = warning;
    answer = { ...answer, min_score };
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
  stop: () => {
    if (marking.isSending) return;
    end();
    redraw();
  },
  ask: ({ target }) => {
    asked = answer.proposals.find((proposal) => String(proposal.target_percent) === target);
    focusWanted = "use-yes";
    redraw();
  },
  use,
  leave: leaveQuestion,
};

function click(event) {
  const { target, detail } = event;
  if (target.id === "toml") target.select();
  const control = target.closest?.("[data-do]");
  // A double click would skip what has not been seen.
  if (control) detail > 1 || ACTIONS[control.dataset.do](control.dataset, control);
  else marking.click(event, current());
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
  chosen = chosenOf(argument);
  isOpen = true;
  focusWanted = chosen && "h-judge";
  read();
}

function close() {
  clearTimeout(timer);
  isOpen = isJudging = isBusy = false;
  chosen = answer = null;
  batch = { events: [], at: 0 };
  preloaded = [];
  asked = problem = readProblem = null;
  said = "";
  marking.leave();
}
