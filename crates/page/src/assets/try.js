// The view "Try": words on the frame of a camera now, or on a picture of one's own, one answer beside another; and what makes a
// prompt of them. Answers and words are texts of others: text nodes alone.

import { copied, h, panel, quiet } from "./dom.js";
import { counted, millis, two } from "./format.js";
import { overlay, short } from "./overlay.js";
import { RegionBox } from "./region.js";
import { request } from "./server.js";
import { ContactSheet, LAST_EVENTS } from "./sheet.js";

const KINDS = {
  detect: ["Boxes", "person"],
  point: ["Points", "person"],
  query: ["A question", "Is the gate open?"],
  segment: ["Outlines", "person"],
};
const FILE_MAX_BYTES = 10_000_000;
// A model on a processor may write for minutes.
const ANSWER_MS = 10 * 60_000;
// The daemon replies within 45 s.
const COMMAND_MS = 60_000;
const SCORES_MAX = 40;
const NAME = /^[a-z0-9_-]{1,32}$/;
const NOTHING_TRIED = { result: null, error: null, saved: null, confirms: false };

const state = {
  camera: null,
  // A picture of the visitor: its address here, its data URL and its name.
  image: null,
  // What the camera showed at this number of requests for it.
  preview: 0,
  isPreviewLost: false,
  prompts: [],
  rateHz: null,
  prompt: "",
  asks: [{ kind: "detect", words: "" }, { kind: "detect", words: "" }],
  // "" | "words" | "whole": what the second answer is about.
  beside: "",
  minScore: 0,
  keeps: 0,
  name: "",
  // The words that the model is asked for now, or null.
  asking: null,
  announced: "",
  ...NOTHING_TRIED,
};
let redraw = () => {};
const region = new RegionBox((box) => {
  if (box && state.beside === "") state.beside = "whole";
  if (!box && state.beside === "whole") state.beside = "";
  setField("try-beside", state.beside);
  redraw();
});

const sheet = new ContactSheet(() => redraw());

const field = (id) => document.getElementById(id);
// What a visitor has typed is not replaced by an attribute.
function setField(id, value) {
  const element = field(id);
  if (element) element.value = value;
}

const reasonOf = ({ message, answer }) => {
  const wait = answer?.retry_after_s;
  const text = answer?.error?.text ?? message;
  return `${text[0].toUpperCase()}${text.slice(1)}.${wait ? ` Try again in ${counted(wait, "second")}.` : ""}`;
};

// ---- Pictures

function showImage(file) {
  if (!file) return;
  if (!/^image\/(jpeg|png)$/.test(file.type)) return fail("The picture must be a JPEG or PNG file.");
  if (file.size > FILE_MAX_BYTES) return fail("The picture has more than 10 MB; choose a smaller one.");
  const reader = new FileReader();
  reader.onload = () => {
    forgetImage();
    Object.assign(state, NOTHING_TRIED, { image: { url: URL.createObjectURL(file), data: reader.result, name: file.name }, prompt: "", isPreviewLost: false });
    announce(`Picture ${file.name} chosen.`);
  };
  reader.onerror = () => fail("The browser cannot read the picture.");
  reader.readAsDataURL(file);
}

function forgetImage() {
  if (state.image) URL.revokeObjectURL(state.image.url);
  state.image = null;
}

function forgetResult() {
  if (state.result?.url) URL.revokeObjectURL(state.result.url);
  Object.assign(state, NOTHING_TRIED);
}

function announce(text) {
  state.announced = text;
  redraw();
}

function fail(text) {
  state.error = text;
  redraw();
}

// The frame that was asked about.
function frameUrl(jpeg) {
  const bytes = Uint8Array.from(atob(jpeg), (char) => char.charCodeAt(0));
  return URL.createObjectURL(new Blob([bytes], { type: "image/jpeg" }));
}

const picture = () => {
  if (state.image) return { src: state.image.url, alt: `Picture ${state.image.name}` };
  if (state.result?.url) return { src: state.result.url, alt: `Camera ${state.camera}, the frame of these answers` };
  return { src: `camera/${state.camera}/now.jpg?n=${state.preview}`, alt: `Camera ${state.camera} now` };
};

async function readPrompts() {
  const { camera } = state;
  try {
    const { prompts, rate_hz: rateHz } = await request(`camera/${camera}/prompts.json`);
    if (camera === state.camera) Object.assign(state, { prompts, rateHz });
  } catch (error) {
    if (camera === state.camera) state.error = reasonOf(error);
  }
  redraw();
}

// ---- Asking

function asks() {
  const [first, second] = state.asks.map(({ kind, words }) => ({ kind, words, ...restOf(kind) }));
  const part = region.box ? { region: region.box } : {};
  const all = [{ ...first, ...part }];
  if (state.beside === "words") all.push({ ...second, ...part });
  if (state.beside === "whole" && region.box) all.push(first);
  return all;
}

const chosen = () => state.prompts.find(({ id }) => id === state.prompt);
// What else the chosen prompt has: the model answers by it. Only a question has choices.
function restOf(kind) {
  const { crops, adapter, choices = [] } = chosen() ?? {};
  return { ...(crops && { crops }), ...(adapter && { adapter }), ...(kind === "query" && choices.length > 0 && { choices }) };
}

async function ask() {
  const asked = asks();
  const { image, camera } = state;
  const source = image ? { image: image.data } : { cam: camera };
  // Another picture was chosen meanwhile.
  const isOther = () => image !== state.image || state.asking !== asked;
  Object.assign(state, { asking: asked, error: null, saved: null, confirms: false, keeps: 0 });
  announce("Asking the model…");
  try {
    const answer = await request("try", { ...source, asks: asked }, ANSWER_MS);
    if (isOther()) return;
    forgetResult();
    state.result = { ...answer, asked, url: answer.jpeg && frameUrl(answer.jpeg) };
    if (!state.name) setField("try-name", (state.name = nameOf(asked[0].words)));
    state.announced = answer.answers.map((one, i) => inWords(one, asked[i])).join(" ");
  } catch (error) {
    if (isOther()) return;
    state.error = reasonOf(error);
    state.announced = "";
  } finally {
    if (state.asking === asked) state.asking = null;
    redraw();
  }
}

const title = ({ words, region: part }) => `${words}${part ? ", in the part" : ""}`;

function inWords({ error, objects, text, ms }, asked) {
  if (error) return `${title(asked)}: ${error}.`;
  const found = objects ? `${counted(objects.length, "object")}${objects[0] ? `, best score ${two(objects[0].score)}` : ""}` : text;
  return `${title(asked)}: ${found}, ${millis(ms)}.`;
}

// ---- What becomes of the words

// As a name of a prompt that the camera does not have.
function nameOf(words) {
  const name = words.toLowerCase().normalize("NFD").replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 28);
  const isTaken = (one) => state.prompts.some(({ id }) => id === one);
  let number = 2;
  while (isTaken(`${name}-${number}`)) number += 1;
  return isTaken(name) ? `${name}-${number}` : name;
}

const kept = () => state.result.asked[Math.min(state.keeps, state.result.asked.length - 1)];

// The keys of a prompt in the file.
function keys() {
  const { kind, words, region: part, ...rest } = kept();
  const withScore = kind !== "query" && state.minScore > 0;
  return { [kind]: words, ...(part && { region: part }), ...rest, ...(withScore && { min_score: state.minScore }) };
}

// JSON's texts and numbers are TOML's, but for one character.
const tomlText = (value) =>
  Array.isArray(value) ? `[${value.map(tomlText).join(", ")}]` : JSON.stringify(value).replaceAll("\u007f", "\\u007F");
const lines = () =>
  [`[camera.${state.camera ?? "NAME"}.prompt.${state.name || "NAME"}]`, ...Object.entries(keys()).map(([key, value]) => `${key} = ${tomlText(value)}`)].join("\n");

async function command(body, saved) {
  Object.assign(state, { saved: null, error: null, confirms: false });
  try {
    await request("command", body, COMMAND_MS);
    state.saved = saved;
    await readPrompts();
  } catch (error) {
    state.error = reasonOf(error);
  }
  redraw();
}

function add() {
  if (!NAME.test(state.name)) return fail("A name has 1 to 32 of a-z, 0-9, _ and -.");
  const prompt = { id: state.name, ...keys() };
  command({ op: "prompt_add", cam: state.camera, prompt },
    `Camera ${state.camera} is asked for ${state.name} now, until Spotter restarts. To keep it, copy the lines into the file.`);
}

function changeWords() {
  const body = { op: "set", cam: state.camera, prompt: state.prompt, field: "text", value: kept().words };
  command(body, `Prompt ${state.prompt} has the new words. The file keeps the old ones: change them there too.`);
}

async function copy() {
  announce((await copied(field("try-toml"))) ? "Lines copied." : "Lines selected: copy them with the keys of your browser.");
}

// ---- Drawing

const option = (value, text, current) => h("option", { value, selected: value === current && "" }, text);
const select = (id, label, current, options) =>
  h("label", { for: id }, label, h("select", { id }, options.map(([value, text]) => option(value, text, current))));

function words(index, labels) {
  const { kind } = state.asks[index];
  const kinds = Object.entries(KINDS).map(([id, [text]]) => [id, text]);
  return [
    select(`try-kind-${index}`, labels[0], kind, kinds),
    h("label", { for: `try-words-${index}`, class: "grow" }, labels[1],
      h("input", { id: `try-words-${index}`, required: "", maxlength: 2000, autocomplete: "off", placeholder: KINDS[kind][1], value: state.asks[index].words })),
  ];
}

function form(status) {
  const cameras = status.cameras.map(({ id }) => [id, id]);
  const choices = state.image ? [["", `Picture ${short(state.image.name)}`], ...cameras] : cameras;
  const prompts = [["", "New words"], ...state.prompts.filter(({ kind }) => KINDS[kind]).map(({ id, words }) => [id, `${id}: ${short(words)}`])];
  const beside = [["", "Nothing"], ["words", "Other words"], ...(region.box ? [["whole", "The whole picture"]] : [])];
  return h("form", { id: "try-form", class: "try-form" },
    h("div", { class: "words-row" },
      select("try-camera", "Picture of", state.image ? "" : state.camera, choices),
      h("div", {}, !state.image && state.prompts.length > 0 && select("try-prompt", "Words of", state.prompt, prompts)),
      h("label", { for: "try-file" }, "Or a picture of your own: choose, drop or paste it", h("input", { id: "try-file", type: "file", accept: "image/jpeg,image/png" }))),
    h("div", { class: "words-row" }, words(0, ["Look for", "Words"])),
    h("div", { class: "words-row" },
      select("try-beside", "Compare with", state.beside, beside),
      state.beside === "words" && words(1, ["Look for, beside it", "Other words"])),
    h("div", { class: "buttons" },
      h("button", { class: "main", "aria-disabled": state.asking && "true" }, state.asking ? "Asking…" : "Try"),
      h("button", { type: "button", id: "try-part", "aria-pressed": String(region.box !== null) }, region.box ? "Use the whole picture" : "Draw a part"),
      h("button", { type: "button", id: "try-fresh", hidden: state.image && "" }, "New frame")),
    h("div", {}, region.box && quiet("The model sees the part alone, with all its pixels. Drag on the picture, or move its corners with the arrow keys.")));
}

const isBelow = ({ score }) => score < state.minScore;

function scores({ objects }) {
  if (objects.length === 0) return quiet("Nothing found");
  return h("ol", { class: "scores" },
    objects.slice(0, SCORES_MAX).map((one) => h("li", { class: isBelow(one) && "below" }, two(one.score).toFixed(2), isBelow(one) && h("span", { class: "unseen" }, " below min_score"))),
    objects.length > SCORES_MAX && h("li", {}, `and ${objects.length - SCORES_MAX} more`));
}

function cost({ ms, crops, pixels, tflop, share }) {
  const of = share == null ? null : `${Number((share * 100).toPrecision(2))} % of the box${state.rateHz ? ` at ${two(state.rateHz)} looks/s` : ""}`;
  return [millis(ms), crops && counted(crops, "crop"), pixels && `${pixels[0]} × ${pixels[1]} pixels`, tflop != null && `${Number(tflop.toPrecision(2))} TFLOP`, of]
    .filter(Boolean).join(" · ");
}

function answer(one, asked) {
  if (one.error) return h("p", { class: "wrong" }, `${one.error}.`);
  const left = one.objects?.filter((object) => !isBelow(object)).length;
  return h("div", { class: "answer" },
    one.objects
      ? [h("p", {}, h("b", {}, counted(one.objects.length, "object")), one.objects.length > 0 && state.minScore > 0 && `, ${left} at min_score ${state.minScore} or more`), scores(one)]
      : h("p", {}, h("b", {}, one.text || "(an empty answer)"), " ", h("span", { class: "quiet" }, `score ${two(one.score).toFixed(2)}`)),
    one.truncated && quiet("The answer was cut off at its limit."),
    h("p", { class: "quiet" }, cost(one)));
}

// What was found, in the places of the whole picture.
function marks(one, index) {
  const found = (one?.objects ?? []).filter((object) => object.box || object.point).map(({ box, point, polygons, score }) => ({
    prompt: index, score, polygon: polygons?.length ? polygons : undefined, place: box ? { box } : { point },
  }));
  const words = state.result.asked.map(({ words: id }) => ({ id, lines: {} }));
  return overlay({ prompts: words, look: { size: state.result.size, found } });
}

function figure(index, isEditable) {
  const [one, asked] = [state.result?.answers[index], state.result?.asked[index]];
  const { src, alt } = picture();
  const [width, height] = state.result?.size ?? [16, 9];
  return h("figure", { class: "tried", id: `tried-${index}` },
    h("div", { class: "still" },
      h("img", { src, alt, width, height, id: `try-picture-${index}` }),
      h("div", { class: "layer" }, one && marks(one, index)),
      isEditable && region.shown(),
      h("p", { class: "lost", hidden: state.isPreviewLost && isEditable ? null : "" }, state.image ? "The browser cannot show this picture." : "No picture: the camera sends none now. The view Now says why.")),
    h("figcaption", {}, asked && h("h3", {}, title(asked)), one && answer(one, asked)));
}

function sizeNote() {
  const { size, camera_size: full, asked } = state.result ?? {};
  if (!size || full[0] === size[0] || !asked.some(({ region: part }) => part)) return null;
  return quiet(`The frames of ${state.camera} are scaled to ${size[0]} × ${size[1]} pixels now. With a prompt that has a region they come in ${full[0]} × ${full[1]}, and the part shows more than here.`);
}

function keep(status) {
  const { result } = state;
  if (!result || state.image || result.answers.every(({ error }) => error)) return null;
  const mayChange = status.visitor === "logged_in";
  const prompt = chosen();
  const isOther = prompt && prompt.kind === kept().kind && prompt.words !== kept().words;
  const which = result.asked.map((asked, i) => [String(i), title(asked)]);
  return panel("keep", "Keep these words", null,
    h("div", { class: "words-row" },
      h("div", {}, which.length > 1 && select("try-keeps", "Words", String(state.keeps), which)),
      h("label", { for: "try-name" }, "Name of the prompt", h("input", { id: "try-name", value: state.name, autocomplete: "off", maxlength: 32 })),
      h("label", { for: "try-score" }, "min_score", h("input", { id: "try-score", type: "number", value: state.minScore, min: 0, max: 1, step: 0.05 }))),
    h("label", { for: "try-toml" }, "Lines for the file", h("textarea", { id: "try-toml", readonly: "", rows: 5, spellcheck: "false" }, lines())),
    h("div", { class: "buttons" },
      h("button", { type: "button", id: "try-copy" }, "Copy TOML"),
      mayChange && h("button", { type: "button", id: "try-add", class: "main" }, `Add to ${state.camera}`),
      mayChange && isOther && !state.confirms && h("button", { type: "button", id: "try-change" }, `Change ${prompt.id}…`)),
    h("div", {}, mayChange && isOther && state.confirms && lossOf(prompt)),
    quiet(mayChange
      ? "A prompt that is added here is asked until Spotter restarts. The lines in the file keep it."
      : status.has_login ? "Log in above to add it here." : ["To add it here, set ", h("code", {}, "http.tokens"), " and log in."]));
}

// The stored pictures of the camera's events.
function events() {
  if (state.image || !state.asks[0].words.trim()) return null;
  const prompt = chosen();
  return panel("events", "On stored events", null,
    quiet("Asks for the words above on the pictures that Spotter has stored, one after the other."),
    h("div", { class: "buttons" },
      h("button", { type: "button", id: "try-events", "aria-disabled": sheet.isRunning && "true" }, `Last ${LAST_EVENTS} of ${state.camera}`),
      prompt && h("button", { type: "button", id: "try-judged", "aria-disabled": sheet.isRunning && "true" }, `Judged ones of ${prompt.id}`),
      h("button", { type: "button", id: "try-stop", hidden: sheet.isRunning ? null : "" }, "Stop")),
    h("div", { id: "sheet" }, sheet.render(state.minScore)));
}

// Said before the words change.
const lossOf = ({ id, words }) =>
  h("div", { class: "loss", role: "alert" },
    h("p", {}, `“${words}” becomes “${kept().words}”. The tracks and open events of ${id} end, and what is marked right or wrong is about the old words: a new count begins.`),
    h("div", { class: "buttons" },
      h("button", { type: "button", id: "try-confirm", class: "main" }, "Change the words"),
      h("button", { type: "button", id: "try-leave" }, "Leave them")));

function render(status) {
  if (!status.cameras.some(({ id }) => id === state.camera)) return panel("try", "Try", null, h("p", {}, `There is no camera ${state.camera ?? ""} here.`));
  const hasSecond = state.result?.answers.length > 1;
  return [
    h("section", { class: "panel try", "aria-labelledby": "h-try" },
      h("div", { class: "title" }, h("h2", { id: "h-try" }, "Try words")),
      form(status),
      h("p", { class: "unseen", role: "status" }, state.announced),
      h("div", { role: "alert" }, state.error && h("p", { class: "wrong" }, state.error)),
      h("div", { class: hasSecond ? "pair" : "single" }, figure(0, true), hasSecond && figure(1, false)),
      h("div", {}, sizeNote())),
    h("div", { class: "try wide" }, keep(status), h("p", { role: "status" }, state.saved), events()),
  ];
}

// ---- What the visitor does

function choosePrompt(id) {
  state.prompt = id;
  const prompt = chosen();
  if (!prompt) return redraw();
  Object.assign(state.asks[0], { kind: prompt.kind, words: prompt.words });
  Object.assign(state, { minScore: prompt.min_score, name: "" });
  setField("try-words-0", prompt.words);
  setField("try-kind-0", prompt.kind);
  setField("try-score", prompt.min_score);
  setField("try-name", "");
  region.set(prompt.region);
}

function chooseCamera(id) {
  if (id === "") return;
  forgetImage();
  // The camera of the address is opened.
  if (location.hash === `#try/${id}`) openCamera(id);
  else location.hash = `#try/${id}`;
}

// This is called while the page is drawn.
function forgetPart() {
  region.clear();
  if (state.beside === "whole") state.beside = "";
}

function openCamera(id) {
  if (id !== state.camera) forgetPart();
  forgetResult();
  sheet.clear();
  Object.assign(state, { camera: id, prompts: [], prompt: "", asking: null, isPreviewLost: false, preview: state.preview + 1 });
  if (id !== null) readPrompts();
}

const FIELDS = {
  "try-words-0": (value) => (state.asks[0].words = value),
  "try-words-1": (value) => (state.asks[1].words = value),
  "try-name": (value) => (state.name = value.trim()),
  "try-score": (value) => (state.minScore = Math.min(Math.max(Number(value) || 0, 0), 1)),
};
const CHOICES = {
  "try-camera": chooseCamera,
  "try-prompt": choosePrompt,
  "try-kind-0": (value) => (state.asks[0].kind = value),
  "try-kind-1": (value) => (state.asks[1].kind = value),
  "try-beside": (value) => (state.beside = value),
  "try-keeps": (value) => (state.keeps = Number(value)),
};
const BUTTONS = {
  "try-part": () => (region.box ? region.set(null) : region.begin()),
  "try-fresh": () => (forgetResult(), (state.preview += 1), (state.isPreviewLost = false)),
  "try-copy": copy,
  "try-add": add,
  "try-change": () => (state.confirms = true),
  "try-confirm": changeWords,
  "try-leave": () => (state.confirms = false),
  "try-events": () => !sheet.isRunning && sheet.start(state.camera, asks()[0]),
  "try-judged": () => !sheet.isRunning && sheet.start(state.camera, asks()[0], chosen()),
  "try-stop": () => sheet.stop(),
};

const pasted = ({ clipboardData }) => showImage([...(clipboardData?.files ?? [])].find(({ type }) => type.startsWith("image/")));
const dragged = (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault();
function dropped(event) {
  if (!event.dataTransfer?.files.length) return;
  event.preventDefault();
  showImage(event.dataTransfer.files[0]);
}
const loads = (isLost) => ({ target }) => {
  if (target.id !== "try-picture-0" || state.isPreviewLost === isLost) return;
  state.isPreviewLost = isLost;
  redraw();
};
const LISTENERS = [["paste", pasted], ["dragover", dragged], ["drop", dropped], ["load", loads(false)], ["error", loads(true)]];

export const tryWords = {
  id: "try",
  title: "Try",
  needs: "pictures",
  open(argument, draw) {
    redraw = draw;
    for (const [kind, listener] of LISTENERS) document.addEventListener(kind, listener, true);
    openCamera(argument ?? state.camera);
  },
  close() {
    sheet.stop();
    for (const [kind, listener] of LISTENERS) document.removeEventListener(kind, listener, true);
  },
  render(status) {
    // Without one in the address, the first.
    if (state.camera === null && status.cameras.length > 0) openCamera(status.cameras[0].id);
    return render(status);
  },
  input({ target }) {
    if (!FIELDS[target.id]) return;
    FIELDS[target.id](target.value);
    redraw();
  },
  change({ target }) {
    if (target.id === "try-file") showImage(target.files[0]);
    else if (CHOICES[target.id]) CHOICES[target.id](target.value);
    else return;
    redraw();
  },
  click({ target }) {
    const button = target.closest("button");
    if (!button || !BUTTONS[button.id]) return;
    BUTTONS[button.id]();
    redraw();
  },
  submit() {
    if (state.asking === null) ask();
  },
};
