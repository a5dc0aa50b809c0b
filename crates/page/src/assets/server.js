// Requests to the daemon. Addresses are relative, because a proxy may show the page below a path.

export const ANSWER_LIMIT_MS = 10_000;
// What was not answered is asked for again after this time.
export const AGAIN_MS = 5000;

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// Of answers that say nothing themselves, because a proxy has made them.
const REFUSALS = {
  401: "Log in first",
  413: "The request is too large for Spotter, or for a proxy before it",
  429: "Too many requests; try again in a moment",
};

// Sends `body` as JSON, or asks without one. Returns the answer's JSON, null for an empty one. Throws an error with the words of the
// server, its `status`, and the JSON of the refusal as `answer`, if there are such.
export async function request(path, body, limitMs = ANSWER_LIMIT_MS) {
  const sent = body === undefined ? { cache: "no-store" } : {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  const [got, text] = await exchange(path, { ...sent, signal: AbortSignal.timeout(limitMs) });
  if (got.ok) return text === "" ? null : JSON.parse(text);
  const answer = parsed(text);
  const { status } = got;
  throw Object.assign(new Error(answer?.error?.text ?? answer?.error ?? refusalOf(status)), { status, answer });
}

const refusalOf = (status) => REFUSALS[status] ?? `Spotter, or a proxy before it, answered with HTTP ${status}`;

// The text at an address.
export async function read(path) {
  const [got, text] = await exchange(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_LIMIT_MS) });
  if (got.ok) return text;
  throw new Error(text || refusalOf(got.status));
}

// The picture at an address, as an address of the browser's own, which the caller revokes.
export async function picture(path, limitMs) {
  const got = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(limitMs) }).catch(() => null);
  if (got === null) throw new Error("No answer from Spotter");
  if (got.ok) return URL.createObjectURL(await got.blob());
  throw new Error(parsed(await got.text())?.error ?? refusalOf(got.status));
}

async function exchange(path, sent) {
  try {
    const got = await fetch(path, sent);
    return [got, await got.text()];
  } catch {
    throw new Error("No answer from Spotter");
  }
}

// A proxy refuses with a page of its own.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// Changes something: returns null, or why it did not.
export const change = (path, body, limitMs) => request(path, body, limitMs).then(() => null, (error) => error.message);

// Asks whether something would be done: returns null, or why it would not.
export const refusal = (path) => change(path);
