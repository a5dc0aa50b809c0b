// Words tried on stored pictures of events, one after the other; and which verdicts they would keep.

import { h, quiet } from "./dom.js";
import { placesOf, smallPicture } from "./event_parts.js";
import { counted, two } from "./format.js";
import { overlay } from "./overlay.js";
import { area, isIn } from "./region.js";
import { pause, request } from "./server.js";
import { TimeZone } from "./zone.js";

export const LAST_EVENTS = 20;
// Of each mark.
const JUDGED_MAX = 50;
const MARKS = ["right", "corrected", "wrong"];
// A tile has the width of a phone at most.
const TILE_PX = 640;
// While the cameras need the engine, a picture is asked about again.
const TRIES = 6;
const OVERLAP_MIN = 0.5;

const common = (a, b) => [Math.max(a[0], b[0]), Math.max(a[1], b[1]), Math.min(a[2], b[2]), Math.min(a[3], b[3])];
// The share of both boxes together that is in both.
function overlapOf(a, b) {
  const shared = area(common(a, b));
  return shared / (area(a) + area(b) - shared || 1);
}

// Whether an object of an answer is at a box or point.
function isAt(object, { box, point }) {
  if (box) return object.box ? overlapOf(object.box, box) >= OVERLAP_MIN : !object.point || isIn(object.point, box);
  return !object.box || isIn(point, object.box);
}

// Whether an object of an answer, with this score at least, is the object of the event, or one of its correction.
export function isFound(event, { objects = [] }, minScore) {
  const counted = objects.filter(({ score }) => score >= minScore);
  const places = placesOf(event);
  return counted.some((object) => places.length === 0 || places.some((place) => isAt(object, place)));
}

// Of judged events with answers, those that stay right and those wrong ones that would not have come; null without any.
export function verdicts(events, answers, minScore) {
  // A text is no object.
  const judged = events.filter(({ id, mark }) => mark && answers.get(id)?.objects);
  if (judged.length === 0) return null;
  const [right, wrong] = [true, false].map((isRight) => judged.filter(({ mark }) => (mark !== "wrong") === isRight));
  const found = (of) => of.filter((event) => isFound(event, answers.get(event.id), minScore)).length;
  return { right: right.length, kept: found(right), wrong: wrong.length, gone: wrong.length - found(wrong) };
}

// Repeats with the same verdict are one row of a list.
const queries = (camera, prompt) =>
  prompt ? MARKS.map((mark) => ({ camera, prompt: prompt.id, mark, limit: JUDGED_MAX })) : [{ camera, limit: LAST_EVENTS }];

export class ContactSheet {
  constructor(changed) {
    this.changed = changed;
    this.clear();
  }

  clear() {
    // What runs for an earlier sheet ends with its picture.
    Object.assign(this, { run: null, events: [], answers: new Map(), note: null, toml: null, asked: null, zone: null });
  }

  // `prompt`: the judged events of this prompt, about the words that it has; without it, the last events of the camera.
  async start(camera, ask, prompt) {
    this.clear();
    const run = {};
    Object.assign(this, { run, asked: ask });
    this.changed();
    try {
      const listed = await Promise.all(queries(camera, prompt).map((query) => request(`events.json?${new URLSearchParams(query)}`)));
      if (run !== this.run) return;
      const [{ is_on: isOn, time_zone: zone, offset_min: offset, toml }] = listed;
      const events = listed.flatMap((one) => one.events ?? []).filter(({ picture, words }) => picture && (!prompt || words === prompt.words));
      if (isOn) this.zone = new TimeZone(zone, offset);
      if (!isOn) this.toml = toml;
      else await this.askAll(run, camera, ask, events);
    } catch (error) {
      if (run === this.run) this.note = `${error.message}.`;
    }
    if (run !== this.run) return;
    this.run = null;
    this.changed();
  }

  async askAll(run, camera, ask, events) {
    this.events = events;
    if (events.length === 0) this.note = "No such events are stored with their pictures.";
    for (const { id } of events) {
      const answer = await this.ask(run, { cam: camera, event: id, asks: [ask] });
      if (run !== this.run) return;
      this.answers.set(id, answer);
      this.changed();
    }
  }

  async ask(run, body) {
    for (let left = TRIES; ; left -= 1) {
      try {
        const { answers, size } = await request("try", body, 10 * 60_000);
        return { ...answers[0], size };
      } catch ({ message, answer }) {
        if (left === 0 || run !== this.run || !answer?.retry_after_s) return { error: message };
        this.note = "The cameras need the engine; waiting for room.";
        this.changed();
        await pause(answer.retry_after_s * 1000);
        this.note = null;
      }
    }
  }

  stop() {
    this.run = null;
    this.changed();
  }

  get isRunning() {
    return this.run !== null;
  }

  summary(minScore) {
    const done = this.events.filter(({ id }) => this.answers.has(id));
    if (done.length === 0) return null;
    const asked = this.isRunning ? `${done.length} of ${this.events.length} asked. ` : "";
    const withObjects = done.filter(({ id }) => this.answers.get(id).objects);
    if (withObjects.length === 0) return `${asked}${counted(done.length, "answer")}.`;
    const found = withObjects.filter((event) => isFound({}, this.answers.get(event.id), minScore)).length;
    const judged = verdicts(this.events, this.answers, minScore);
    const kept = judged && ` ${judged.kept} of ${judged.right} right ones found, ${judged.gone} of ${judged.wrong} wrong ones gone.`;
    return `${asked}Something found in ${found} of ${counted(withObjects.length, "picture")}.${kept ?? ""}`;
  }

  // In the zone of the box.
  timeOf(ms) {
    const zone = this.zone ?? new TimeZone("UTC", 0);
    return `${zone.minute(ms)} ${zone.name}`;
  }

  render(minScore) {
    return [
      h("p", { role: "status" }, this.isRunning && this.events.length === 0 ? "Reading the events…" : this.summary(minScore)),
      this.note && quiet(this.note),
      this.toml && [quiet("No events are stored. With these lines in the file, Spotter keeps them with their pictures:"), h("pre", {}, this.toml)],
      h("ul", { class: "sheet" }, this.events.map((event) => this.tile(event, minScore))),
    ];
  }

  tile(event, minScore) {
    const answer = this.answers.get(event.id);
    const { id, prompt, start_ms: start, mark, size } = event;
    const marks = (answer?.objects ?? []).map(({ box, point, polygons, score }) => ({
      prompt: 0, score, polygon: polygons?.length ? polygons : undefined, place: box ? { box } : { point },
    }));
    const best = answer?.objects?.[0];
    const words = !answer ? "…" : answer.error ?? answer.text ?? (best ? `${counted(answer.objects.length, "object")}, best ${two(best.score).toFixed(2)}` : "nothing found");
    const isLow = answer?.objects && !isFound({}, answer, minScore);
    return h("li", { id: `sheet-${id}` },
      h("div", { class: "still" },
        h("img", { src: smallPicture(event, TILE_PX), alt: `Event of ${prompt}, ${this.timeOf(start)}`, width: size[0], height: size[1], loading: "lazy" }),
        h("div", { class: "layer" }, answer && overlay({ prompts: [{ id: this.asked.words, lines: {} }], look: { size, found: marks } }))),
      h("p", {}, h("b", { class: isLow && "quiet" }, words)),
      h("p", { class: "quiet" }, `${prompt} · ${this.timeOf(start)}${mark ? ` · ${mark}` : ""}`));
  }
}
