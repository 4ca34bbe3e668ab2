// Lists of conversations: the newest on the home page, and all of them in the history.

import { call, cancel, councils, get, getAgain, now, remove, session } from "./api.js";
import { costing } from "./audit.js";
import { away, count, el, lasting, moment, problem, seconds, usd } from "./dom.js";

const statuses = ["running", "complete", "degraded", "failed", "cancelled"];
const periods = { "any time": "", "past 24 hours": 1, "past 7 days": 7, "past 30 days": 30 }; // in days

// wanted is the reader's last search. The module keeps it, so that the reader comes back from a session to the same
// list.
const wanted = { q: "", status: "", council: "", days: "" };

// history shows all conversations, with a search.
export async function history(section, signal) {
  const place = el("div", { class: "found" });
  const title = section.querySelector("h1");
  const q = el("input", { id: "search", type: "search", autocomplete: "off" });
  const choice = (name, options) => el("select", { id: name }, options.map(([text, value]) => el("option", { value }, text)));
  const status = choice("status", [["any", ""], ...statuses.map((name) => [name, name])]);
  const days = choice("days", Object.entries(periods));
  const council = choice("council-name", [["any", ""]]);
  const labelled = (text, field) => el("div", {}, el("label", { for: field.id }, text), field);
  const ofCouncil = labelled("Council", council);
  ofCouncil.hidden = true; // until the page knows that there are several
  const offer = (names) => {
    for (const name of new Set(names)) council.append(el("option", {}, name));
    council.value = wanted.council;
    ofCouncil.hidden = council.length < 3;
  };
  const refill = () => {
    q.value = wanted.q;
    status.value = wanted.status;
    days.value = wanted.days;
    council.value = wanted.council;
  };
  refill();
  section.append(
    el("form", { class: "search", role: "search", onsubmit: (event) => event.preventDefault() },
      labelled("Search questions and answers", q), labelled("Status", status), ofCouncil, labelled("Asked", days)),
    place);

  let last = new AbortController(); // aborted by the next search
  let timer;
  const find = () => {
    clearTimeout(timer);
    if (signal.aborted) return null;
    last.abort();
    last = new AbortController();
    Object.assign(wanted, { status: status.value, days: days.value, council: council.value });
    const { days: since, ...filter } = wanted;
    if (since) filter.since = new Date(now() - since * 86_400_000).toISOString();
    const set = Object.fromEntries(Object.entries(filter).filter(([, value]) => value));
    const all = () => {
      for (const name of Object.keys(wanted)) wanted[name] = "";
      refill();
      q.focus();
      return find();
    };
    return list(place, title, AbortSignal.any([signal, last.signal]), { ...set, limit: 25 }, { all });
  };
  q.addEventListener("input", () => {
    wanted.q = q.value.trim();
    clearTimeout(timer);
    timer = setTimeout(find, 250); // ms after the last letter
  });
  for (const field of [status, days, council]) field.addEventListener("change", find);
  const finding = find();
  const known = await councils();
  if (!signal.aborted) offer(known.map(({ name }) => name));
  await finding;
}

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
      const fresh = show(await get(read({ before: next })));
      if (fresh.length > 0 || !next || signal.aborted) return fresh;
    }
  };
  try {
    const first = await getAgain(read(), away(place), signal);
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
    return [el("p", { class: "hint" }, "No session matches."), el("button", { type: "button", onclick: pages.all }, "Show all")];
  }
  return [el("p", { class: "hint" }, "None yet. ",
    pages ? [el("a", { href: "#/" }, "Ask a question"), ", and its answer"] : "Ask a question, and its answer",
    " stays here for the time that the daemon’s settings say. Your browser keeps nothing of it after you close this tab.")];
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
    el("a", { href: `#/session/${newest.session_id}` }, name(first)),
    facts(newest, turns),
    actions(node, turns, again),
    answered ? el("p", { class: "line" }, plain(answered)) : null,
    turns.length === 1 ? null : el("details", { class: "turns" },
      el("summary", {}, count(turns.length, "turn")),
      el("ol", {}, turns.toReversed().map((s) =>
        el("li", {}, el("a", { href: `#/session/${s.session_id}` }, s.query || name(s)), " ", facts(s))))),
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
    : [action("Rename", () => rename(first)), action("Delete", () => discard(turns.map((s) => s.session_id), name(first)))]));
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

// asked shows a dialog, and returns whether the reader pressed its second button.
async function asked(title, content, no, yes) {
  const dialog = el("dialog", { "aria-labelledby": "asked-title" },
    el("form", { method: "dialog" },
      el("h2", { id: "asked-title" }, title), content,
      el("div", { class: "row end" }, el("button", { type: "button", onclick: () => dialog.close("") }, no),
        el("button", { class: "primary", value: "yes" }, yes))));
  document.body.append(dialog);
  dialog.showModal();
  await new Promise((resolve) => { dialog.onclose = resolve; });
  dialog.remove();
  return dialog.returnValue === "yes";
}

// rename asks the reader for the title of a session, and stores it. It returns whether the session has another title.
async function rename(s) {
  const field = el("input", { id: "asked-name", maxlength: 200, autocomplete: "off", value: name(s) });
  const content = [el("label", { for: "asked-name" }, "Title"), field,
    el("p", { class: "hint" }, "Leave it empty to show the question again.")];
  const saving = asked("Rename", content, "Cancel", "Save");
  field.select();
  const title = await saving && field.value.trim();
  if (title === false || title === name(s)) return false;
  await call(`v1/council/${encodeURIComponent(s.session_id)}`, {
    method: "PATCH", body: JSON.stringify({ title }), headers: { "Content-Type": "application/json" },
  });
  return true;
}

// stop asks the reader whether to stop a session that runs, and cancels it. It returns whether it did.
export async function stop(id) {
  const { stage1 = [], stage2 = [], stage3 } = await session(id);
  const known = [...stage1, ...stage2, stage3].map((part) => part?.usage?.cost_usd).filter((usd) => usd != null);
  const spent = known.length > 0 ? `: ${usd(known.reduce((sum, cost) => sum + cost, 0))}` : "";
  const sure = await asked("Stop now?", el("p", {}, `What is spent stays spent${spent}.`), "Keep running", "Stop");
  if (sure) await cancel(id);
  return sure;
}

// discard asks the reader whether to delete a session, or all sessions of a conversation, and deletes them. It returns
// whether they are gone.
export async function discard(id, question) {
  const ids = [id].flat();
  const dialog = document.getElementById("delete");
  document.getElementById("delete-title").textContent = ids.length === 1
    ? "Delete this session?" : `Delete this conversation of ${ids.length} turns?`;
  document.getElementById("delete-question").textContent = question;
  dialog.returnValue = "";
  const sure = await new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "delete");
    dialog.showModal();
  });
  if (!sure) return false;
  for (const one of ids) {
    // A 404 says that the session is gone already.
    await remove(one).catch((error) => (error.status === 404 ? null : Promise.reject(error)));
    for (const kind of ["question", "follow-up"]) sessionStorage.removeItem(`${kind} ${one}`);
  }
  return true;
}
