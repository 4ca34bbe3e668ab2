// What questions would cost, what sessions cost, and what is left of the limits. All figures are in US dollars. An
// unknown figure is called unknown, and is never 0.

import { call, get, getAgain } from "./api.js";
import { bar, cost } from "./audit.js";
import { away, count, el, problem, table, usd } from "./dom.js";

const whose = { day: "today’s", token: "this token’s daily" };

// left is a text that says how much of each limit is left.
const left = (limits) => limits.map((l) => `${usd(l.left_usd)} of ${whose[l.scope]} ${usd(l.limit_usd)} left`).join(", ");

// estimate shows in the element place what a question would cost. It changes nothing if the signal is aborted. It
// empties the element if the daemon is too old for estimates. The function part returns the part of the estimate that
// is shown.
export async function estimate(place, question, signal, part = (whole) => whole) {
  let said;
  try {
    const response = await call("v1/council/estimate", {
      method: "POST", body: JSON.stringify(question), headers: { "Content-Type": "application/json" }, signal, unasked: true,
    });
    said = estimated(part(await response.json()));
  } catch (error) {
    const [first] = error.body?.errors ?? [];
    said = error.status === 404 ? [] : [el("p", {}, `The cost is not known: ${
      first ? `${first.field}: ${first.message}` : error.body?.detail ?? "the daemon does not answer"}.`)];
  }
  if (signal.aborted) return;
  const now = el("div", {}, said);
  // A screen reader would read the same text again.
  if (now.textContent !== place.textContent) place.replaceChildren(...now.childNodes);
}

// further returns a part for estimate: the calls that are left after the members that began have answered. The argument
// is what their answers cost.
export const further = (cost) => (e) => {
  const minus = (whole, part) => (whole == null || part == null ? null : Math.max(0, whole - part));
  return {
    ...e, calls: e.calls - e.least_calls, least_calls: null,
    upper_usd: minus(e.upper_usd, e.least_usd), expected_usd: minus(e.expected_usd, cost),
  };
};

function estimated(e) {
  const fewer = e.least_calls != null && e.least_calls < e.calls;
  const most = e.upper_usd != null ? `at most ${usd(e.upper_usd)}${
    fewer && e.least_usd != null ? `, or ${usd(e.least_usd)} if the first answers are enough` : ""}`
    : `the most is unknown, because ${e.unpriced.length ? `there is no price for ${e.unpriced.join(", ")}`
      : "nothing limits how long the answers are"}`;
  const usual = e.expected_usd == null ? "their usual cost is not known yet" : `expected to cost ${usd(e.expected_usd)}${fewer ? " in all" : ""}`;
  const today = e.limits.filter((l) => l.scope !== "session");
  return [
    el("p", {}, `${fewer ? `${e.least_calls} to ` : ""}${count(e.calls, "call")}, ${usual}; ${most}.`),
    e.fits ? null : el("p", { class: "bad" }, `It would be refused: ${e.refusal ?? "it could exceed a cost limit"}`),
    e.fits && e.limits.length ? el("p", {}, `Within budget.${today.length ? ` ${left(today)}.` : ""}`) : null,
  ];
}

// bill shows in the element place what a session cost, how much of it is uncertain, and what is left of today's limits.
export async function bill(place, { metadata: { usage, warnings } }, signal) {
  const sum = usage.cost_usd == null ? "The cost is unknown." : `It cost ${cost(usage.total)}.`;
  const uncertain = warnings.find((w) => w.code === "cost_uncertain");
  const { limits } = await get("v1/spend?days=1").catch(() => ({ limits: [] })); // an older daemon has no limits
  if (signal.aborted) return;
  place.replaceChildren(el("p", {}, sum, uncertain ? ` ${uncertain.message}.` : null, limits.length ? ` ${left(limits)}.` : null));
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
  const [{ total_usd: total, uncertain_usd: uncertain, unknown_calls: unknown, limits, rows }] = reports;
  place.replaceChildren(
    el("p", { class: "lead" }, `${usd(total)} in all${uncertain > 0 ? `, of which at most ${usd(uncertain)} are uncertain` : ""}.`),
    unknown > 0 ? el("p", {}, `The cost of ${count(unknown, "call")} is unknown, and not in the sums.`) : "",
    limits.length ? el("p", {}, `${left(limits)}.`) : "",
    ...(rows.length === 0 ? [el("p", {}, "No session began in these days.")]
      : reports.map((r) => el("section", { class: "figure" }, el("h2", {}, `By ${r.by}`), costs(kinds[r.by], r)))),
    el("p", { class: "hint" }, "A session belongs to the day on which it began. Uncertain is the cost of calls that failed or were cut off. They count with "
      + "the most that they can have cost."));
}

function costs(title, { by, rows }) {
  const most = Math.max(...rows.map((r) => r.total_usd));
  return table(`What sessions cost, by ${by}`, [
    { title, cell: ({ key }) => (by === "day" ? el("time", { datetime: key }, key) : key || "not known") },
    { title: "Cost", numeric: true, cell: (r) => [bar(most > 0 ? r.total_usd / most : 0), usd(r.total_usd)] },
    { title: "Uncertain", numeric: true, cell: (r) => usd(r.uncertain_usd) },
    { title: "Unknown calls", numeric: true, cell: (r) => String(r.unknown_calls) },
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
