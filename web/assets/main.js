// The page as a whole: it shows the view that the address names, and asks for the token.

import { forget, getAgain, offers, onUnauthorized, remembered } from "./api.js";
import { away, el, icon, problem } from "./dom.js";
import { again, home } from "./home.js";

const $ = (id) => document.getElementById(id);

const loaded = new Set(); // files of views

// late is for a view that is loaded when it is opened. It returns a function that loads the view and its style, if that
// has a file of its own. The function first waits for the daemon, because not every browser loads a module again after a
// failure.
const late = (name, file, style) => async (section, signal, ...given) => {
  if (!loaded.has(style ?? file)) {
    const state = el("div");
    section.append(state);
    await getAgain("healthz", away(state), signal).catch(() => {}); // every answer shows that the daemon is there
    state.remove();
    if (signal.aborted) return;
    loaded.add(style ?? file);
    if (style) document.head.append(el("link", { rel: "stylesheet", href: style }));
  }
  const module = await import(file);
  if (signal.aborted) return;
  const focused = [$("main"), section.querySelector("h1")].includes(document.activeElement);
  const opened = module[name](section, signal, ...given);
  if (focused) section.querySelector("h1")?.focus();
  await opened;
};

const report = "assets/report.css";

// The views by the first part of the address after the #. Each fills its section.
const views = {
  "": { section: $("ask"), title: "Ask the council", open: home },
  again: { section: $("ask"), title: "Ask again", open: again },
  history: { section: $("history"), title: "History", open: late("history", "./search.js") },
  session: { section: $("session"), title: "Session", open: late("watch", "./session.js") },
  report: { section: $("report"), title: "Bias report", open: late("report", "./report.js", report) },
  leaderboard: { section: $("leaderboard"), title: "Leaderboard", open: late("leaderboard", "./report.js", report) },
  spend: { section: $("spend"), title: "Spend", open: late("spend", "./spend.js", report) },
};
const missing = {
  section: $("history"), title: "Not found",
  open: (section) => section.append(el("p", {}, "There is nothing at this address. ", el("a", { href: "#/" }, "Ask the council"))),
};

let left = new AbortController(); // aborted when the reader leaves the view

// show opens the view that the address names. If the reader followed a link, the heading of the view gets the
// focus. After a page load, the focus stays.
async function show(event) {
  const [path, query] = location.hash.split("?");
  const [, name = "", id] = path.split("/");
  const view = Object.hasOwn(views, name) ? views[name] : missing;
  left.abort();
  left = new AbortController();
  const { signal } = left;
  for (const { section } of Object.values(views)) section.hidden = section !== view.section;
  icon("icon");
  document.title = view === views[""] ? "councild" : `${view.title} · councild`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${name}`) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  if (view.section !== $("ask") && view !== views.session) view.section.replaceChildren(el("h1", { tabindex: "-1" }, view.title));
  $("forget").hidden = remembered() === null;
  if (view === views.session) view.section.replaceChildren(); // not the session before, while the view is loaded
  try {
    const opened = view.open(view.section, signal, id, new URLSearchParams(query));
    if (event) (view.section.querySelector("h1") ?? $("main")).focus();
    await opened;
  } catch (error) {
    if (!signal.aborted) view.section.append(problem(error));
  }
  if (view.section !== $("ask") && !signal.aborted) offers(); // The home page does so itself.
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address after the # names the view, and must stay
  $("main").focus();
});

onUnauthorized((refused) => new Promise((resolve) => {
  const dialog = $("token"), value = $("token-value"), remember = $("token-remember");
  $("token-refused").textContent = refused ? "That token was refused." : "";
  value.value = "";
  remember.checked = refused && remembered() !== null;
  let given = null;
  $("token-form").onsubmit = (event) => {
    event.preventDefault();
    given = { value: value.value.trim(), remember: remember.checked };
    dialog.close();
    $("forget").hidden = !given.remember;
  };
  $("token-cancel").onclick = () => dialog.close();
  dialog.onclose = () => resolve(given?.value ? given : null);
  dialog.showModal();
}));

$("forget").addEventListener("click", () => {
  forget();
  location.reload(); // so that no view keeps what the token has shown
});

addEventListener("hashchange", show);
show();
