// Zones, lines, masks and regions of a camera, and what the editor does to them: values in, values out, no document.
// Positions are shares of the picture with 4 digits, as in the file. A shape's key is its kind and name: "zone:drive", "mask:0".

export const POINTS_MIN = { zone: 3, mask: 3, line: 2, region: 2 };
const REGION_MIN = 0.01;
const NAME = /^[a-z0-9_-]{1,32}$/;

export const round = (share) => Math.round(Math.min(Math.max(share, 0), 1) * 1e4) / 1e4;
const rounded = ([x, y]) => [round(x), round(y)];

// ---- Paths

// Positive to the right of an edge, negative to its left: y points down.
const side = ([x0, y0], [x1, y1], [x, y]) => (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0);
const between = (a, b, value) => Math.min(a, b) <= value && value <= Math.max(a, b);
const isOn = ([from, to], at) => side(from, to, at) === 0 && between(from[0], to[0], at[0]) && between(from[1], to[1], at[1]);
const cuts = ([from, to], other) => side(from, to, other[0]) * side(from, to, other[1]) < 0;
const hasEnd = (edge, other) => isOn(edge, other[0]) || isOn(edge, other[1]);
const touch = (a, b) => (cuts(a, b) && cuts(b, a)) || hasEnd(a, b) || hasEnd(b, a);

export const edgesOf = (points, isClosed) =>
  points.map((from, i) => [from, points[(i + 1) % points.length]]).slice(0, isClosed ? points.length : -1);

// The rule and the words of the file for a path. `edges` are the two that cross.
export function pathProblem(points, isClosed) {
  const least = isClosed ? POINTS_MIN.zone : POINTS_MIN.line;
  if (points.length < least) return { text: `needs at least ${least} points, has ${points.length}`, edges: [] };
  const edges = edgesOf(points, isClosed);
  for (let first = 0; first < edges.length; first += 1) {
    for (let second = first + 1; second < edges.length; second += 1) {
      const [edge, other] = [edges[first], edges[second]];
      const areNeighbours = second === first + 1 || (isClosed && first === 0 && second === points.length - 1);
      // Those of a line must not be on each other.
      const isWrong = areNeighbours ? !isClosed && (isOn(edge, other[1]) || isOn(other, edge[0])) : touch(edge, other);
      if (isWrong) {
        const text = `edges cross: the ones that start at points ${first + 1} and ${second + 1}; give the points in order`;
        return { text, edges: [first, second] };
      }
    }
  }
  if (!isClosed && points.every(([x, y]) => x === points[0][0] && y === points[0][1]))
    return { text: "has no length; all points are the same", edges: [] };
  if (isClosed && areaOf(points) < Number.EPSILON) return { text: "has no area; all points are on one line", edges: [] };
  return null;
}

const areaOf = (points) => Math.abs(edgesOf(points, true).reduce((area, [[x0, y0], [x1, y1]]) => area + x0 * y1 - y0 * x1, 0));

function isInside(points, [x, y]) {
  const crossed = edgesOf(points, true).filter(([[x0, y0], [x1, y1]]) => y0 <= y !== y1 <= y && x0 + ((y - y0) / (y1 - y0)) * (x1 - x0) > x);
  return crossed.length % 2 === 1;
}

export function distanceTo([[x0, y0], [x1, y1]], [x, y]) {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const along = ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy || 1);
  const part = Math.min(Math.max(along, 0), 1);
  return Math.hypot(x - x0 - part * dx, y - y0 - part * dy);
}

// Of shapes with `points` in pixels, those at a place: what is within `reach` of it or around it, the smallest first.
export function shapesAt(shapes, at, reach) {
  const isHit = ({ points, isClosed }) =>
    (isClosed && isInside(points, at)) || edgesOf(points, isClosed).some((edge) => distanceTo(edge, at) <= reach);
  const size = ({ points, isClosed }) => (isClosed ? areaOf(points) : 0);
  return shapes.filter((shape) => shape.points && isHit(shape)).sort((a, b) => size(a) - size(b));
}

// Where a point is grabbed: itself, or so far inside of the stage that a finger reaches all of its target.
export const grabSpot = ([x, y], [width, height], inset) => [
  Math.min(Math.max(x, inset), Math.max(width - inset, inset)),
  Math.min(Math.max(y, inset), Math.max(height - inset, inset)),
];

// ---- Points of a shape

export const isBox = (shape) => shape.kind === "region";
export const canRemovePoint = (shape) => !isBox(shape) && shape.points.length > POINTS_MIN[shape.kind];

export function withPoint(shape, index, [x, y]) {
  if (!isBox(shape)) return shape.points.map((point, i) => (i === index ? rounded([x, y]) : point));
  // The corner across stays, on its side.
  const [left, top] = [index === 0 || index === 3, index < 2];
  const [acrossX, acrossY] = shape.points[(index + 2) % 4];
  const to = rounded([
    left ? Math.min(x, acrossX - REGION_MIN) : Math.max(x, acrossX + REGION_MIN),
    top ? Math.min(y, acrossY - REGION_MIN) : Math.max(y, acrossY + REGION_MIN),
  ]);
  return cornersOf([Math.min(to[0], acrossX), Math.min(to[1], acrossY), Math.max(to[0], acrossX), Math.max(to[1], acrossY)]);
}

export function moved(points, dx, dy) {
  const shift = (axis, by) => {
    const values = points.map((point) => point[axis]);
    return Math.min(Math.max(by, -Math.min(...values)), 1 - Math.max(...values));
  };
  const [right, down] = [shift(0, dx), shift(1, dy)];
  return points.map(([x, y]) => rounded([x + right, y + down]));
}

export function withMiddle(points, edge) {
  const [[x0, y0], [x1, y1]] = [points[edge], points[(edge + 1) % points.length]];
  return points.toSpliced(edge + 1, 0, rounded([(x0 + x1) / 2, (y0 + y1) / 2]));
}

export const withoutPoint = (points, index) => points.toSpliced(index, 1);

export const cornersOf = ([x0, y0, x1, y1]) => [[x0, y0], [x1, y0], [x1, y1], [x0, y1]];
export function boxAround(points) {
  const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}

// ---- All shapes of a camera

const withoutEmpty = (table) => Object.fromEntries(Object.entries(table).filter(([, value]) => Object.keys(value).length > 0));
const isAbsent = (value) => value == null || (Array.isArray(value) && value.length === 0);
const settings = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => !isAbsent(value)));

// With all tables, and without what says nothing, so that equal shapes are equal values.
export const complete = ({ zone = {}, line = {}, mask = [], prompt = {} }) => ({
  zone,
  line,
  mask,
  prompt: withoutEmpty(Object.fromEntries(Object.entries(prompt).map(([id, values]) => [id, settings(values)]))),
});

const sorted = (value) => {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
};
const text = (value) => JSON.stringify(sorted(value) ?? null);
export const isSame = (a, b) => text(a) === text(b);

const usersOf = ({ prompt }, list, name) => Object.keys(prompt).filter((id) => prompt[id][list]?.includes(name));

// In the order of the list: zones, lines, masks, regions. `isFixed`: only the file changes it.
export function listOf(shapes, fileMask = []) {
  const { zone, line, mask, prompt } = shapes;
  const zones = Object.entries(zone).map(([name, values]) => ({
    key: `zone:${name}`, kind: "zone", name, points: values.polygon, isClosed: true, point: values.point, users: usersOf(shapes, "zones", name),
  }));
  const lines = Object.entries(line).map(([name, { points, directions, point, reset }]) => ({
    key: `line:${name}`, kind: "line", name, points, isClosed: false, directions, point, reset, users: usersOf(shapes, "lines", name),
  }));
  const masks = mask.map((points, i) => ({
    key: `mask:${i}`, kind: "mask", name: `mask ${i + 1}`, points, isClosed: true, isFixed: fileMask.some((fixed) => isSame(fixed, points)), users: [],
  }));
  const regions = Object.entries(prompt).filter(([, values]) => values.region != null).map(([id, { region }]) => ({
    key: `region:${id}`, kind: "region", name: id, users: [id], isClosed: true,
    ...(Array.isArray(region) ? { points: cornersOf(region) } : { points: null, around: region }),
  }));
  return [...zones, ...lines, ...masks, ...regions];
}

export const capital = (words) => words[0].toUpperCase() + words.slice(1);
export const titleOf = ({ kind, name }) => ({ mask: name, region: `the region of ${name}` })[kind] ?? `${kind} ${name}`;

const nameIn = (key) => key.slice(key.indexOf(":") + 1);
const kindIn = (key) => key.slice(0, key.indexOf(":"));
// The values of a kind's table.
const change = (shapes, kind, name, values) => ({ ...shapes, [kind]: { ...shapes[kind], [name]: { ...shapes[kind][name], ...values } } });

export function withPoints(shapes, key, points) {
  const name = nameIn(key);
  switch (kindIn(key)) {
    case "zone": return change(shapes, "zone", name, { polygon: points });
    case "line": return change(shapes, "line", name, { points });
    case "mask": return { ...shapes, mask: shapes.mask.with(Number(name), points) };
    default: return change(shapes, "prompt", name, { region: boxAround(points) });
  }
}

// `point`, `directions` and `reset` of zones and lines; null removes.
export const withValues = (shapes, key, values) => {
  const changed = change(shapes, kindIn(key), nameIn(key), values);
  const table = changed[kindIn(key)];
  return { ...changed, [kindIn(key)]: { ...table, [nameIn(key)]: settings(table[nameIn(key)]) } };
};

const PLAIN = { point: "bottom" };

// The shapes with a new one, and its key. A region belongs to the prompt that it is named by.
export function withNew(shapes, kind, name, points) {
  const key = `${kind}:${kind === "mask" ? shapes.mask.length : name}`;
  switch (kind) {
    case "zone": return { key, shapes: change(shapes, "zone", name, { polygon: points, ...PLAIN }) };
    case "line": return { key, shapes: change(shapes, "line", name, { points, directions: ["in", "out"], ...PLAIN }) };
    case "mask": return { key, shapes: { ...shapes, mask: [...shapes.mask, points] } };
    default: return { key, shapes: withPoints(shapes, key, points) };
  }
}

// Every prompt with its lists and region, changed; what becomes empty goes.
function withPrompts(shapes, changed) {
  const prompt = Object.fromEntries(Object.entries(shapes.prompt).map(([id, values]) => [id, settings(changed(values, id))]));
  return { ...shapes, prompt: withoutEmpty(prompt) };
}

export function without(shapes, key) {
  const [kind, name] = [kindIn(key), nameIn(key)];
  if (kind === "mask") return { ...shapes, mask: shapes.mask.toSpliced(Number(name), 1) };
  if (kind === "region") return withPrompts(shapes, (values, id) => (id === name ? { ...values, region: null } : values));
  const { [name]: _, ...rest } = shapes[kind];
  const list = `${kind}s`;
  return withPrompts({ ...shapes, [kind]: rest }, (values) => ({
    ...values,
    [list]: values[list]?.filter((one) => one !== name),
    region: kind === "zone" && values.region === name ? null : values.region,
  }));
}

// A zone or line keeps its place in the list, and its prompts.
export function renamed(shapes, key, name) {
  const [kind, old] = [kindIn(key), nameIn(key)];
  const table = Object.fromEntries(Object.entries(shapes[kind]).map(([one, values]) => [one === old ? name : one, values]));
  const list = `${kind}s`;
  return withPrompts({ ...shapes, [kind]: table }, (values) => ({
    ...values,
    [list]: values[list]?.map((one) => (one === old ? name : one)),
    region: kind === "zone" && values.region === old ? name : values.region,
  }));
}

export function withUser(shapes, key, prompt, isUser) {
  const [list, name] = [`${kindIn(key)}s`, nameIn(key)];
  const others = (shapes.prompt[prompt]?.[list] ?? []).filter((one) => one !== name);
  const given = { ...shapes, prompt: { ...shapes.prompt, [prompt]: { ...shapes.prompt[prompt], [list]: isUser ? [...others, name] : others } } };
  return withPrompts(given, (values) => values);
}

// In words; null when the name is fine.
export function nameProblem(shapes, kind, name, own) {
  if (name === "") return `A ${kind} needs a name.`;
  if (!NAME.test(name)) return "A name has 1 to 32 of the characters a-z 0-9 _ -.";
  if (name !== own && Object.hasOwn(shapes[kind], name)) return `There is a ${kind} named ${name} already.`;
  if (kind === "zone" && name === "motion") return "“motion” is the region in which something moved; choose another name.";
  return null;
}

export function freeName(shapes, kind) {
  let number = 1;
  while (Object.hasOwn(shapes[kind], `${kind}${number}`)) number += 1;
  return `${kind}${number}`;
}

// What differs, as keys: a shape that is on one side alone, or not the same on both.
export function differences(mine, theirs) {
  const [own, other] = [mine, theirs].map((shapes) => new Map(listOf(shapes).map((shape) => [shape.key, shape])));
  return [...new Set([...own.keys(), ...other.keys()])]
    .filter((key) => !isSame(own.get(key), other.get(key)))
    .map((key) => ({ key, mine: own.get(key) ?? null, theirs: other.get(key) ?? null }));
}

// The shape that one of the server's messages is about: "zone.drive.polygon: edges cross".
export function errorKey(error) {
  const [, kind, name] = /^(zone|line)\.([a-z0-9_-]+)/.exec(error) ?? [];
  if (kind) return `${kind}:${name}`;
  const region = /^prompt\.([a-z0-9_-]+)\.region/.exec(error);
  return region ? `region:${region[1]}` : null;
}

// ---- Steps that can be undone

export class ShapeSteps {
  constructor(now) {
    this.now = now;
    this.past = [];
    this.future = [];
  }

  // `isSameStep`: the last step goes on, as while a point is dragged.
  change(next, isSameStep = false) {
    if (!isSameStep) this.past.push(this.now);
    this.future = [];
    this.now = next;
  }

  undo() {
    if (this.past.length === 0) return false;
    this.future.push(this.now);
    this.now = this.past.pop();
    return true;
  }

  redo() {
    if (this.future.length === 0) return false;
    this.past.push(this.now);
    this.now = this.future.pop();
    return true;
  }

  // The last step never was.
  cancel() {
    this.now = this.past.pop() ?? this.now;
  }
}
