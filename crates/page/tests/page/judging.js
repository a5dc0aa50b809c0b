// A daemon for "Judge", in the browser: it answers `fetch` for the marks of the prompt person at gate as docs/page.md says, and keeps
// what is sent in `daemon`. All else goes to the page's server.
const event = (id, more) => ({
  id, camera: "gate", prompt: "person", words: "person", start_ms: 1787393730123, end_ms: null, score: 0.6, top_score: 0.75, size: [640, 360],
  box: [0.2, 0.2, 0.4, 0.6], others: [[0.6, 0.2, 0.7, 0.6]], zones: [], description: null, looks: 3, repeats: 0,
  picture: `camera/gate.jpg?v=7`, mark: null, objects: null, all_found: false, near: false, drawn: true, ...more,
});

window.daemon = {
  is_on: true,
  queue: [event("a"), event("b"), event("c"), event("d", { near: true })],
  sent: [],
  // Refusals of the next requests: [status, JSON].
  refusals: [],
  // Changes are answered after it.
  held: null,
  figures: {
    is_on: true, camera: "gate", prompt: "person", words: "person", kind: "detect", min_score: 0.4, alarms: 40, drawn: 20, judged: 17, right: 12, wrong: 5,
    waiting: 4, share: null, time_zone: "UTC", offset_min: 0,
    sentences: ["**71 of 100 alarms are right** (`min_score`)."],
    proposals: [{ target_percent: 80, min_score: 0.6, right_lost: 2, wrong_lost: 4 }, { target_percent: 90, min_score: null, right_lost: 0, wrong_lost: 0 }],
  },
};

{
  const { daemon } = window;
  const real = window.fetch;
  const json = (status, value) => new Response(JSON.stringify(value), { status, headers: { "content-type": "application/json" } });
  const prompt = () => ({ ...daemon.figures, queue: daemon.queue });
  const answers = {
    "judge.json": () => (daemon.is_on ? { is_on: true, prompts: [daemon.figures] } : { is_on: false, toml: "[history]\nkeep = \"7d\"\n" }),
    "judge.json?camera=gate&prompt=person": prompt,
    "judge/draw": () => ({ ...prompt(), drawn_now: 4 }),
    "judge/use": () => {
      daemon.figures.min_score = 0.6;
      daemon.figures.sentences = ["Promised: at least 80. None judged since then."];
      return { ok: true };
    },
    "events/a.json": () => ({ ...daemon.queue[0], picture: "camera/gate.jpg?v=8" }),
    "events/mark": ({ id, mark, objects = null, all_found = false }) => ({ id, mark: mark === "none" ? null : mark, objects, all_found }),
  };
  window.fetch = async (path, sent) => {
    if (!answers[path]) return real(path, sent);
    const body = sent?.body && JSON.parse(sent.body);
    if (body) daemon.sent.push([path, body]);
    if (body) await daemon.held;
    const refusal = daemon.refusals.shift();
    return refusal ? json(...refusal) : json(200, answers[path](body));
  };
}
