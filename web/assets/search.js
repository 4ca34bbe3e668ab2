// The history: all conversations, with a search.

import { councils, now } from "./api.js";
import { el } from "./dom.js";
import { list } from "./history.js";

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
  for (const [key, field] of Object.entries({ status, days, council })) {
    field.addEventListener("change", () => {
      wanted[key] = field.value;
      find();
    });
  }
  const finding = find();
  const known = await councils();
  if (!signal.aborted) offer(known.map(({ name }) => name));
  await finding;
}
