// What many sessions reveal: the bias report and the leaderboard. The daemon makes both as HTML, so that the page, the
// HTML file and the terminal say the same. The page adds filters and downloads, and draws the board of events.

import { call, get, getAgain, tryAgain } from "./api.js";
import { away, count, el, number, problem, save, svg, table } from "./dom.js";
import { plot } from "./plot.js";

// report shows the bias report of the sessions that a query selects.
export async function report(section, signal, _, query) {
  await open("report", "v1/bias-report", section, signal, query);
}

// leaderboard ranks the models over the sessions that a query selects.
export async function leaderboard(section, signal, _, query) {
  if (query.get("scope") === "events") return eventBoard(section, signal, query);
  if (!await open("leaderboard", "v1/leaderboard", section, signal, query)) return;
  if ((await get("v1/councils")).takes_events && !signal.aborted) {
    section.append(el("p", {}, el("a", { href: "#/leaderboard?scope=events" }, "Leaderboard from the events of other organisations")));
  }
}

const windows = ["7", "30", "90"];

const indicators = {
  position_variance: { title: "Variance of mean scores per position", low: 0, high: 1 },
  length_correlation: { title: "Correlation of length and score", low: -1, high: 1 },
  reviewer_agreement: { title: "Agreement of reviewers, Kendall’s W", low: 0, high: 1 },
};

// eventBoard shows the figures on models and on bias from the events of many organisations.
async function eventBoard(section, signal, query) {
  const days = query.get("days") ?? "30";
  section.append(el("p", { class: "tools" }, "Days back:", windows.map((w) => el("a", {
    href: `#/leaderboard?scope=events&days=${w}`, ...(w === days ? { "aria-current": "true" } : {}),
  }, w)), el("a", { href: "#/leaderboard" }, "The sessions of this daemon")));
  const place = el("div");
  section.append(place);
  let b;
  try {
    b = await getAgain(`v1/leaderboard?${new URLSearchParams({ scope: "events", days })}`, away(place), signal);
  } catch (error) {
    if (!signal.aborted) place.replaceChildren(problem(error));
    return;
  }
  if (signal.aborted) return;
  const columns = [
    { title: "Mean", numeric: true, cell: (e) => number(e.mean) },
    { title: "95 % interval", numeric: true, cell: (e) => interval(e.ci_lower, e.ci_upper) },
    { title: "Organisations", numeric: true, cell: (e) => String(e.organisations) },
    { title: "Sessions", numeric: true, cell: (e) => String(e.sessions) },
    { title: "As of", cell: (e) => el("time", { datetime: e.as_of }, e.as_of) },
  ];
  const figure = (title, rows, name, range) => el("section", { class: "figure" }, el("h2", {}, title),
    plot(`${title}, with 95 % interval`, rows.map((e) => ({
      label: name(e), estimate: e.mean, lower: e.ci_lower, upper: e.ci_upper, note: count(e.organisations, "organisation"),
    })), range),
    folded(title, [{ title: "Name", cell: name }, ...columns], rows, true));
  place.replaceChildren(
    el("p", { class: "lead" }, "Each figure is the mean over organisations that agreed to send events. Each organisation counts once, with its own mean."),
    el("p", { class: "hint" }, `A row needs at least ${b.min_organisations} organisations with ${b.min_sessions} sessions each. `
      + "It changes at most once a day, and only by groups of organisations, so that nobody can see what a single organisation sent."),
    b.models.length + b.bias.length > 0 ? "" : el("p", {}, b.day ? `On ${b.day} there were too few events.` : "The events have not been evaluated yet."),
    b.models.length ? figure("Models", b.models, (e) => e.model, { low: 0, high: 1 }) : "",
    ...b.bias.map((e) => figure(indicators[e.metric].title, [e], () => "All organisations", indicators[e.metric])));
}

const categories = ["coding", "math", "writing", "reasoning", "knowledge", "other"];

// The choices of each view. Their names are the parameters of its endpoint.
const choices = {
  report: ["sessions", "days", "since", "until", "reviewer", "model", "category", "language", "config_version", "model_version", "split"],
  leaderboard: ["sessions", "days", "since", "until", "reviewer", "model", "category", "language", "config_version", "model_version"],
};

const labels = {
  sessions: "Newest sessions, 0 for all", days: "Days back, 0 for all", since: "From", until: "Before",
  reviewer: "Reviewer, or the start of its name", model: "Model, or the start of its name", category: "Category", language: "Language",
  config_version: "Council version", model_version: "Model version", split: "Split by",
};

// open shows the choices, and under them what the daemon makes of them. It returns false if the call fails, and shows
// why.
async function open(name, path, section, signal, query) {
  query.delete("format"); // the choices do not include the format
  const asked = `${path}?${query}`;
  section.append(form(name, asked, query));
  const place = el("div");
  section.append(place);
  try {
    const html = await tryAgain(async () => (await call(`${asked}&format=html`)).text(), away(place), signal);
    if (signal.aborted) return false;
    place.replaceChildren(...contents(html));
    return true;
  } catch (error) {
    if (!signal.aborted) place.replaceChildren(problem(error));
    return false;
  }
}

const tags = new Set("main,section,div,h1,h2,h3,p,ul,li,b,span,small,details,summary,figure,figcaption,table,caption,thead,tbody,tr,th,td".split(","));
const drawn = new Set("svg,rect,line,text,g,circle".split(","));
const named = /^(class|id|scope|role|tabindex|aria-\w+|[xyr]|[xy][12]|[cd][xy]|width|height|transform|text-anchor)$/;
const characters = { amp: "&", lt: "<", gt: ">", "#34": '"', "#39": "'", "#43": "+" };

// contents returns what a page of the daemon shows below its heading. The policy of this page lets no browser parse a
// string as markup. So contents reads the few forms that the daemon writes, and builds only elements and attributes that
// show something. Anything else is an error.
function contents(html) {
  const text = (raw) => raw.replace(/&(#?\w+);/g, (whole, name) => characters[name] ?? whole);
  const open = [el("div")];
  const body = html.slice(html.indexOf("<main>"), html.indexOf("</main>") + "</main>".length);
  for (const [part, close, tag, given, empty] of body.matchAll(/<(\/?)([a-z0-9]+)((?:\s+[a-z0-9-]+="[^"]*")*)\s*(\/?)>|[^<]+|</g)) {
    if (tag === undefined) {
      open.at(-1).append(el("div", {}, text(part)).firstChild);
    } else if (close) {
      open.pop();
    } else {
      const attributes = Object.fromEntries([...given.matchAll(/([a-z0-9-]+)="([^"]*)"/g)].map(([, name, value]) => [name, text(value)]));
      if (!(tags.has(tag) || drawn.has(tag)) || !Object.keys(attributes).every((name) => named.test(name))) throw new Error(`unexpected ${part}`);
      const node = (drawn.has(tag) ? svg : el)(tag, attributes);
      open.at(-1).append(node);
      if (!empty) open.push(node);
    }
  }
  const main = open[0].firstChild;
  main.querySelector("h1").remove(); // this page has its own
  return [...main.childNodes];
}

// form lets the reader choose what the report covers. The choices are part of the address, so that a link shows the
// same report.
function form(name, asked, query) {
  const field = (key) => {
    const id = `${name}-${key}`, value = query.get(key) ?? "";
    const options = { category: ["", ...categories], split: ["", "category", "language"] }[key];
    const kind = {
      sessions: { inputmode: "numeric" }, days: { inputmode: "numeric" }, language: { maxlength: 2, placeholder: "en" },
      since: { placeholder: "2026-11-01" }, until: { placeholder: "2026-11-30" },
    };
    const option = (o) => el("option", { value: o, selected: o === value }, o || "any");
    const input = options ? el("select", { id, name: key }, options.map(option))
      : el("input", { id, name: key, value, autocomplete: "off", ...kind[key] });
    if (key === "split" && !value) input.options[0].textContent = "nothing";
    return el("div", {}, el("label", { for: id }, labels[key]), input);
  };
  const open = query.size > 0, failed = el("div", { role: "alert" });
  return el("div", { class: "choices" },
    el("details", { class: "fold", open }, el("summary", {}, "Choose sessions and models"),
      el("form", {
        class: "grid", onsubmit: (event) => {
          event.preventDefault();
          const chosen = new URLSearchParams([...new FormData(event.target)].filter(([, value]) => value.trim() !== ""));
          location.hash = `#/${name}${chosen.size ? `?${chosen}` : ""}`;
        },
      }, choices[name].map(field), el("div", { class: "row" }, el("button", { class: "primary" }, "Show"),
        el("a", { href: `#/${name}?days=30&sessions=0` }, "The last 30 days"), el("a", { href: `#/${name}` }, "Reset")))),
    el("div", { class: "tools" }, "Download:", ["json", "csv", "html", "text"].map((format) => el("button", {
      type: "button", class: "plain", "aria-label": `Download as ${format}`, onclick: async (event) => {
        try {
          failed.replaceChildren();
          save(await (await call(`${asked}&format=${format}`)).blob(), `${name}.${format === "text" ? "txt" : format}`);
        } catch (error) {
          failed.replaceChildren(problem(error));
        }
      },
    }, format.toUpperCase()))), failed);
}

// folded returns a folded table. If shown is true, the table is open, for short tables that are the main content.
function folded(caption, columns, rows, shown) {
  return el("details", { class: "fold", open: Boolean(shown) }, el("summary", {}, "The figures as a table"), table(caption, columns, rows));
}

const interval = (low, high) => (low == null || high == null ? "–" : `${number(low)} to ${number(high)}`);
