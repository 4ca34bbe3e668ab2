// What many sessions reveal: the bias report and the leaderboard. Words come first. Under each plot, a folded table has
// the figures of the plot.

import { call, get, getAgain } from "./api.js";
import { away, count, el, moment, number, problem, save, table } from "./dom.js";
import { plot } from "./plot.js";

// report shows the bias report of the sessions that a query selects.
export async function report(section, signal, _, query) {
  const r = await open("report", "v1/bias-report", section, signal, query);
  if (!r) return;
  const needed = `${count(r.sessions_needed, "more session")} needed: any figure before that would be chance.`;
  section.append(el("div", {},
    el("p", { class: "lead" }, r.headline), covered(r), matched(r.filters),
    r.repeats?.note ? el("p", { class: "hint" }, r.repeats.note) : "",
    r.status === "collecting" ? [el("p", {}, needed)] : [
      findings(r.metrics.filter((m) => m.kind === "favour")),
      el("p", {}, "Seen apart from favours. None of it moves a ranking by itself."),
      findings(r.metrics.filter((m) => m.kind !== "favour")),
      el("p", { class: "hint" }, `An effect is found when its q is below ${number(r.levels.below_50_sessions)} `
        + `(${number(r.levels.from_50_sessions)} from 50 sessions on) and it lies outside the band of effects that are too small to count. `
        + "“Would be found” is the effect that would be found with a probability of 80 %, and “Of one reviewer” is the same for an effect that "
        + "only one reviewer has."),
      splits(r.splits), units(r.metrics).map(([unit, metrics]) => measured(unit, metrics)), profiles(r), series(r.series),
      positions(r.positions), modelPositions(r.model_positions), changes(r.change_points), anomalies(r.anomalies), calibrated(r.calibrated),
    ], evidence(r.evidence), skipped(r.skipped), notMeasured(r.not_measured)));
}

// leaderboard ranks the models over the sessions that a query selects.
export async function leaderboard(section, signal, _, query) {
  if (query.get("scope") === "events") return eventBoard(section, signal, query);
  const l = await open("leaderboard", "v1/leaderboard", section, signal, query);
  if (!l) return;
  section.append(el("p", { class: "lead" }, "For each model the mean over sessions of its normalised Borda score: 1 is always first, "
    + "0 is always last. Own answers never count."), covered(l), matched(l.filters));
  if (l.boards.length === 0) section.append(el("p", {}, "No session holds a ballot that counts yet."));
  if (l.boards.length > 1) {
    section.append(el("p", {}, "Some models were never ranked together, not even through others. "
      + "The records cannot compare them, so each council has its own list."));
  }
  const titled = (title, boards) => boards.map((b, i) => ({ ...b, title: boards.length > 1 ? `${title}, council ${i + 1}` : title }));
  for (const board of [...titled(l.category ? `Category ${l.category}` : "All sessions", l.boards),
    ...(l.category ? [] : l.categories.flatMap((c) => titled(`Category ${c.category}`, c.boards)))]) {
    section.append(el("section", { class: "figure" },
      el("h2", {}, board.title), el("p", { class: "hint" }, `${count(board.sessions, "session")}. ${board.note}`),
      plot(`Borda score with 95 % interval, ${board.title}`, board.entries.map((e) => ({
        label: `${e.rank}. ${e.model}`, estimate: e.borda_normalized, lower: e.ci_lower, upper: e.ci_upper, note: e.statistical_confidence,
      })), { low: 0, high: 1 }),
      folded(`Leaderboard, ${board.title}`, [
        { title: "Rank", numeric: true, cell: (e) => String(e.rank) },
        { title: "Model", cell: (e) => e.model },
        { title: "Borda, 0 to 1", numeric: true, cell: (e) => number(e.borda_normalized) },
        { title: "95 % interval", numeric: true, cell: (e) => interval(e.ci_lower, e.ci_upper) },
        { title: "Places open", numeric: true, cell: ({ place_lower: a, place_upper: b }) => (a === b ? String(a) : `${a} to ${b}`) },
        { title: "Firsts", numeric: true, cell: (e) => number(e.win_count, e.win_count % 1 ? 1 : 0) },
        { title: "Votes", numeric: true, cell: (e) => String(e.vote_count) },
        { title: "Sessions", numeric: true, cell: (e) => String(e.appearances) },
        { title: "Tier", cell: (e) => e.statistical_confidence },
      ], board.entries, true)));
  }
  section.append(el("div", {}, skipped(l.skipped)));
  if ((await get("v1/councils")).takes_events && !signal.aborted) {
    section.append(el("p", {}, el("a", { href: "#/leaderboard?scope=events" }, "The board over the events of other organisations")));
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
    folded(title, [{ title: "Of", cell: name }, ...columns], rows, true));
  place.replaceChildren(
    el("p", { class: "lead" }, "Each figure is the mean over organisations that agreed to send events. Each organisation counts once, with its own mean."),
    el("p", { class: "hint" }, `A row takes ${b.min_organisations} organisations with ${b.min_sessions} sessions each. `
      + "It changes once a day at most, and only with groups of organisations, so that no one can tell what a single organisation sent."),
    b.models.length + b.bias.length > 0 ? "" : el("p", {}, b.day ? `On ${b.day} there were too few events.` : "The events were not looked at yet."),
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
  reviewer: "Reviewer, or how it begins", model: "Model, or how it begins", category: "Category", language: "Language",
  config_version: "Council version", model_version: "Model version", split: "Split by",
};

// open shows the choices, and returns the answer of the endpoint for these choices. If the call fails, open shows the
// problem under the choices and returns null.
async function open(name, path, section, signal, query) {
  query.delete("format"); // the page reads JSON
  const asked = `${path}?${query}`;
  section.append(form(name, asked, query));
  const waiting = el("div");
  section.append(waiting);
  try {
    const got = await getAgain(asked, away(waiting), signal);
    waiting.remove();
    return signal.aborted ? null : got;
  } catch (error) {
    if (!signal.aborted) waiting.replaceChildren(problem(error));
    return null;
  }
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

// matched is a list that says which members a filter with a part of an id matches.
function matched(filters) {
  return filters?.length ? el("ul", { class: "hint" }, filters.map((f) => el("li", {}, f.left_out
    ? `${f.field} “${f.asked}” leaves out ${count(f.left_out, "record")}${f.present.length ? `, of ${f.present.join(", ")}` : ""}. `
      + "Without that filter they count."
    : f.matches.length
    ? `${f.field} “${f.asked}”: ${f.matches.join(", ")}`
    : `${f.field} “${f.asked}” is not in these records. They have: ${f.present.join(", ") || "none"}`))) : "";
}

// findings says for each headline in a sentence what was found, or what could have been found. Favours come first.
function findings(metrics) {
  const order = ["favour", "inconclusive", "negligible", "not_identified", "insufficient", "differs", "changed", "association", "alike"];
  const tested = metrics.filter((m) => m.verdict !== null && m.delta != null)
    .sort((a, b) => order.indexOf(a.verdict) - order.indexOf(b.verdict));
  return el("ul", { class: "findings" }, tested.map((m) => el("li", {},
    el("span", { class: `verdict ${m.verdict}` }, verdicts[m.verdict]), " ",
    el("div", {}, m.sentence, m.point_estimate == null ? null : el("span", { class: "hint" }, ` Tier: ${m.statistical_confidence}.`),
      found(m) && m.members.length ? el("ul", {}, m.members.filter((x) => x.verdict === m.verdict && x.subject !== m.subject)
        .map((x) => el("li", {}, x.sentence))) : null))));
}

// folded returns a folded table. If shown is true, the table is open, for short tables that are the main content.
function folded(caption, columns, rows, shown) {
  return el("details", { class: "fold", open: Boolean(shown) }, el("summary", {}, "The figures as a table"), table(caption, columns, rows));
}

function covered({ window: w, generated_at: at }) {
  return el("p", { class: "hint" }, `${count(w.sessions, "session")}, ${count(w.records, "record")}`,
    w.limit_days || w.limit_sessions ? `, of ${[
      w.limit_sessions && `the newest ${w.limit_sessions}`, w.limit_days && `the last ${w.limit_days} days`,
    ].filter(Boolean).join(" within ")}` : null,
    w.start ? [", from ", moment(w.start), " to ", moment(w.end)] : null, ". Computed ", moment(at), ".");
}

// units groups the metrics by unit. Groups with a verdict come before those that only describe.
function units(metrics) {
  const groups = new Map();
  for (const m of metrics) groups.set(m.unit, [...(groups.get(m.unit) ?? []), m]);
  const describes = ([, group]) => group.every((m) => m.verdict === null);
  return [...groups].sort((a, b) => describes(a) - describes(b));
}

// measured shows the metrics of one unit. It lists members only for metrics that have a finding or only describe. In
// other metrics, the figures of single members prove nothing.
function measured(unit, metrics) {
  const unfolded = metrics.filter((m) => found(m) || m.delta == null);
  return el("section", { class: "figure" }, el("h2", {}, title(unit)), figure(unit, metrics, name),
    unfolded.filter((m) => m.members.length).map((m) => [
      el("h3", {}, `${title(m.metric_name)}, one by one`),
      figure(`${name(m)}, members`, m.members, (x) => subject(x) || (x.in_common ? "all reviewers in common" : name(x))),
    ]));
}

const title = (unit) => unit[0].toUpperCase() + unit.slice(1).replaceAll("_", " ");

const name = (m) => m.topic + (m.subject ? ` (${subject(m)})` : "");

// subject names the subject of a figure, such as a member. A position is named as a place, counted from 1.
const subject = (m) => (m.metric_name.startsWith("position") && m.unit !== "of pairs" ? place(m.subject) : m.subject);

const place = (subject) => subject.replace(/^\d+(?= of \d+$|$)/, (n) => `place ${Number(n) + 1}`);

// found is true if a metric found an effect.
const found = (m) => ["favour", "differs", "changed", "association"].includes(m.verdict);

const verdicts = {
  favour: "favour", differs: "differs", changed: "changed", association: "association", negligible: "negligible", alike: "alike",
  inconclusive: "inconclusive",
  not_identified: "not identified", insufficient: "too few sessions",
};

function figure(title, metrics, label) {
  return [
    plot(`Estimates with 95 % intervals: ${title}`, metrics.map((m) => ({
      label: label(m), estimate: m.point_estimate, lower: m.ci_lower, upper: m.ci_upper, delta: m.delta,
      note: verdicts[m.verdict] ?? "descriptive", strong: m.verdict === "favour",
    })), metrics[0].unit === "Kendall's W" ? { low: 0, high: 1 } : undefined),
    folded(`Figures: ${title}`, [
      { title: "Metric", cell: (m) => label(m) },
      { title: "Estimate", numeric: true, cell: (m) => number(m.point_estimate) },
      { title: "95 % interval", numeric: true, cell: (m) => interval(m.ci_lower, m.ci_upper) },
      { title: "Verdict", cell: (m) => verdicts[m.verdict] ?? "descriptive" },
      { title: "q", numeric: true, cell: (m) => chance(m.q_value) },
      { title: "Would be found", numeric: true, cell: (m) => number(m.minimum_detectable_effect) },
      { title: "Of one reviewer", numeric: true, cell: (m) => number(m.detectable_single) },
      { title: "Sessions", numeric: true, cell: (m) => String(m.sample_size) },
      { title: "Records", numeric: true, cell: (m) => String(m.records) },
      { title: "Tier", cell: (m) => m.statistical_confidence },
    ], metrics),
    el("details", { class: "fold" }, el("summary", {}, "Methods and reasons"),
      el("dl", {}, metrics.map((m) => el("div", {},
        el("dt", {}, label(m)), el("dd", {}, [m.method, m.reason, ownScale(m)].filter(Boolean).join(". ")))))),
  ];
}

// ownScale says by how many points an effect moves the scores on the reviewers' own scales. On these scales, scores
// cannot pass the ends.
const ownScale = ({ on_own_scale: points }) => (points == null ? null : `On the reviewers’ own scales, which have ends: ${number(points)} points`);

function profiles({ reviewers, prior }) {
  if (reviewers.length === 0) return null;
  return el("section", { class: "figure" }, el("h2", {}, "Reviewers"),
    plot("Relative harshness of each reviewer in points, with its 95 % credible interval",
      reviewers.map(({ reviewer_id: label, relative_harshness: h }) => (
        { label, estimate: h.point_estimate, lower: h.ci_lower, upper: h.ci_upper }))),
    el("p", { class: "hint" },
      `Relative harshness compares scores of the same answers, under a prior worth ${count(prior.sessions, "session")}. `,
      "A reviewer left of 0 is harsher than the others. ",
      "Drift is how far the later half of the scores lies from the earlier half, in standard deviations. These figures are not tested."),
    folded("What each reviewer gave, own reviews included", [
      { title: "Reviewer", cell: (r) => r.reviewer_id },
      { title: "Relative harshness", numeric: true, cell: (r) => number(r.relative_harshness.point_estimate) },
      { title: "95 % interval", numeric: true, cell: (r) => interval(r.relative_harshness.ci_lower, r.relative_harshness.ci_upper) },
      { title: "Mean", numeric: true, cell: (r) => number(r.mean) },
      { title: "95 % interval", numeric: true, cell: (r) => interval(r.mean_ci_lower, r.mean_ci_upper) },
      { title: "Spread (SD)", numeric: true, cell: (r) => number(r.std) },
      { title: "Harshness z", numeric: true, cell: (r) => number(r.harshness_z) },
      { title: "95 % interval", numeric: true, cell: (r) => interval(r.harshness_z_ci_lower, r.harshness_z_ci_upper) },
      { title: "Drift", numeric: true, cell: (r) => number(r.drift_sd) },
      { title: "Scores", numeric: true, cell: (r) => String(r.reviews) },
      { title: "Tier", cell: (r) => r.statistical_confidence },
    ], reviewers));
}

// series shows the reviewers' relative harshness over rolling windows.
function series(points) {
  if (!points?.length) return null;
  const reviewers = [...new Set(points.flatMap((p) => p.reviewers.map((r) => r.reviewer_id)))].sort();
  return el("section", {}, el("h2", {}, "Over time"),
    el("p", { class: "hint" }, "Relative harshness in points over rolling windows. Each window shares half of its sessions with "
      + "the next one. These figures are not tested: drift and change points are."),
    folded("Rolling windows", [
      { title: "From", cell: (p) => moment(p.start) },
      { title: "To", cell: (p) => moment(p.end) },
      { title: "Sessions", numeric: true, cell: (p) => String(p.sessions) },
      { title: "Mean score", numeric: true, cell: (p) => number(p.mean_score) },
      ...reviewers.map((id) => ({
        title: id, numeric: true, cell: (p) => number(p.reviewers.find((r) => r.reviewer_id === id)?.relative_harshness),
      })),
    ], points, true));
}

function positions(rows) {
  if (rows.length === 0) return null;
  const ends = rows.flatMap((p) => [p.ci_lower ?? p.mean, p.ci_upper ?? p.mean]);
  const low = Math.max(1, Math.floor(Math.min(...ends) - 0.25)), high = Math.min(10, Math.ceil(Math.max(...ends) + 0.25));
  return el("section", { class: "figure" }, el("h2", {}, "Places on the slate"),
    plot("Mean score at each place, with its 95 % interval", rows.map((p) => (
      { label: `Place ${p.position + 1}`, estimate: p.mean, lower: p.ci_lower, upper: p.ci_upper })), { low, high, parts: high - low }),
    folded("Scores at each place, 1 being shown first", [
      { title: "Place", cell: (p) => String(p.position + 1) },
      { title: "Mean", numeric: true, cell: (p) => number(p.mean) },
      { title: "95 % interval", numeric: true, cell: (p) => interval(p.ci_lower, p.ci_upper) },
      { title: "Scores", numeric: true, cell: (p) => String(p.count) },
    ], rows));
}

// modelPositions shows the mean score of each model at each place, as a table.
function modelPositions(rows) {
  if (!rows?.length) return null;
  const places = [...new Set(rows.map((r) => r.position))].sort((a, b) => a - b);
  return el("section", {}, el("h2", {}, "Models at each place"),
    el("p", { class: "hint" }, "Mean score of each model’s answers, with its 95 % interval. These figures are not tested."),
    folded("Mean scores of models by place", [
      { title: "Model", cell: (m) => m },
      ...places.map((at) => ({
        title: `Place ${at + 1}`, numeric: true, cell: (m) => {
          const cell = rows.find((r) => r.model_id === m && r.position === at);
          return cell ? `${number(cell.mean)} (${interval(cell.ci_lower, cell.ci_upper)})` : "–";
        },
      })),
    ], [...new Set(rows.map((r) => r.model_id))]));
}

// splits describes the sessions of each category or language.
function splits(rows) {
  return rows?.length ? rows.map((s) => el("section", {}, el("h2", {}, s.value ?? `No ${s.by}`),
    el("p", { class: "hint" }, `${count(s.sessions, "session")}, ${count(s.records, "score")}. Splitting gives more figures, `
      + "and so more differences that are only chance. These figures are not tested."),
    plot(`Mean score of each model, ${s.value ?? `no ${s.by}`}`, s.models.map((m) => (
      { label: m.model_id, estimate: m.mean, lower: m.ci_lower, upper: m.ci_upper })), { low: 1, high: 10, parts: 9 }),
    folded(`Mean scores, ${s.value ?? `no ${s.by}`}`, [
      { title: "Model", cell: (m) => m.model_id },
      { title: "Mean", numeric: true, cell: (m) => number(m.mean) },
      { title: "95 % interval", numeric: true, cell: (m) => interval(m.ci_lower, m.ci_upper) },
      { title: "Scores", numeric: true, cell: (m) => String(m.count) },
    ], s.models))) : null;
}

const preferences = {
  synthesis_preferred: " prefer the final answer to the answer that was ranked first.",
  top_preferred: " prefer the answer that was ranked first to the final answer.",
  equal: " prefer neither: the share is within 0.05 of one half.",
  inconclusive: ": these sessions do not tell which answer is preferred.",
  insufficient: ": too few sessions to tell.",
};

// evidence says what reviewers and people prefer, with 95 % intervals.
function evidence(e) {
  if (!e) return null;
  const { shadow, people } = e;
  const share = (name, sessions, s) => (s ? [{ name, sessions, estimate: s.estimate, lower: s.ci95[0], upper: s.ci95[1] }] : []);
  const shares = [
    ...share("Reviewers, for the final answer", shadow.sessions, shadow.synthesis),
    ...share("The same at equal length", shadow.sessions, shadow.at_equal_length),
    ...share("Reviewers, for the text shown first", shadow.sessions, shadow.first_shown),
    ...share("People, for the final answer", people.labelled, people.synthesis),
    ...share("People, helped by reviewers", people.with_reviewers?.labelled, people.with_reviewers),
    ...(people.verdict === "insufficient" || people.wanted === people.labelled ? [] : [
      ...share("If silent people prefer the first", people.wanted, people.if_the_others_prefer_the_top),
      ...share("If they prefer the final answer", people.wanted, people.if_the_others_prefer_the_synthesis),
    ]),
  ];
  const orders = ({ borda, reviewers }, behind) => [
    ...(borda ? [{ id: `The council${behind}`, ...borda }] : []), ...reviewers.map((r) => ({ ...r, id: `${r.id}${behind}` })),
  ];
  const agreements = [...orders(people.agreement, ""), ...orders(people.unasked.agreement, ", unasked")];
  return el("section", { class: "figure" }, el("h2", {}, "Does the council pay?"),
    el("p", { class: "hint" }, "How often the final answer is preferred to the answer that the council ranked first. This shows the taste "
      + "of the council’s own members or of people, and not which answer is right."),
    el("p", {}, `Reviewers that wrote neither text${preferences[shadow.verdict]}`),
    people.wanted ? el("p", {}, `People${preferences[people.verdict]} In ${people.labelled} of ${count(people.wanted, "session")} that people `
      + "were asked about, they compared both answers.") : null,
    people.reviewers_add === false ? el("p", {}, "The opinions of reviewers add nothing to those of people.") : null,
    people.dominant ? el("p", {}, `More than half of the labels are of one person, ${people.dominant}.`) : null,
    people.unasked.labels ? el("p", {}, `${count(people.unasked.labels, "label")} of sessions that nobody asked about represent only `
      + "the people who gave them.") : null,
    shares.length ? [
      plot("How often each is preferred, with its 95 % interval", shares.map((s) => ({ label: s.name, ...s })), { low: 0, high: 1 }),
      folded("How often each is preferred", [
        { title: "Preference", cell: (s) => s.name },
        { title: "Share", numeric: true, cell: (s) => number(s.estimate) },
        { title: "95 % interval", numeric: true, cell: (s) => interval(s.lower, s.upper) },
        { title: "Sessions", numeric: true, cell: (s) => String(s.sessions) },
      ], shares)] : null,
    agreements.length ? folded("How often answers are ordered as people order them; chance is 0.50", [
      { title: "Order of", cell: (a) => a.id },
      { title: "Agrees", numeric: true, cell: (a) => number(a.share) },
      { title: "95 % interval", numeric: true, cell: (a) => (a.interval ? interval(...a.interval.ci95) : "–") },
      { title: "Pairs", numeric: true, cell: (a) => String(a.pairs) },
      { title: "Sessions", numeric: true, cell: (a) => String(a.sessions) },
    ], agreements, true) : null,
    skipped(e.skipped));
}

function changes(rows) {
  const caption = "Where a reviewer’s relative harshness may have changed";
  return rows.length === 0 ? null : el("section", {}, el("h2", {}, "Change points"), table(caption, [
    { title: "Reviewer", cell: (c) => c.reviewer_id },
    { title: "From", cell: (c) => moment(c.start) },
    { title: "Before", numeric: true, cell: (c) => number(c.before) },
    { title: "After", numeric: true, cell: (c) => number(c.after) },
    { title: "q", numeric: true, cell: (c) => chance(c.q_value) },
    {
      title: "Verdict", cell: (c) => c.sentence || "no more than chance",
    },
  ], rows));
}

function anomalies({ cells, found, limits }) {
  if (found.length === 0) return null;
  return el("section", {}, el("h2", {}, "Unusual sessions"), el("p", { class: "hint" }, `Limits: ${limits}.`),
    table(`Found among ${cells} pairs of a reviewer and a question`, [
      { title: "Session", cell: (a) => a.session_id },
      { title: "Time", cell: (a) => moment(a.start) },
      { title: "Reviewer", cell: (a) => a.reviewer_id },
      { title: "Points", numeric: true, cell: (a) => number(a.value) },
      { title: "Usual", numeric: true, cell: (a) => number(a.usual) },
      { title: "q", numeric: true, cell: (a) => chance(a.q_value) },
    ], found));
}

function calibrated(rows) {
  return rows.length === 0 ? null : el("section", {}, el("h2", {}, "Raw and calibrated"),
    el("p", { class: "hint" }, "How each reviewer places each model, in standard deviations of its own scores. It changes no vote."),
    folded("Raw and calibrated scores", [
      { title: "Reviewer", cell: (c) => c.reviewer_id },
      { title: "Model", cell: (c) => c.model_id },
      { title: "Raw mean", numeric: true, cell: (c) => number(c.mean) },
      { title: "z", numeric: true, cell: (c) => number(c.z) },
      { title: "Scores", numeric: true, cell: (c) => String(c.reviews) },
    ], rows, rows.length <= 20));
}

function skipped(rows) {
  return rows.length === 0 ? null : el("section", {}, el("h2", {}, "Left out"), table("Records that could not be used", [
    { title: "Reason", cell: (s) => s.reason },
    { title: "Records", numeric: true, cell: (s) => String(s.count) },
    { title: "First line", cell: (s) => (s.first_line == null ? "–" : `${s.first_file}:${s.first_line}`) },
  ], rows));
}

function notMeasured(rows) {
  return rows.length === 0 ? null : el("section", {}, el("h2", {}, "Not measured"),
    el("dl", {}, rows.map((n) => el("div", {}, el("dt", {}, n.name.replaceAll("_", " ")), el("dd", {}, n.reason)))));
}

// chance writes a p or q value in the form that papers use.
const chance = (p) => (p != null && p < 0.001 ? "< 0.001" : number(p, 3));

const interval = (low, high) => (low == null || high == null ? "–" : `${number(low)} to ${number(high)}`);
