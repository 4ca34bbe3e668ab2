// Lists of conversations, for the home page and the history.

import { get, now, session, tryAgain } from "./api.js";
import { costing } from "./audit.js";
import { away, count, el, lasting, moment, problem, seconds } from "./dom.js";

// list shows the conversations that match a filter, when the daemon answers. It keeps running sessions up to date. The
// title gets the focus after the reader has deleted a conversation. With pages, a button loads older conversations, and
// pages.all takes the filter away.
export async function list(place, title, signal, filter, pages) {
  const read = (more) => `v1/council?${new URLSearchParams({ threads: true, ...filter, ...more })}`;
  const again = async () => {
    await list(place, title, signal, filter, pages);
    title.focus();
  };
  const items = new Map(); // by thread
  const rows = el("ul", { class: "sessions" });
  const button = el("button", { type: "button", class: "more" }, "More");
  let next;
  // show adds a page of the list. It returns the new rows.
  const show = (page) => {
    const threads = Map.groupBy(page.sessions, (s) => s.thread ?? s.session_id);
    const fresh = [...threads].filter(([thread]) => !items.has(thread)).map(([thread, turns]) => {
      const item = conversation(turns, again);
      items.set(thread, item);
      return item;
    });
    rows.append(...fresh.map(({ node }) => node));
    next = page.more ? page.next ?? page.sessions.at(-1)?.session_id : undefined;
    button.hidden = !next || !pages;
    return fresh;
  };
  // further loads older conversations. A request searches a limited number of answers, and may find none of them.
  const further = async () => {
    for (;;) {
      const fresh = show(await get(read({ before: next }), { signal }));
      if (fresh.length > 0 || !next || signal.aborted) return fresh;
    }
  };
  try {
    const first = await tryAgain(() => get(read(), { signal }), away(place), signal);
    if (signal.aborted) return;
    if (show(first).length === 0 && next) {
      place.replaceChildren(el("p", { class: "hint", role: "status" }, "Searching older answers …"));
      await further();
      if (signal.aborted) return;
    }
  } catch (error) {
    if (!signal.aborted) place.replaceChildren(problem(error));
    return;
  }
  button.onclick = async () => {
    button.disabled = true;
    try {
      (await further())[0]?.node.querySelector("a").focus();
    } catch (error) {
      button.after(problem(error));
    }
    button.disabled = false;
  };
  place.replaceChildren(...items.size > 0 ? [rows, button] : nothing(filter, pages));
  keep(items, () => read({ limit: Math.min(items.size, 1000) }), signal);
}

// nothing says why a list is empty, and what the reader can do.
function nothing({ q, status, council, since }, pages) {
  if (q || status || council || since) {
    return [el("p", { class: "hint" }, "No session matches this search."), el("button", { type: "button", onclick: pages.all }, "Show all")];
  }
  return [el("p", { class: "hint" }, "No sessions yet. ",
    pages ? el("a", { href: "#/" }, "Ask a question") : "Ask a question",
    ". The daemon keeps the answer here for as long as its settings say. Your browser keeps nothing after you close this tab.")];
}

// keep counts the time of running sessions, and shows how they end.
function keep(items, path, signal) {
  let ticks = 0;
  const timer = setInterval(async () => {
    const running = [...items.values()].flatMap(({ turns }) => turns).filter((s) => s.status === "running");
    if (signal.aborted || running.length === 0) {
      clearInterval(timer);
      return;
    }
    for (const { node } of items.values()) {
      for (const took of node.querySelectorAll("[data-since]")) took.textContent = elapsed(took.dataset.since);
    }
    if (++ticks % 3 > 0) return;
    const listed = await get(path(), { unasked: true }).catch(() => null);
    if (listed === null) return; // tries again later
    // A session leaves the list if it ends or others are newer. The page then asks for the session by its id.
    const states = await Promise.all(running.map((s) =>
      listed.sessions.find(({ session_id: id }) => id === s.session_id) ?? standing(s.session_id)));
    if (signal.aborted) return;
    for (const [thread, item] of items) {
      const news = states.filter((state) => item.turns.some((s) => s.session_id === state.session_id && s.status !== state.status));
      if (news.length > 0 && !item.update(news)) items.delete(thread);
    }
  }, 1000);
}

// standing is the state of one session in the form of the list. If the daemon cannot tell the state now, the session
// counts as running.
async function standing(id) {
  try {
    const { status, answer, metadata } = await session(id, { unasked: true });
    return {
      session_id: id, status, answer: answer.trim().split("\n")[0],
      cost_usd: metadata.usage.cost_usd, duration_ms: metadata.timing.total_ms || null,
    };
  } catch (error) {
    return { session_id: id, status: error.status === 404 ? "deleted" : "running" };
  }
}

// conversation shows a conversation as one row of a list. Its turns come with the newest first. It calls again when the
// list must be read again. The function update of the result takes new states of turns, and returns false if no turn is
// left.
function conversation(turns, again) {
  const item = { turns, node: el("li") };
  item.update = (news) => {
    for (const state of news) Object.assign(turns.find((s) => s.session_id === state.session_id), state);
    item.turns = turns = turns.filter((s) => s.status !== "deleted");
    if (turns.length === 0) {
      item.node.remove();
      return false;
    }
    const focused = item.node.contains(document.activeElement) && document.activeElement.tagName;
    const open = item.node.querySelector(".turns")?.open;
    fill(item.node, turns, again);
    if (open) item.node.querySelector(".turns")?.setAttribute("open", "");
    if (focused) item.node.querySelector(focused.toLowerCase())?.focus();
    return true;
  };
  fill(item.node, turns, again);
  return item;
}

const name = (s) => s.title || s.query || `Session ${s.session_id}`;

// fill writes the row of a conversation. The title is that of its first turn, and the answer that of its newest.
function fill(node, turns, again) {
  const newest = turns[0], first = turns.at(-1);
  const answered = turns.find((s) => s.answer)?.answer;
  node.replaceChildren(...[
    el("a", { href: `#/session/${newest.session_id}`, dir: "auto" }, name(first)),
    facts(newest, turns),
    actions(node, turns, again),
    answered ? el("p", { class: "line", dir: "auto" }, plain(answered)) : null,
    turns.length === 1 ? null : el("details", { class: "turns" },
      el("summary", {}, count(turns.length, "turn")),
      el("ol", {}, turns.toReversed().map((s) =>
        el("li", {}, el("a", { href: `#/session/${s.session_id}`, dir: "auto" }, s.query || name(s)), " ", facts(s))))),
  ].filter(Boolean));
}

// plain takes the marks of Markdown out of a line.
const plain = (line) => line.replace(/^[\s#>*+-]+/, "").replace(/\*\*|__|`/g, "");

// facts says in which state a session is, when it was asked, how long it took and what it cost. With the turns of its
// conversation, it says what all of them cost.
function facts(s, turns = [s]) {
  const ended = s.status !== "running";
  const known = turns.filter((turn) => turn.cost_usd != null);
  const partial = known.length > 0 && known.length < turns.filter((turn) => turn.status !== "running").length;
  const cost = known.length > 0 ? known.reduce((sum, turn) => sum + turn.cost_usd, 0) : null;
  const took = ended ? el("span", { class: "took" }, seconds(s.duration_ms))
    : el("span", { class: "took", "data-since": s.created }, elapsed(s.created));
  return el("span", { class: "hint" },
    el("span", { class: `state ${s.status}` }, s.status),
    s.council && s.council !== "default" ? ` · ${s.council}` : null,
    " · ", moment(s.created),
    !ended || s.duration_ms != null ? [" · ", took] : null,
    ended ? ` · ${costing({ cost_usd: cost, partial })}` : null);
}

const elapsed = (created) => `for ${lasting(now() - Date.parse(created))}`;

// actions makes the menu of a row.
function actions(node, turns, again) {
  const first = turns.at(-1), running = turns.filter((s) => s.status === "running");
  const menu = el("details", { class: "menu" }, el("summary", { "aria-label": `Actions for ${name(first)}` }, "⋯"));
  const action = (label, act) => el("button", {
    type: "button", onclick: async () => {
      menu.open = false;
      try {
        if (await act()) await again();
        else if (menu.isConnected) menu.firstChild.focus();
      } catch (error) {
        node.append(problem(error));
      }
    },
  }, label);
  menu.append(el("div", {}, running.length > 0
    ? action("Cancel", async () => {
      for (const s of running) await stop(s.session_id);
    })
    : [action("Rename", async () => (await more()).rename(first.session_id, name(first))),
      action("Delete", () => discard(turns.map((s) => s.session_id), name(first)))]));
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.firstChild.focus();
  });
  menu.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget && !menu.contains(relatedTarget)) menu.open = false;
  });
  menu.addEventListener("toggle", () => {
    if (!menu.open) return;
    const outside = (event) => {
      if (menu.open && menu.contains(event.target)) return;
      menu.open = false;
      document.removeEventListener("pointerdown", outside);
    };
    document.addEventListener("pointerdown", outside);
  });
  return menu;
}

// more loads the module for what the reader seldom does.
const more = () => import("./actions.js");

// stop and discard are those of actions.js.
export const stop = async (id) => (await more()).stop(id);
export const discard = async (ids, question) => (await more()).discard(ids, question);
