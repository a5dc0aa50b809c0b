// The overall state, which every view shows.

import { h, pill } from "./dom.js";

export const ENGINE_STATES = { runs: ["good", "running"], opens: ["busy", "opening"], ended: ["bad", "failed"] };

// Cameras and webhooks that do not work, and how many things do not.
export function troubles({ cameras, webhooks = [], broker, fleet }) {
  const isBad = (one) => one?.mood === "bad";
  const [troubled, failing] = [cameras.filter(isBad), webhooks.filter(isBad)];
  return { troubled, failing, count: troubled.length + failing.length + [broker, fleet].filter(isBad).length };
}

// The overall state in one sentence. Screen readers read it aloud when it changes, so it contains no running number.
export function verdict(status) {
  const { cameras, engines, broker, fleet, config } = status;
  const { troubled, failing } = troubles(status);
  const good = cameras.filter((camera) => camera.mood === "good").length;
  const wanted = cameras.filter((camera) => camera.mood !== "off").length;
  const has = (state) => engines.some((engine) => engine.state === state);
  const isBad = troubled.length > 0 || has("ended") || broker.mood === "bad";
  const isGood = good === wanted && !has("opens") && broker.mood === "good";
  const links = troubled.map(({ id }, i) => [i > 0 && ", ", h("a", { href: `#cam-${id}` }, id)]);
  return h("p", { class: "verdict", role: "status", "aria-live": "polite" },
    pill(isBad ? "bad" : isGood ? "good" : "busy", streaming(good, wanted, cameras.length)),
    " ", pill(broker.mood, `broker ${broker.state}`),
    engines.filter((engine) => engine.state !== "runs").map(({ device, state }) => {
      const [mood, word] = ENGINE_STATES[state];
      return [" ", pill(mood, `engine ${device} ${word}`)];
    }),
    fleet?.mood === "bad" && [" ", pill("bad", `fleet ${fleet.name} incomplete`)],
    failing.map((webhook) => [" ", pill("bad", `webhook ${webhook.name} ${webhook.state}`)]),
    config.errors.length > 0 && [" ", pill("bad", "new configuration rejected")],
    links.length > 0 && h("span", { class: "who" }, "Check ", links));
}

function streaming(good, wanted, all) {
  if (all === 0) return "no cameras";
  if (wanted === 0) return "all cameras off";
  const off = all > wanted ? `, ${all - wanted} off` : "";
  if (wanted === 1) return `the camera is ${good === 1 ? "" : "not "}streaming${off}`;
  return (good === wanted ? `all ${wanted} cameras streaming` : `${good} of ${wanted} cameras streaming`) + off;
}
