// What several views show of stored events.

import { UNREAD, h, panel, pill, quiet, s } from "./dom.js";
import { markShape } from "./overlay.js";
import { AGAIN_MS, pause, request } from "./server.js";

// The width of a list on a screen.
const SMALL_PX = 224;

export const readEvent = (id) => request(`events/${encodeURIComponent(id)}.json`);
export const nameOf = (event) => `${event.words || event.prompt} at ${event.camera}`;
export const judgeAddress = ({ camera, prompt }) => `#judge/${encodeURIComponent(camera)}/${encodeURIComponent(prompt)}`;
export const placeOf = ({ box, point }) => (box ? { box } : point ? { point } : null);
export const smallPicture = ({ picture }, width = SMALL_PX) => picture && `${picture}&width=${width}`;
export const markPill = (mark) => mark && pill(mark === "wrong" ? "bad" : "good", mark);
export const alarm = (why) => why && h("p", { class: "reason", role: "alert" }, why);

const toPlace = (numbers) => (numbers.length === 4 ? { box: numbers } : { point: numbers });

// The event's object, or those of its correction.
export const placesOf = (event) => event.objects?.map(toPlace) ?? [placeOf(event)].filter(Boolean);

// Drawn over a large one: fainter is what else was found, or what was corrected.
export function shapesOf(event) {
  const faint = event.objects ? [placeOf(event)].filter(Boolean) : (event.others ?? []).map(toPlace);
  return overPicture(placesOf(event), faint);
}

function overPicture(clear, faint) {
  const drawn = (places) => places.map((place) => markShape({ prompt: 0, place }));
  return s("svg", { class: "overlay", ...UNREAD }, s("g", { class: "faint" }, drawn(faint)), drawn(clear));
}

// The picture at `source` with what is drawn over it.
export function still(event, source, alt, over) {
  const [width, height] = event.size ?? [16, 9];
  return overlaid(event.picture && h("img", { loading: "lazy", decoding: "async", src: source, alt, width, height }), over);
}

const overlaid = (picture, over) =>
  picture ? h("div", { class: "still" }, picture, over) : h("div", { class: "still empty" }, h("p", {}, "No picture"));

// ---- Small pictures, of which a list has many

// By their addresses. Of the last 1000 pictures that an <img> had, a browser keeps pixels and files; a canvas frees its own.
const canvases = new Map();

// Without words of its own.
export function smallStill(event) {
  return overlaid(event.picture && (canvases.get(event.picture)?.canvas ?? painted(event)), overPicture(placesOf(event), []));
}

function painted({ picture, size: [width, height] }) {
  const canvas = h("canvas", { width: SMALL_PX, height: Math.floor((SMALL_PX * height) / width) });
  const stop = new AbortController();
  canvases.set(picture, { canvas, stop });
  paint(canvas, picture, stop.signal);
  return canvas;
}

// Many wait in the browser and in the daemon.
const PICTURE_LIMIT_MS = 30_000;
const TRIES = 5;

// Tries again where no picture came; after the last time, the next list of other rows begins anew.
async function paint(canvas, picture, stopped) {
  for (let left = TRIES; left > 0; left -= 1) {
    const got = await askPicture(picture, stopped);
    if (stopped.aborted) return got?.close();
    if (got) return canvas.getContext("bitmaprenderer").transferFromImageBitmap(got);
    if (got === null) return canvas.parentElement?.replaceWith(overlaid(null));
    await pause(AGAIN_MS);
    if (stopped.aborted) return;
  }
  canvases.delete(picture);
}

// Its pixels; null if there is none, undefined without an answer in time.
async function askPicture(picture, stopped) {
  try {
    const got = await fetch(smallPicture({ picture }), { signal: AbortSignal.any([stopped, AbortSignal.timeout(PICTURE_LIMIT_MS)]), priority: "low" });
    if (got.ok) return await createImageBitmap(await got.blob());
    return got.status === 404 ? null : undefined;
  } catch (error) {
    // What cannot be decoded.
    return error.name === "InvalidStateError" ? null : undefined;
  }
}

// After a drawing: those that it has no more.
export function freeSmallStills() {
  for (const [picture, { canvas, stop }] of canvases) {
    if (canvas.isConnected) continue;
    stop.abort();
    canvas.width = 0;
    canvases.delete(picture);
  }
}

// Without a history: the lines that switch it on.
export const offer = (toml) =>
  panel("history", "Events are not stored", null,
    h("p", {}, "Without a table ", h("code", {}, "[history]"), ", Spotter keeps no event and no picture on this machine. To see here what happened, add these lines to the configuration and reload it:"),
    h("textarea", { id: "toml", class: "toml", readonly: "", rows: String(toml.split("\n").length), "aria-label": "Lines for the configuration", "data-own": "" }, toml),
    quiet("Pictures are masked like those of this page, and older events are deleted by both limits. ", h("a", { href: "#help/page.md/events" }, "More about events")));
