// What questions would cost, what sessions cost, and what is left of the limits. The daemon makes the sentences.

import { call, get, getAgain } from "./api.js";
import { bar } from "./audit.js";
import { away, el, problem, table, usd } from "./dom.js";

// estimate shows in the element place what a question would cost. It changes nothing if the signal is aborted. It
// leaves the element as it is if the daemon is too old for estimates. The function part returns the part of the
// estimate that is shown.
export async function estimate(place, question, signal, part = (whole) => whole) {
  let said;
  try {
    const response = await call("v1/council/estimate", {
      method: "POST", body: JSON.stringify(question), headers: { "Content-Type": "application/json" }, signal, unasked: true,
    });
    said = estimated(part(await response.json()));
  } catch (error) {
    if (error.status === 404) return;
    const [first] = error.body?.errors ?? [];
    said = [el("p", {}, `No estimate: ${first?.message ?? error.body?.detail ?? "the daemon does not answer"}.`)];
  }
  if (signal.aborted) return;
  const now = el("div", {}, said);
  // A screen reader would read the same text again.
  if (now.textContent !== place.textContent) place.replaceChildren(...now.childNodes);
}

// further returns a part for estimate: the calls that are left after the members that began have answered.
export const further = () => (e) => ({ ...e, sentence: e.rest_sentence });

const estimated = ({ sentence, budget_sentence: budget, fits }) =>
  [el("p", {}, sentence), budget ? [" ", el("p", { class: fits ? null : "bad" }, budget)] : null];

// bill shows in the element place what a session cost, how much of it is uncertain, and what is left of the limits. It
// shows nothing if the daemon does not answer, or is too old for bills.
export async function bill(place, { session_id: id }, signal) {
  const cost = await get(`v1/council/${encodeURIComponent(id)}/cost`, { unasked: true }).catch(() => null);
  if (cost !== null && !signal.aborted) place.replaceChildren(el("p", {}, cost.sentence));
}

const kinds = { day: "Day (UTC)", council: "Council", model: "Model" };

// spend shows the cost of the sessions of the last days.
export async function spend(section, signal, _, query) {
  const days = query.get("days") ?? "30";
  section.append(form(days));
  const place = el("div");
  section.append(place);
  const reports = [];
  try {
    for (const by of Object.keys(kinds)) {
      reports.push(await getAgain(`v1/spend?${new URLSearchParams({ days, by })}`, away(place), signal));
    }
  } catch (error) {
    if (!signal.aborted) place.replaceChildren(problem(error));
    return;
  }
  if (signal.aborted) return;
  const [{ sentence, limits, rows }] = reports;
  place.replaceChildren(
    el("p", { class: "lead" }, sentence),
    limits.length ? el("p", {}, limits.map((l) => l.sentence).join(" ")) : "",
    ...(rows.length === 0 ? []
      : reports.map((r) => el("section", { class: "figure" }, el("h2", {}, `By ${r.by}`), costs(kinds[r.by], r)))),
    rows.length === 0 ? "" : el("p", { class: "hint" }, "A session counts for the day on which it began. If a call failed or was cut off, "
      + "its cost is uncertain. The sums contain the most that it can have cost."));
}

function costs(title, { by, rows }) {
  const most = Math.max(...rows.map((r) => r.total_usd));
  return table(`What sessions cost, by ${by}`, [
    { title, cell: ({ key }) => (by === "day" ? el("time", { datetime: key }, key) : key || "not known") },
    { title: "Cost", numeric: true, cell: (r) => [bar(most > 0 ? r.total_usd / most : 0), usd(r.total_usd)] },
    { title: "Uncertain", numeric: true, cell: (r) => usd(r.uncertain_usd) },
    { title: "Calls of unknown cost", numeric: true, cell: (r) => String(r.unknown_calls) },
    { title: "Calls", numeric: true, cell: (r) => String(r.calls) },
    { title: "Sessions", numeric: true, cell: (r) => String(r.sessions) },
  ], rows);
}

function form(days) {
  return el("form", {
    class: "row", onsubmit: (event) => {
      event.preventDefault();
      location.hash = `#/spend?${new URLSearchParams(new FormData(event.target))}`;
    },
  }, el("label", { for: "spend-days" }, "Days back, 0 for all"),
  el("input", { id: "spend-days", name: "days", class: "short", value: days, inputmode: "numeric", autocomplete: "off" }),
  el("button", { class: "primary" }, "Show"));
}
