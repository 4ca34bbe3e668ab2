// Calls to the daemon, and following the events of a session.

// A connection without data for this long counts as lost: the daemon sends a comment
// every 15 s.
const silence = 45_000; // ms

// Problem is what the daemon answers when a call fails (RFC 9457).
export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail ?? `the daemon answered ${status}`);
    Object.assign(this, { status, body, retryAfter });
  }
}

let askToken; // asks the reader for a token; false when the reader gives none

// onUnauthorized sets the function that asks the reader for a token. Its argument says
// whether the last token was refused.
export function onUnauthorized(ask) {
  let asking = null;
  askToken = async (used) => {
    if (used !== token()) return true; // another call has got a new one meanwhile
    asking ??= ask(used !== null).finally(() => { asking = null; });
    const given = await asking;
    if (given) sessionStorage.setItem("token", given);
    return Boolean(given);
  };
}

// The token is kept for this tab only, and is never part of an address.
const token = () => sessionStorage.getItem("token");

// call sends a request. A failure is a Problem, or a TypeError when the daemon
// cannot be reached. Where a token is needed, the reader is asked for one, unless the
// request is unasked: one that the page sends by itself, time and again.
export async function call(path, { headers = {}, unasked = false, ...options } = {}) {
  for (;;) {
    const used = token();
    const response = await fetch(path, { ...options, headers: used ? { ...headers, Authorization: `Bearer ${used}` } : headers });
    notice(response.headers.get("Date"));
    if (response.ok) return response;
    if (response.status === 401 && !unasked && await askToken(used)) continue;
    const body = await response.json().catch(() => ({}));
    throw new Problem(response.status, body, Number(response.headers.get("Retry-After")));
  }
}

// get returns the JSON at a path.
export async function get(path, options) {
  return (await call(path, options)).json();
}

// getAgain is get, but tries again as long as the daemon cannot answer, as tryAgain does.
export const getAgain = (path, failed, signal) => tryAgain(() => get(path), failed, signal);

// tryAgain calls a function that asks the daemon, again as long as the daemon cannot answer.
// It then calls failed, at once and each second, with the seconds until it tries again and
// the error. It throws when trying again is useless or the signal is aborted.
export async function tryAgain(ask, failed, signal) {
  for (let failures = 0; ; failures++) {
    let lost;
    try {
      return await ask();
    } catch (error) {
      if (signal.aborted || isFinal(error)) throw error;
      lost = error;
    }
    await countdown(delay(failures, lost), (seconds) => failed(seconds, lost), signal);
  }
}

// countdown waits. It calls left, at once and each second, with the seconds that are
// left, rounded up, and a function that ends the wait.
async function countdown(ms, left, signal) {
  let end = Date.now() + ms;
  for (let rest = ms; rest > 0; rest = end - Date.now()) {
    await new Promise((resolve) => {
      setTimeout(resolve, Math.min(rest, rest % 1000 || 1000));
      left(Math.ceil(rest / 1000), () => { end = 0; resolve(); });
    });
    signal.throwIfAborted();
  }
}

// isFinal says whether the same call would fail again. Where it would not, there is no
// connection, the daemon is busy, or a proxy cannot reach it. A 500 is a defect, whose
// reason the reader has to see.
export const isFinal = (error) => error instanceof Problem && ![429, 502, 503, 504].includes(error.status);

// ask starts a session in the background and returns its id. The request and its key stay
// in the draft, which keep stores, until the id is here: the same question that is sent
// again after a lost reply, also by hand and after a reload, is the same session and paid
// for once. Another question gets another key.
export async function ask(question, draft, keep) {
  const body = JSON.stringify({ ...question, background: true });
  if (draft.sent?.body !== body) {
    draft.sent = { body, key: Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("") };
  }
  keep();
  const headers = { "Content-Type": "application/json", "Idempotency-Key": draft.sent.key };
  for (let attempt = 0; ; attempt++) {
    try {
      return (await (await call("v1/council", { method: "POST", body, headers })).json()).session_id;
    } catch (error) {
      if (error.status === 409) { // the key stands for another request: the next try has a new one
        draft.sent = null;
        keep();
      }
      if (error instanceof Problem || attempt === 3) throw error;
      await pause(delay(attempt));
    }
  }
}

// kept returns what this tab has stored under a name.
export function kept(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name)) ?? {};
  } catch {
    return {};
  }
}

// keep stores something under a name, so that it survives a reload, unless it is too long
// for the storage.
export function keep(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    sessionStorage.removeItem(name); // what was stored before is not what the reader sees
  }
}

// session returns a session as far as it is known.
export function session(id, options) {
  return get(path(id), options);
}

// remove deletes a session that has ended. One that runs is cancelled.
export function remove(id) {
  return call(path(id), { method: "DELETE" });
}

// cancel cancels a session that runs. One that has ended meanwhile stays.
export async function cancel(id) {
  if ((await session(id)).status === "running") await remove(id);
}

// feedback sends what the reader says of a session that has ended.
export function feedback(id, said) {
  return call(`${path(id)}/feedback`, { method: "POST", body: JSON.stringify(said), headers: { "Content-Type": "application/json" } });
}

const path = (id) => `v1/council/${encodeURIComponent(id)}`;

// follow calls handle once with each event of a session, from the first to the last. It
// connects again when the connection is lost: until then it calls cut, at once and each
// second, with true, the seconds until it tries again, and a function that tries at once.
// It calls cut with false when it is connected. It returns after the last event. It throws
// when connecting again is useless or the signal is aborted.
export async function follow(id, handle, cut, signal) {
  let last = null;
  for (let failures = 0; ;) {
    let lost;
    try {
      const connection = new AbortController();
      let timer = setTimeout(() => connection.abort(), silence);
      const alive = () => {
        clearTimeout(timer);
        timer = setTimeout(() => connection.abort(), silence);
      };
      try {
        const response = await call(`${path(id)}/events`, {
          headers: last === null ? {} : { "Last-Event-ID": last }, signal: AbortSignal.any([signal, connection.signal]),
        });
        if (response.status === 204) return;
        cut(false);
        for await (const event of events(response.body, alive)) {
          failures = 0;
          last = event.id;
          handle(event.type, JSON.parse(event.data));
          if (event.type === "session.done" || event.type === "session.failed") return;
        }
      } finally {
        clearTimeout(timer);
        connection.abort();
      }
    } catch (error) {
      if (signal.aborted || isFinal(error)) throw error;
      lost = error;
    }
    await countdown(delay(failures++, lost), (seconds, atOnce) => cut(true, seconds, atOnce), signal);
  }
}

// events reads server-sent events. It leaves out an event that is incomplete when the
// connection ends. A line is joined once, when its end is here, because one may have
// megabytes.
async function* events(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = [], event = {}; // rest is the pieces of a line without its end
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const lines = value.split("\n");
    rest.push(lines.shift());
    if (lines.length === 0) continue;
    lines.unshift(rest.join(""));
    rest = [lines.pop()];
    for (const whole of lines) {
      const line = whole.replace(/\r$/, "");
      if (line === "") {
        if (event.data !== undefined) yield event;
        event = {};
        continue;
      }
      const [, field, text] = /^([^:]*):? ?(.*)$/s.exec(line);
      if (field === "id") event.id = text;
      if (field === "event") event.type = text;
      if (field === "data") event.data = text;
    }
  }
}

// delay grows from half a second to 15 s. It is random, so that many tabs do not connect
// again at the same moment. It is at least what the daemon asked for with its refusal.
function delay(failures, error) {
  const wait = error?.retryAfter > 0 ? error.retryAfter * 1000 : 0;
  return Math.max(wait, Math.min(15_000, 500 * 2 ** failures) * (0.5 + Math.random() / 2));
}

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// request returns what was asked in a session, as it can be asked again.
export const request = (id) => get(`${path(id)}/request`);

// councils returns the councils that can be asked, the one that is asked by default first,
// and none where the daemon is too old to say, or does not.
export function councils() {
  return get("v1/councils", { unasked: true }).then((list) => list.councils, () => []);
}

let ahead = 0; // ms that the daemon's clock is ahead of this one

function notice(date) {
  const difference = Date.parse(date) - Date.now();
  if (Math.abs(difference) > 2000) ahead = difference;
}

// now returns the time by the daemon's clock, in ms, to a second or two.
export const now = () => Date.now() + ahead;
