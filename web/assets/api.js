// Calls to the daemon, and the events of a session.

// A connection without data for this long counts as lost. The daemon sends a comment every 15 s.
const silence = 45_000; // ms

// Problem is the error that the daemon returns when a call fails (RFC 9457).
export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail ?? `the daemon answered ${status}`);
    Object.assign(this, { status, body, retryAfter });
  }
}

let askToken; // asks the reader for a token, and returns false if the reader gives none

// onUnauthorized sets the function that asks the reader for a token. Its argument says whether the daemon refused
// the last token.
export function onUnauthorized(ask) {
  let asking = null;
  askToken = async (used) => {
    if (used !== token()) return true; // another call has a new token by now
    asking ??= ask(used !== null).finally(() => { asking = null; });
    const given = await asking;
    if (given) keepToken(given);
    return Boolean(given);
  };
}

// The token is kept for this tab, or for this browser if the reader wants that. It is never part of an address.
const token = () => sessionStorage.getItem("token") ?? remembered();

// remembered is the token that this browser keeps, or null. Not every browser lets the page store something.
export function remembered() {
  try {
    return localStorage.getItem("token");
  } catch {
    return null;
  }
}

function keepToken({ value, remember }) {
  forget();
  if (remember) {
    try {
      localStorage.setItem("token", value);
      return;
    } catch { /* then only this tab keeps it */ }
  }
  sessionStorage.setItem("token", value);
}

// forget removes the token from this tab and from this browser.
export function forget() {
  sessionStorage.removeItem("token");
  try {
    localStorage.removeItem("token");
  } catch { /* nothing was kept */ }
}

// call sends a request. It throws a Problem if the call fails, or an error with the
// property unreachable if the daemon cannot be reached. If the
// daemon needs a token, call asks the reader for one, except if the request is unasked: the page sends such requests by
// itself, again and again.
export async function call(path, { headers = {}, unasked = false, ...options } = {}) {
  for (;;) {
    const used = token();
    const response = await fetch(path, { ...options, headers: used ? { ...headers, Authorization: `Bearer ${used}` } : headers })
      .catch((error) => { throw Object.assign(error, { unreachable: error instanceof TypeError }); });
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

// getAgain calls get through tryAgain.
export const getAgain = (path, failed, signal) => tryAgain(() => get(path), failed, signal);

// tryAgain calls a function that asks the daemon, and calls it again while the daemon cannot answer. Between the tries
// it calls the function in failed, at once and each second, with the seconds until the next try and the error. It
// throws if another try is useless or the signal is aborted.
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

// countdown waits. It calls the function left, at once and each second, with the seconds that remain, rounded up, and
// with a function that ends the wait.
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

// isFinal says whether another try would fail too. Another try can succeed if the connection is lost, the daemon is
// busy, or a proxy cannot reach the daemon. A 500 is a defect, and the reader has to see its reason.
export const isFinal = (error) => error instanceof Problem && ![429, 502, 503, 504].includes(error.status);

// ask starts a session in the background and returns its id. The draft holds the request and its key until the id
// arrives, and the function keep stores the draft. If the reply is lost, the next try sends the same key, even after a
// reload. So the daemon starts only one session. Another question gets a new key.
export async function ask(question, draft, keep, path = "v1/council") {
  const body = JSON.stringify({ ...question, background: true });
  if (draft.sent?.body !== body) {
    draft.sent = { body, key: Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("") };
  }
  keep();
  const headers = { "Content-Type": "application/json", "Idempotency-Key": draft.sent.key };
  for (let attempt = 0; ; attempt++) {
    try {
      return (await (await call(path, { method: "POST", body, headers })).json()).session_id;
    } catch (error) {
      if (error.status === 409) { // the key belongs to another request, so the next try gets a new one
        draft.sent = null;
        keep();
      }
      if (error instanceof Problem || attempt === 3) throw error;
      await pause(delay(attempt));
    }
  }
}

// kept is the value that this tab stores under a name, or {}.
export function kept(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name)) ?? {};
  } catch {
    return {};
  }
}

// keep stores a value under a name, so that it survives a reload. It drops a value that is too long for the
// storage.
export function keep(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    sessionStorage.removeItem(name); // the old value is not what the reader sees now
  }
}

// session returns a session as far as it is known.
export function session(id, options) {
  return get(path(id), options);
}

// remove deletes a session that has ended, and cancels one that runs.
export function remove(id) {
  return call(path(id), { method: "DELETE" });
}

// convene asks the members that a session has not asked, in a new session with the answers that exist. It returns the id
// of that session. The draft and the function keep are as in ask.
export const convene = (id, draft, keep) => ask({}, draft, keep, `${path(id)}/convene`);

// cancel cancels a session that runs. It keeps a session that has ended by now.
export async function cancel(id) {
  if ((await session(id)).status === "running") await remove(id);
}

// feedback sends the reader's opinion of a session that has ended.
export function feedback(id, said) {
  return call(`${path(id)}/feedback`, { method: "POST", body: JSON.stringify(said), headers: { "Content-Type": "application/json" } });
}

const path = (id) => `v1/council/${encodeURIComponent(id)}`;

// follow calls the function handle with each event of a session, in order and once. If the connection is lost, follow
// connects again. Until then it calls cut(true, seconds until the next try, function that tries at once), at once and
// each second. When it is connected, it calls cut(false). It returns after the last event. It throws if another try is
// useless or the signal is aborted.
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

// events reads server-sent events. It drops an event that is incomplete when the connection ends. A line can have
// megabytes, so its pieces are joined only once, when the line is complete.
async function* events(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = [], event = {}; // rest has the pieces of an incomplete line
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

// delay returns the ms until the next try. It grows from half a second to 15 s. It is random, so that many tabs do
// not connect at the same moment. It is never shorter than the Retry-After of the daemon.
function delay(failures, error) {
  const wait = error?.retryAfter > 0 ? error.retryAfter * 1000 : 0;
  return Math.max(wait, Math.min(15_000, 500 * 2 ** failures) * (0.5 + Math.random() / 2));
}

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// request returns the request of a session, in the form in which it can be sent again.
export const request = (id) => get(`${path(id)}/request`);

// offers returns the answer of GET /v1/councils, and shows whether the daemon is a demo. It returns null if the daemon
// does not answer, or is too old.
export async function offers() {
  const list = await get("v1/councils", { unasked: true }).catch(() => null);
  if (list !== null) document.getElementById("demo").hidden = !list.demo;
  return list;
}

// councils returns the councils that the reader can ask, the default one first, or none without an answer.
export const councils = async () => (await offers())?.councils ?? [];

let ahead = 0; // ms by which the daemon's clock is ahead of this one

function notice(date) {
  const difference = Date.parse(date) - Date.now();
  if (Math.abs(difference) > 2000) ahead = difference;
}

// now returns the time of the daemon's clock in ms, within two seconds.
export const now = () => Date.now() + ahead;
