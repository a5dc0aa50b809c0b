// The view "Now": cameras, engines, broker and configuration at this moment.

import { UNREAD, chip, classes, facts, figure, h, panel, part, pill, quiet, reason, s, sums, unseen } from "./dom.js";
import { ago, clockTime, counted, duration, known, machineTime, millis, number, sum } from "./format.js";
import { inline } from "./help.js";
import { ink, overlay } from "./overlay.js";
import { latency, timeline } from "./plots.js";
import { ENGINE_STATES } from "./verdict.js";

const CAMERA_STATES = {
  waiting_keyframe: "waiting for a key frame",
  auth_failed: "login refused",
  unsupported: "not supported",
};


// ---- A camera's card

// The picture that is shown may be a second older than the newest answers.
const SAME_LOOK_MS = 1500;
// A look is old when it is older than this, and its picture says so.
const OLD_MS = 60_000;

function card(camera, status) {
  const { id, mood, look, frames, triggers = [] } = camera;
  const active = triggers.filter((trigger) => trigger.active).map((trigger) => trigger.id);
  const waits = mood === "good" && triggers.length > 0 && active.length === 0;
  const state = waits ? "waiting for a trigger" : CAMERA_STATES[camera.state] ?? camera.state.replaceAll("_", " ");
  return h("article", { class: "card", id: `cam-${id}`, "aria-labelledby": `h-${id}` },
    h("header", {}, h("h3", { id: `h-${id}` }, id), pill(mood, state)),
    look ? picture(camera, status.visitor) : h("div", { class: "still empty" }, h("p", {}, "No look yet")),
    h("div", { class: "body" },
      reason(camera),
      aspect(camera),
      active.length > 0 && quiet(`Looked at because of ${active.join(", ")}`),
      answers(camera),
      latency(camera.latency, status.stages),
      losses(frames, camera.stream),
      // By its id, it and the details stay where something comes or goes before them.
      h("p", { id: `links-${id}`, class: "links" }, [["draw", "Draw"], ["try", "Try"]].map(([view, title]) => h("a", { href: `#${view}/${id}` }, title, unseen(` ${id}`)))),
      details(camera, status)));
}

// Shapes are shares of the picture: of another form, it has them in other places.
function aspect({ id, drawn_size: drawn, stream: { size } }) {
  if (!drawn || !size) return null;
  return h("p", { class: "reason" }, `The stream is ${size.join(" × ")} now; the shapes were drawn on ${drawn.join(" × ")}. Nothing moves by itself: `,
    h("a", { href: `#draw/${id}` }, "look whether they are in their places"), ".");
}

// The address of the last picture that was in view.
const pictureOf = new Map();

const noPicture = (visitor) =>
  visitor === "stranger" ? "Pictures are hidden" : "No picture yet; one follows within a second of the next look";

function picture(camera, visitor) {
  const { id, look } = camera;
  const isOld = look.age_ms > OLD_MS;
  if (look.pictured && inView.has(id)) pictureOf.set(id, `camera/${id}.jpg?look=${look.frame}`);
  const image = () => {
    if (!pictureOf.has(id)) return s("svg", { class: "space", viewBox: `0 0 ${look.size[0]} ${look.size[1]}`, ...UNREAD });
    const found = camera.prompts.map((prompt, i) => [look.found.filter((mark) => mark.prompt === i).length, prompt.id]);
    const words = found.filter(([count]) => count > 0).map(([count, name]) => `${count} ${name}`).join(", ") || "nothing found";
    // An image that is not in the document does not load before it is followed.
    return h("img", {
      loading: "lazy",
      src: pictureOf.get(id),
      alt: `Camera ${id} at ${clockTime(look.time_ms)} UTC: ${words}`,
      width: look.size[0],
      height: look.size[1],
      decoding: "async",
    });
  };
  return h("figure", {},
    h("div", { class: classes("still", !look.pictured && "empty", isOld && "old"), "data-camera": id },
      look.pictured ? [image(), overlay(camera)] : h("p", {}, noPicture(visitor))),
    h("figcaption", {},
      isOld && [h("strong", {}, "Old:"), " "],
      h("time", { datetime: machineTime(look.time_ms) }, `${clockTime(look.time_ms)} UTC`), `, ${ago(look.age_ms)}`));
}

function answers({ id, prompts, look }) {
  return h("table", { class: "answers" },
    h("caption", { class: "unseen" }, `Last answers of ${id}`),
    h("thead", { class: "unseen" }, h("tr", {}, ["Prompt", "Answer"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, prompts.map((prompt, i) => answerRow(prompt, i, look?.age_ms ?? 0))));
}

// A prompt that is asked less often than others says how old its answer is.
function answerRow({ id, words, lines, answer }, index, newestMs) {
  const square = s("rect", { class: "line", x: 1.5, y: 1.5, width: 7, height: 7, rx: 1.5 });
  const small = (text) => h("span", { class: "words" }, text);
  const counts = Object.entries(lines).map(([line, ways]) =>
    small(`${line}: ${Object.entries(ways).map(([way, count]) => `${count} ${way}`).join(", ")}`));
  const when = (text) => h("span", { class: "when" }, text);
  const last = () =>
    h("td", { class: classes(answer.count > 0 && "some", answer.text != null && "words") },
      answer.text ?? answer.count ?? "hidden",
      Object.entries(answer.dwell_s).map(([zone, seconds]) => when(`${zone} ${duration(seconds)}`)),
      answer.age_ms > newestMs + SAME_LOOK_MS && when(ago(answer.age_ms)));
  return h("tr", {},
    h("th", { scope: "row" },
      s("svg", { class: `ink ${ink(index)}`, viewBox: "0 0 10 10", ...UNREAD }, square),
      h("span", { class: "name" }, id),
      words !== id && words !== "" && small(words),
      counts),
    answer ? last() : h("td", { class: "none" }, "–", unseen(" no answer yet")));
}

// The frames that an operator may want to act on; all counters are in the details.
function losses(frames, stream) {
  const lost = [["replaced", frames.replaced], ["late", frames.late], ["failed", frames.failed], ["undecoded", stream.frames_late]];
  return h("p", { class: "losses" },
    figure(number(frames.looked), "looks"),
    lost.filter(([, n]) => n > 0).map(([name, n]) => h("span", { class: name }, h("b", {}, number(n)), ` ${name}`)));
}

function details(camera, status) {
  const { id, stream, frames, prompts, latency: minute, triggers = [], since_ms: since } = camera;
  const isFast = stream.note === "faster_than_declared" && stream.fps_declared != null;
  const rate = (fps) => `${fps.toFixed(1)} frames/s${isFast ? `, more than twice the declared ${stream.fps_declared.toFixed(1)}` : ""}`;
  const costs = prompts.filter((prompt) => prompt.cost);
  const costRow = ({ id: prompt, cost }) => [
    prompt,
    `${cost.follows_motion ? "≥ " : ""}${cost.crops}`,
    [
      cost.tflop.toFixed(2),
      cost.unshared_tflop != null && h("span", { class: "more" }, `${cost.unshared_tflop.toFixed(2)} not shared: another adapter`),
    ],
    cost.share == null ? "–" : `${(cost.share * 100).toFixed(1)} %`,
  ];
  return h("details", {},
    h("summary", {}, "Details", unseen(` of ${id}`),
      h("span", { class: "for" },
        h("time", { datetime: machineTime(since), title: `since ${clockTime(since)} UTC` }, `for ${duration((status.time_ms - since) / 1000)}`))),
    facts([
      ["Codec", stream.codec ?? "unknown"],
      ["Size", known(stream.size, ([width, height]) => `${width} × ${height}`)],
      ["Rate", known(stream.fps, rate)],
      ["Transport", stream.transport ?? "unknown"],
      ["Decoder", stream.decoder ?? "unknown"],
      ["Lost packets", number(stream.rtp_lost)],
      ["Packets of other senders", number(stream.rtp_foreign)],
      ["Corrupt frames", number(stream.frames_corrupt)],
      ["Not decoded in time", number(stream.frames_late)],
      ["Reconnects, 1 h", stream.reconnects_1h],
      ["Stalls, 1 h", stream.stalls_1h],
      ["Clock", clock(stream.clock)],
      ...triggers.map((trigger) => ["Trigger", `${trigger.id}: ${counted(trigger.activations, "time")}`]),
    ]),
    costs.length > 0 && sums("Cost of prompts", costs.map(costRow), ["prompt", "crops", "TFLOP", "share"]),
    sums("Frames since the start", [
      ["analysed", number(frames.looked)],
      ["skipped: no prompt was due", number(frames.skipped)],
      ["gated: no motion", number(frames.gated)],
      ["replaced by a newer one", number(frames.replaced)],
      ["late: too old", number(frames.late)],
      ["failed", number(frames.failed)],
      ["waiting or in progress", number(frames.open)],
      ["decoded", number(frames.arrived)],
    ]),
    sums(`Mean of ${counted(minute.messages, "message")} of the last minute`,
      status.stages.map((stage, i) => [[chip(i), stage], millis(minute.mean_ms[i])])));
}

function clock({ trusted, offset_ms, drift_ppm, note }) {
  const signed = (value, digits) => `${value < 0 ? "" : "+"}${value.toFixed(digits)}`;
  if (!trusted) return note == null ? "unknown" : `not trusted: ${note.replaceAll("_", " ")}`;
  return `trusted, ${known(offset_ms, (ms) => `${signed(ms, 0)} ms`)}, drift ${known(drift_ppm, (ppm) => `${signed(ppm, 1)} ppm`)}`;
}

// ---- The view

export const now = { id: "now", title: "Now", needs: "figures", open, close, render };

// Pictures of cameras out of view are not asked for, so that they are not made either.
let inView = new Set();
let watch = null;

function open(_, redraw) {
  watch = new IntersectionObserver((changed) => {
    for (const { target, isIntersecting } of changed) {
      if (isIntersecting) inView.add(target.dataset.camera);
      else inView.delete(target.dataset.camera);
    }
    redraw();
  });
}

function close() {
  watch.disconnect();
  inView = new Set();
}

// What is shown after this drawing.
function watchPictures() {
  for (const still of document.querySelectorAll(".still[data-camera]")) watch?.observe(still);
}

function render(status) {
  queueMicrotask(watchPictures);
  const { node, cameras, engines, broker, config, webhooks = [], api, fleet, troubles = [] } = status;
  return [
    tiles(node, engines),
    troubles.length > 0 && problems(troubles),
    h("section", { id: "cameras", class: "cameras", "aria-labelledby": "h-cameras" },
      h("div", { class: "title" },
        h("h2", { id: "h-cameras" }, "Cameras"),
        h("ul", { class: "legend", "aria-label": "Stages of the latency, from reception to publication" },
          status.stages.map((stage, i) => h("li", {}, chip(i), stage)))),
      h("div", { class: classes("grid", cameras.length === 1 && "one") }, cameras.map((camera) => card(camera, status)))),
    panel("engines", engines.length === 1 ? "Engine" : "Engines", null, engines.map(enginePart)),
    brokerPanel(broker),
    configPanel(config),
    webhooks.length > 0 && panel("webhooks", "Webhooks", null, webhooks.map(webhookPart)),
    api && apiPanel(api),
    fleet && fleetPanel(fleet),
  ];
}

// What is wrong, and once for each kind what to do.
function problems(troubles) {
  const kinds = Map.groupBy(troubles, ({ kind }) => kind);
  const items = [...kinds].map(([kind, all]) =>
    h("li", {},
      all.map(({ text }) => h("p", { class: "reason" }, linked(text))),
      h("p", {}, inline(all[0].advice), " ", h("a", { href: `#help/${all[0].help.replace("#", "/")}` }, `More about “${kind.replaceAll("_", " ")}”`))));
  return panel("problems", "What is wrong and what to do", null, h("ul", { class: "problems" }, items));
}

// The name of a camera is a link to its card.
function linked(text) {
  const [, id, rest] = text.match(/^camera ([^:]+)(:.*)$/) ?? [];
  return id ? ["camera ", h("a", { href: `#cam-${id}` }, id), rest] : text;
}

// The busiest engine says when the box is full.
function tiles(node, engines) {
  const busy = Math.max(0, ...engines.map((engine) => engine.busy_pct));
  const figures = [
    ["Looks per second", known(node.looks_per_s, (hz) => hz.toFixed(1))],
    ["Latency, 95 %", known(node.total_p95_ms, millis)],
    ["Engine busy", `${busy.toFixed(0)} %`],
    ["CPU", known(node.cpu_pct, (pct) => `${pct.toFixed(0)} %`)],
    ["Memory", known(node.rss_mib, (mib) => `${mib.toFixed(0)} MiB`)],
    ["Uptime", duration(node.uptime_s)],
  ];
  return h("dl", { class: "tiles" },
    figures.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: value === "unknown" && "unknown" }, value))),
    h("div", { class: "wide" }, h("dt", {}, "Model"), h("dd", { class: "words" }, node.model)));
}

function enginePart(engine) {
  const { device, state, busy_pct, under_way, bars, span_ms } = engine;
  return part(device, pill(...ENGINE_STATES[state]),
    h("p", { class: "figures" },
      figure(`${busy_pct.toFixed(0)} %`, "busy"), figure(under_way, "in progress"), figure(bars.length, `finished in ${millis(span_ms)}`)),
    bars.length === 0
      ? quiet("No looks in this time")
      : [timeline(engine), h("p", { class: "span", "aria-hidden": "true" }, h("span", {}, ago(span_ms)), h("span", {}, "now"))]);
}

function brokerPanel(broker) {
  const dropped = broker.dropped.filter(([, n]) => n > 0).map(([why, n]) => [why, number(n)]);
  return panel("broker", "Broker", pill(broker.mood, broker.state),
    reason(broker),
    facts([
      ["Address", broker.address],
      ["Topics", broker.topics],
      ["Sent", number(broker.sent)],
      ["Acknowledgement, 95 %", known(broker.puback_p95_ms, millis)],
      ["Events waiting for the broker", number(broker.spooled)],
      ["Dropped", number(sum(broker.dropped.map(([, n]) => n)))],
    ]),
    dropped.length > 0 && sums("Messages dropped since the start", dropped));
}

function configPanel({ hash, at, errors }) {
  const isGood = errors.length === 0;
  return panel("config", "Configuration", pill(isGood ? "good" : "bad", isGood ? "active" : "new version rejected"),
    facts([["Hash", hash], ["Loaded", at]]),
    !isGood && [
      h("p", {}, "The previous configuration stays active. Errors in the new version:"),
      h("ul", { class: "errors" }, errors.map((error) => h("li", {}, error))),
    ]);
}

const webhookPart = (webhook) =>
  part(webhook.name, pill(webhook.mood, webhook.state),
    reason(webhook),
    facts([
      ["Receiver", webhook.address],
      ["Posted", number(webhook.posted)],
      ["Waiting", number(webhook.waiting)],
      ["Repeated requests", number(webhook.retried)],
      ["Refused", number(webhook.refused)],
      ["Dropped", number(webhook.dropped)],
    ]));

const apiPanel = (api) =>
  panel("api", "HTTP API", null,
    facts([
      ["Address", `${api.address}, ${api.tokens === 0 ? "no token needed" : counted(api.tokens, "token")}`],
      ["Requests in progress", number(api.open)],
      ["Answered", number(api.answered)],
      ["Refused", number(api.refused)],
      ["Failed", number(api.failed)],
    ]));

function fleetPanel(fleet) {
  const word = { good: "complete", busy: "joining" }[fleet.mood] ?? "incomplete";
  return panel("fleet", `Fleet ${fleet.name}`, pill(fleet.mood, word),
    reason(fleet),
    facts([
      ["Boxes", number(fleet.nodes.length)],
      ["Cameras watched", number(sum(fleet.nodes.map((node) => node.cameras.length)))],
      ["Cameras without a box", number(fleet.unowned.length)],
      ["Missing looks per second", fleet.missing_hz.toFixed(1)],
    ]),
    fleet.unowned.length > 0 && h("p", {}, `No box has: ${fleet.unowned.join(", ")}.`),
    fleet.nodes.map((node) =>
      part(node.name, pill(node.mood, node.state),
        h("p", { class: "figures" },
          figure(`${node.load_pct.toFixed(0)} %`, `of ${node.capacity_hz.toFixed(1)} looks/s`),
          node.refused > 0 && figure(node.refused, "not possible here"),
          node.labels.length > 0 && h("span", {}, node.labels.join(", "))),
        node.cameras.length === 0
          ? quiet("No cameras")
          : h("details", {}, h("summary", {}, counted(node.cameras.length, "camera")),
            h("p", {}, node.cameras.map((camera, i) => [i > 0 && ", ", h("a", { href: `#draw/${camera}` }, camera)]))))));
}
