// Plots: each has its numbers as text beside it, for screen readers.

import { h, quiet, s, figure } from "./dom.js";
import { ago, counted, millis, sum, two } from "./format.js";
const PLOT = { width: 300, height: 56, lane: 12, lanes: 16 };
// Parts of a look's way through the engine, in the colours of the stages.
const PHASES = [2, 3, 4, 5];

// The smallest of 1, 2, 5, 10, 20 … that is not below `ms`.
export function roundUp(ms) {
  const at = Math.max(ms, 1);
  const decade = 10 ** Math.floor(Math.log10(at));
  return [1, 2, 5, 10].map((step) => step * decade).find((step) => step >= at) ?? at;
}

const plot = (kind, height, label, ...content) =>
  s("svg", { class: kind, role: "img", "aria-label": label, viewBox: `0 0 ${PLOT.width} ${height}`, preserveAspectRatio: "none" }, content);

const gridLine = (kind, x1, y1, x2, y2) => s("line", { class: kind, x1, y1, x2, y2 });

// Columns of mean stage times on one scale that starts at zero. One path for each stage: a page has a hundred of these plots.
export function latency({ p50_ms: p50, p95_ms: p95, mean_ms: means, columns_ms: columns }, stages) {
  if (p50 == null || p95 == null) return quiet("No messages in the last minute");
  const top = roundUp(Math.max(0, ...columns.filter(Boolean).map(sum)));
  const across = PLOT.width / columns.length;
  const tops = columns.map(() => PLOT.height);
  const layer = (name, stage) => {
    const piece = (column, i) => {
      const height = ((column?.[stage] ?? 0) / top) * PLOT.height;
      tops[i] -= height;
      return height < 0.05 ? "" : `M${two(i * across)} ${two(tops[i])}h${across - 1}v${two(height)}h${1 - across}z`;
    };
    const title = s("title", {}, `${name}, mean ${millis(means[stage])}`);
    return s("path", { class: `s${stage}`, d: columns.map(piece).join("") }, title);
  };
  const label = `Latency of the last minute, half of it below ${millis(p50)}, 95 percent below ${millis(p95)}; scale to ${millis(top)}`;
  return h("div", { class: "way" },
    h("p", { class: "figures" }, figure(millis(p50), "median"), figure(millis(p95), "95 %")),
    h("div", { class: "scaled" },
      plot("plot", PLOT.height, label,
        gridLine("grid", 0, PLOT.height / 2, PLOT.width, PLOT.height / 2),
        stages.map(layer),
        gridLine("axis", 0, PLOT.height, PLOT.width, PLOT.height)),
      h("span", { class: "top", "aria-hidden": "true" }, millis(top))),
    h("p", { class: "span", "aria-hidden": "true" }, h("span", {}, "1 min ago"), h("span", {}, "now")));
}

// Looks on their way through an engine, each in the first lane that is free.
export function timeline({ bars, span_ms, device, busy_pct }) {
  const span = Math.max(span_ms, 1);
  const ends = [];
  const looks = bars.toSorted((a, b) => a.marks_ms[0] - b.marks_ms[0]).map(({ camera, marks_ms: marks }) => {
    const free = ends.findIndex((end) => end <= marks[0]);
    const lane = free < 0 ? ends.length : free;
    if (lane === PLOT.lanes) return null;
    ends[lane] = marks[4];
    const x = (ms) => (Math.min(Math.max(ms, 0), span) / span) * PLOT.width;
    return s("g", {},
      s("title", {}, `${camera} ${millis(marks[4] - marks[0])}`),
      PHASES.map((phase, i) => {
        const [from, to] = [x(marks[i]), x(marks[i + 1])];
        const place = { x: two(from), y: lane * PLOT.lane + 1, width: two(to - from), height: PLOT.lane - 2 };
        return to > from && s("rect", { class: `s${phase}`, ...place });
      }));
  });
  const lanes = Math.max(ends.length, 1);
  const height = lanes * PLOT.lane;
  const label = `${counted(bars.length, "look")} in the last ${millis(span)} on ${device}, busy ${busy_pct.toFixed(0)} percent of the time`;
  const quarters = [1, 2, 3].map((quarter) => (quarter * PLOT.width) / 4);
  return plot(`timeline lanes${lanes}`, height, label, quarters.map((x) => gridLine("grid", x, 0, x, height)), looks);
}
