// The page as a whole: the view that the address names, the question form, the list of
// sessions, and the token.

import { ask, getAgain, onUnauthorized, remove } from "./api.js";
import { el, moment, number, problem } from "./dom.js";
import { leaderboard, report } from "./report.js";
import { watch } from "./session.js";

const $ = (id) => document.getElementById(id);

// The views, by the first part of the address after the #. Each fills its section.
const views = {
  "": { section: $("ask"), title: "Ask the council", open: list },
  session: { section: $("session"), title: "Session", open: watch },
  report: { section: $("report"), title: "Bias report", open: report },
  leaderboard: { section: $("leaderboard"), title: "Leaderboard", open: leaderboard },
};

let left = new AbortController(); // aborted when the reader leaves the view

// show opens the view that the address names. When the reader followed a link, the
// heading of the view gets the focus. When the page was loaded, the focus stays.
async function show(event) {
  const [, name = "", id] = location.hash.split("/");
  const view = views[name] ?? views[""];
  left.abort();
  left = new AbortController();
  const { signal } = left;
  for (const { section } of Object.values(views)) section.hidden = section !== view.section;
  document.title = view === views[""] ? "councild" : `${view.title} · councild`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${name}`) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  if (view !== views[""] && view !== views.session) view.section.replaceChildren(el("h1", { tabindex: "-1" }, view.title));
  try {
    const opened = view.open(view.section, signal, id);
    if (event) (view.section.querySelector("h1") ?? $("main")).focus();
    await opened;
  } catch (error) {
    if (!signal.aborted) view.section.append(problem(error));
  }
}

// list shows the sessions that the daemon holds, as soon as it answers.
async function list(section, signal) {
  const place = $("sessions");
  try {
    const { sessions } = await getAgain("v1/council", () => {
      if (signal.aborted) return;
      place.replaceChildren(el("p", { class: "notice" }, "The daemon does not answer. The sessions are shown when it is back."));
    }, signal);
    if (signal.aborted) return;
    place.replaceChildren(sessions.length === 0
      ? el("p", { class: "hint" }, "None yet. The daemon keeps finished sessions for a while, as it is configured. "
        + "Your browser keeps nothing of them after you close this tab.")
      : el("ul", { class: "sessions" }, sessions.map((s) => item(s, () => list(section, signal)))));
  } catch (error) {
    if (!signal.aborted) place.replaceChildren(problem(error));
  }
}

// item shows a session in the list. It calls deleted when the reader has deleted it.
function item(s, deleted) {
  const ended = s.status !== "running";
  const cost = s.cost_usd == null ? "cost unknown" : `$${number(s.cost_usd, 4)}`;
  const button = el("button", {
    type: "button", "aria-label": `Delete ${s.query}`, onclick: async () => {
      if (!await confirmed(s)) return;
      try {
        await remove(s.session_id);
      } catch (error) {
        if (error.status !== 404) { // otherwise it is gone already
          button.after(problem(error));
          return;
        }
      }
      sessionStorage.removeItem(`question ${s.session_id}`);
      await deleted();
      $("sessions-title").focus();
    },
  }, "Delete");
  return el("li", {},
    el("a", { href: `#/session/${s.session_id}` }, s.query || `Session ${s.session_id}`),
    el("span", { class: "hint" },
      el("span", { class: `state ${s.status}` }, s.status), " · ", moment(s.created), ended ? ` · ${cost}` : null),
    ended ? button : null);
}

// confirmed asks whether a session is to be deleted.
function confirmed(s) {
  return new Promise((resolve) => {
    const dialog = $("delete");
    $("delete-question").textContent = s.query;
    dialog.returnValue = "";
    dialog.onclose = () => resolve(dialog.returnValue === "delete");
    dialog.showModal();
  });
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part of the address after the # is the view
  $("main").focus();
});

$("query").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("question-form").requestSubmit();
  }
});

$("question-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const query = $("query").value, category = $("category").value;
  const button = event.target.querySelector("button");
  button.disabled = true;
  $("ask-problem").replaceChildren();
  try {
    const id = await ask({ query, ...(category && { category }) });
    try {
      sessionStorage.setItem(`question ${id}`, query); // for the list, and after a reload
    } catch { /* the question is too long for the storage: the list shows the id instead */ }
    event.target.reset();
    location.hash = `#/session/${id}`;
  } catch (error) {
    $("ask-problem").replaceChildren(problem(error));
  } finally {
    button.disabled = false;
  }
});

onUnauthorized((refused) => new Promise((resolve) => {
  const dialog = $("token"), value = $("token-value");
  $("token-refused").textContent = refused ? "That token was refused." : "";
  value.value = "";
  let given = null;
  $("token-form").onsubmit = (event) => {
    event.preventDefault();
    given = value.value.trim();
    dialog.close();
  };
  $("token-cancel").onclick = () => dialog.close();
  dialog.onclose = () => resolve(given);
  dialog.showModal();
}));

addEventListener("hashchange", show);
show();
