// Lists of sessions: the newest on the home page, and all of them in the history.

import { get, getAgain, now, remove, session } from "./api.js";
import { costing } from "./audit.js";
import { away, el, lasting, moment, problem, seconds } from "./dom.js";

const statuses = ["running", "complete", "degraded", "failed", "cancelled"];

// wanted is the reader's last search. The module keeps it, so that the reader comes back from a session to the same
// list.
const wanted = { q: "", status: "" };

// history shows all sessions, with a search.
export async function history(section, signal) {
  const place = el("div", { class: "found" });
  const title = section.querySelector("h1");
  const q = el("input", { id: "search", type: "search", autocomplete: "off" });
  const status = el("select", { id: "status" },
    el("option", { value: "" }, "any"), statuses.map((name) => el("option", {}, name)));
  q.value = wanted.q;
  status.value = wanted.status;
  section.append(
    el("p", { class: "lead" }, "The address of a session works for everyone with the same token."),
    el("form", { class: "search", role: "search", onsubmit: (event) => event.preventDefault() },
      el("div", {}, el("label", { for: "search" }, "Search the questions"), q),
      el("div", {}, el("label", { for: "status" }, "Status"), status)),
    place);

  let last = new AbortController(); // aborted by the next search
  let timer;
  const find = () => {
    clearTimeout(timer);
    if (signal.aborted) return null;
    last.abort();
    last = new AbortController();
    wanted.status = status.value;
    const filter = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value));
    return list(place, title, AbortSignal.any([signal, last.signal]), { ...filter, limit: 25 }, true);
  };
  q.addEventListener("input", () => {
    wanted.q = q.value.trim();
    clearTimeout(timer);
    timer = setTimeout(find, 250); // ms after the last letter
  });
  status.addEventListener("change", find);
  await find();
}

// list shows the sessions that match a filter, when the daemon answers. It keeps running sessions up to date. The
// title gets the focus after the reader has deleted a session. With pages, a button loads older sessions.
export async function list(place, title, signal, filter, pages) {
  const read = (more) => `v1/council?${new URLSearchParams({ ...filter, ...more })}`;
  const again = () => list(place, title, signal, filter, pages);
  const items = new Map(); // by session id
  const rows = el("ul", { class: "sessions" });
  const button = el("button", { type: "button", class: "more" }, "More");
  const show = ({ sessions, more }) => {
    for (const s of sessions) {
      const node = item(s, async () => {
        await again();
        title.focus();
      });
      items.set(s.session_id, { s, node });
      rows.append(node);
    }
    button.hidden = !more || !pages;
  };
  try {
    const first = await getAgain(read(), away(place), signal);
    if (signal.aborted) return;
    show(first);
  } catch (error) {
    if (!signal.aborted) place.replaceChildren(problem(error));
    return;
  }
  button.onclick = async () => {
    button.disabled = true;
    try {
      const next = await get(read({ before: [...items.keys()].at(-1) }));
      show(next);
      items.get(next.sessions[0]?.session_id)?.node.querySelector("a").focus();
    } catch (error) {
      button.after(problem(error));
    }
    button.disabled = false;
  };
  const filtered = filter.q || filter.status;
  place.replaceChildren(...items.size > 0 ? [rows, button] : [el("p", { class: "hint" }, filtered
    ? "No session matches."
    : "None yet. The daemon keeps finished sessions for the time that its settings say. "
      + "Your browser keeps nothing of them after you close this tab.")]);
  keep(items, () => read({ limit: Math.min(items.size, 1000) }), signal);
}

// keep counts the time of running sessions, and shows how they end.
function keep(items, path, signal) {
  let ticks = 0;
  const timer = setInterval(async () => {
    const running = [...items.values()].filter(({ s }) => s.status === "running");
    if (signal.aborted || running.length === 0) {
      clearInterval(timer);
      return;
    }
    for (const { s, node } of running) node.querySelector(".took").textContent = elapsed(s);
    if (++ticks % 3 > 0) return;
    const listed = await get(path(), { unasked: true }).catch(() => null);
    if (listed === null) return; // tries again later
    // A session leaves the list if it ends or others are newer. The page then asks for the session by its id.
    const left = running.map(({ s }) => s.session_id).filter((id) => !listed.sessions.some((s) => s.session_id === id));
    const found = [...listed.sessions, ...await Promise.all(left.map(standing))];
    if (signal.aborted) return;
    for (const s of found) {
      const shown = items.get(s.session_id);
      if (!shown || shown.s.status === s.status) continue;
      if (s.status === "deleted") {
        shown.node.remove();
        items.delete(s.session_id);
        continue;
      }
      Object.assign(shown.s, s);
      shown.node.querySelector(".hint").replaceWith(facts(shown.s));
      shown.node.querySelector("button").hidden = false;
    }
  }, 1000);
}

// standing is the state of one session in the form of the list. If the daemon cannot tell the state now, the session
// counts as running.
async function standing(id) {
  try {
    const { status, metadata } = await session(id, { unasked: true });
    return { session_id: id, status, cost_usd: metadata.usage.cost_usd, duration_ms: metadata.timing.total_ms || null };
  } catch (error) {
    return { session_id: id, status: error.status === 404 ? "deleted" : "running" };
  }
}

// item shows a session in a list. It calls deleted after the reader has deleted the session.
function item(s, deleted) {
  const question = s.query || `Session ${s.session_id}`;
  const button = el("button", {
    type: "button", "aria-label": `Delete ${question}`, hidden: s.status === "running", onclick: async () => {
      try {
        if (await discard(s.session_id, question)) await deleted();
      } catch (error) {
        button.after(problem(error));
      }
    },
  }, "Delete");
  return el("li", {}, el("a", { href: `#/session/${s.session_id}` }, question), facts(s), button);
}

// facts says in which state a session is, when it was asked, how long it took and what it cost.
function facts(s) {
  const ended = s.status !== "running";
  return el("span", { class: "hint" },
    el("span", { class: `state ${s.status}` }, s.status), " · ", moment(s.created),
    !ended || s.duration_ms != null ? [" · ", el("span", { class: "took" }, ended ? seconds(s.duration_ms) : elapsed(s))] : null,
    ended ? ` · ${costing(s)}` : null);
}

const elapsed = (s) => `for ${lasting(now() - Date.parse(s.created))}`;

// discard asks the reader whether to delete a session, and deletes it. It returns whether the session is gone.
export async function discard(id, question) {
  const dialog = document.getElementById("delete");
  document.getElementById("delete-question").textContent = question;
  dialog.returnValue = "";
  const sure = await new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "delete");
    dialog.showModal();
  });
  if (!sure) return false;
  // A 404 says that the session is gone already.
  await remove(id).catch((error) => (error.status === 404 ? null : Promise.reject(error)));
  for (const name of ["question", "follow-up"]) sessionStorage.removeItem(`${name} ${id}`);
  return true;
}
