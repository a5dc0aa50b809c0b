// A daemon for the editor, in the browser: it answers `fetch` for the shapes of the camera gate as docs/page.md says, and keeps what is
// saved in `daemon`. All else goes to the page's server.
window.daemon = {
  answer: {
    camera: "gate",
    version: "1",
    file: {},
    file_mask: [[[0, 0], [0.3, 0], [0.3, 0.08], [0, 0.08]]],
    size: [1280, 720],
    drawn_size: [1280, 720],
    has_other_aspect: false,
    prompts: [
      { id: "person", kind: "detect", words: "person", rate_hz: 2 },
      { id: "car", kind: "detect", words: "car", rate_hz: 1 },
      { id: "bins", kind: "query", words: "Are the bins out?", rate_hz: 0.01 },
    ],
    owner: null,
    toml: "[camera.gate.zone.drive]\npolygon = [[0.05, 0.55], [0.6, 0.55], [0.6, 1.0], [0.0, 1.0]]\n",
    now: {
      zone: { drive: { polygon: [[0.05, 0.55], [0.6, 0.55], [0.6, 1], [0, 1]], point: "bottom" } },
      line: { kerb: { points: [[0.62, 0.75], [0.95, 0.6]], directions: ["in", "out"], point: "centre" } },
      mask: [[[0, 0], [0.3, 0], [0.3, 0.08], [0, 0.08]], [[0.8, 0.02], [0.98, 0.02], [0.98, 0.2], [0.8, 0.2]]],
      prompt: { person: { zones: ["drive"], lines: ["kerb"], region: [0.35, 0.2, 0.7, 0.6] } },
    },
  },
  // Refusals of the next commands: [status, JSON].
  refusals: [],
  // Readings of the shapes that fail.
  failures: 0,
  commands: [],
  pictures: [],
  preview: null,
};

{
  const real = window.fetch;
  const json = (status, value) => new Response(JSON.stringify(value), { status, headers: { "content-type": "application/json" } });
  window.fetch = async (path, sent) => {
    const { daemon } = window;
    if (/^camera\/\w+\/shapes\.json$/.test(path)) return daemon.failures-- > 0 ? json(503, { error: "starting" }) : json(200, daemon.answer);
    if (path === "camera/gate/shapes-preview") return daemon.preview ? json(200, daemon.preview) : json(404, {});
    const picture = /^camera\/(\w+)\/(now|unmasked)\.jpg$/.exec(path);
    if (picture) {
      daemon.pictures.push(picture[2]);
      return real(`camera/${picture[1]}.jpg`);
    }
    if (path !== "command") return real(path, sent);
    const command = JSON.parse(sent.body);
    daemon.commands.push(command);
    const refusal = daemon.refusals.shift();
    if (refusal) return json(...refusal);
    daemon.answer.now = command.shapes;
    daemon.answer.version += "1";
    return json(200, { ok: true });
  };
}
