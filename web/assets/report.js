// What many sessions reveal: the bias report and the leaderboard. Each plot has the
// same figures as a table beside it.

import { getAgain } from "./api.js";
import { away, count, el, moment, number, svg, table } from "./dom.js";

// report shows the bias report.
export async function report(section, signal) {
  const r = await load("v1/bias-report", section, signal);
  if (signal.aborted) return;
  const needed = `${count(r.sessions_needed, "more session")} needed: any figure before that would be chance.`;
  section.append(el("div", {},
    el("p", { class: "lead" }, r.headline), covered(r),
    r.status === "collecting" ? [el("p", {}, needed)] : [
      el("p", { class: "hint" }, `A figure is called a bias when its q is below ${number(r.levels.below_50_sessions)} `
        + `(${number(r.levels.from_50_sessions)} from 50 sessions on) and it lies outside the band of effects that are too small to count. `
        + "“Would be found” is the effect that would be found with a probability of 80 %."),
      units(r.metrics).map(([unit, metrics]) => measured(unit, metrics)), profiles(r), positions(r.positions),
      changes(r.change_points), anomalies(r.anomalies), calibrated(r.calibrated),
    ], skipped(r.skipped), notMeasured(r.not_measured)));
}

// leaderboard shows the models ranked over many sessions.
export async function leaderboard(section, signal) {
  const l = await load("v1/leaderboard", section, signal);
  if (signal.aborted) return;
  section.append(el("p", { class: "lead" }, "For each model the mean over sessions of its normalised Borda score: 1 is always first, "
    + "0 is always last. Own answers never count."), covered(l));
  if (l.entries.length === 0) section.append(el("p", {}, "No session holds a ballot that counts yet."));
  for (const board of [{ ...l, title: "All sessions" }, ...l.categories.map((c) => ({ ...c, title: `Category ${c.category}` }))]) {
    if (board.entries.length === 0) continue;
    section.append(el("section", { class: "figure" },
      el("h2", {}, board.title), el("p", { class: "hint" }, count(board.sessions, "session")),
      plot(`Borda score with 95 % interval, ${board.title}`, board.entries.map((e) => ({
        label: `${e.rank}. ${e.model}`, estimate: e.borda_normalized, lower: e.ci_lower, upper: e.ci_upper,
      })), { low: 0, high: 1 }),
      table(`Leaderboard, ${board.title}`, [
        { title: "Rank", numeric: true, cell: (e) => String(e.rank) },
        { title: "Model", cell: (e) => e.model },
        { title: "Borda, 0 to 1", numeric: true, cell: (e) => number(e.borda_normalized) },
        { title: "95 % interval", numeric: true, cell: (e) => interval(e.ci_lower, e.ci_upper) },
        { title: "Firsts", numeric: true, cell: (e) => number(e.win_count, e.win_count % 1 ? 1 : 0) },
        { title: "Votes", numeric: true, cell: (e) => String(e.vote_count) },
        { title: "Sessions", numeric: true, cell: (e) => String(e.appearances) },
        { title: "Confidence", cell: (e) => e.statistical_confidence },
      ], board.entries)));
  }
  section.append(el("div", {}, skipped(l.skipped)));
}

// load returns the JSON at a path. While the daemon does not answer, the section says so.
async function load(path, section, signal) {
  const place = el("div");
  section.append(place);
  try {
    return await getAgain(path, away(place), signal);
  } finally {
    place.remove();
  }
}

function covered({ window: w, generated_at: at }) {
  return el("p", { class: "hint" }, `${count(w.sessions, "session")}, ${count(w.records, "record")}`,
    w.start ? [", from ", moment(w.start), " to ", moment(w.end)] : null, ". Computed ", moment(at), ".");
}

// units groups the metrics by unit. Groups with a verdict come before those that only
// describe.
function units(metrics) {
  const groups = new Map();
  for (const m of metrics) groups.set(m.unit, [...(groups.get(m.unit) ?? []), m]);
  const describes = ([, group]) => group.every((m) => m.verdict === null);
  return [...groups].sort((a, b) => describes(a) - describes(b));
}

// measured shows the metrics of one unit, and the members of those that are flagged or
// only describe. The members of any other headline prove nothing.
function measured(unit, metrics) {
  const unfolded = metrics.filter((m) => m.verdict === "bias" || m.verdict === "association" || m.delta == null);
  return el("section", { class: "figure" }, el("h2", {}, title(unit)), figure(unit, metrics, name),
    unfolded.filter((m) => m.members.length).map((m) => [
      el("h3", {}, `${title(m.metric_name)}, one by one`),
      figure(`${name(m)}, members`, m.members, (x) => x.subject || name(x)),
    ]));
}

const title = (unit) => unit[0].toUpperCase() + unit.slice(1).replaceAll("_", " ");

const name = (m) => m.metric_name.replaceAll("_", " ") + (m.subject ? ` (${m.subject})` : "");

const verdicts = {
  bias: "bias", association: "association", negligible: "negligible", inconclusive: "inconclusive",
  not_identified: "not identified", insufficient: "too few sessions",
};

function figure(title, metrics, label) {
  return [
    plot(`Estimates with 95 % intervals: ${title}`, metrics.map((m) => ({
      label: label(m), estimate: m.point_estimate, lower: m.ci_lower, upper: m.ci_upper, delta: m.delta,
      note: verdicts[m.verdict] ?? "descriptive", strong: m.verdict === "bias",
    }))),
    table(`Figures: ${title}`, [
      { title: "Metric", cell: (m) => label(m) },
      { title: "Estimate", numeric: true, cell: (m) => number(m.point_estimate) },
      { title: "95 % interval", numeric: true, cell: (m) => interval(m.ci_lower, m.ci_upper) },
      { title: "Verdict", cell: (m) => verdicts[m.verdict] ?? "descriptive" },
      { title: "q", numeric: true, cell: (m) => chance(m.q_value) },
      { title: "Would be found", numeric: true, cell: (m) => number(m.minimum_detectable_effect) },
      { title: "Sessions", numeric: true, cell: (m) => String(m.sample_size) },
      { title: "Records", numeric: true, cell: (m) => String(m.records) },
      { title: "Confidence", cell: (m) => m.statistical_confidence },
    ], metrics),
    el("details", {}, el("summary", {}, "Methods and reasons"),
      el("dl", {}, metrics.map((m) => el("div", {},
        el("dt", {}, label(m)), el("dd", {}, [m.method, m.reason, second(m)].filter(Boolean).join(". ")))))),
  ];
}

// second says what the second fit of a metric found, if it has one.
const second = ({ second_fit: s }) =>
  (s ? `With the reviewers’ discrimination taken out: ${number(s.point_estimate)}, p = ${chance(s.p_value)}` : null);

function profiles({ reviewers, prior }) {
  if (reviewers.length === 0) return null;
  return el("section", { class: "figure" }, el("h2", {}, "Reviewers"),
    plot("Relative harshness of each reviewer in points, with its 95 % credible interval",
      reviewers.map(({ reviewer_id: label, relative_harshness: h }) => (
        { label, estimate: h.point_estimate, lower: h.ci_lower, upper: h.ci_upper }))),
    el("p", { class: "hint" },
      `Relative harshness compares scores of the same answers, under a prior worth ${count(prior.sessions, "session")}. `,
      "A reviewer left of 0 is harsher than the others. ",
      "Drift is how far the later half of the scores lies from the earlier one, in standard deviations. These figures are not tested."),
    table("What each reviewer gave, own reviews included", [
      { title: "Reviewer", cell: (r) => r.reviewer_id },
      { title: "Relative harshness", numeric: true, cell: (r) => number(r.relative_harshness.point_estimate) },
      { title: "95 % interval", numeric: true, cell: (r) => interval(r.relative_harshness.ci_lower, r.relative_harshness.ci_upper) },
      { title: "Mean", numeric: true, cell: (r) => number(r.mean) },
      { title: "Spread (SD)", numeric: true, cell: (r) => number(r.std) },
      { title: "Harshness z", numeric: true, cell: (r) => number(r.harshness_z) },
      { title: "Drift", numeric: true, cell: (r) => number(r.drift_sd) },
      { title: "Scores", numeric: true, cell: (r) => String(r.reviews) },
    ], reviewers));
}

function positions(rows) {
  if (rows.length === 0) return null;
  const low = Math.floor(Math.min(...rows.map((p) => p.mean)) - 0.25), high = Math.ceil(Math.max(...rows.map((p) => p.mean)) + 0.25);
  return el("section", { class: "figure" }, el("h2", {}, "Positions on the slate"),
    plot("Mean score at each position", rows.map((p) => ({ label: `Position ${p.position}`, estimate: p.mean })),
      { low, high, parts: high - low }),
    table("Scores at each position, 0 being shown first", [
      { title: "Position", cell: (p) => String(p.position) },
      { title: "Mean", numeric: true, cell: (p) => number(p.mean) },
      { title: "Scores", numeric: true, cell: (p) => String(p.count) },
    ], rows));
}

function changes(rows) {
  const caption = "Where a reviewer’s relative harshness may have changed";
  return rows.length === 0 ? null : el("section", {}, el("h2", {}, "Change points"), table(caption, [
    { title: "Reviewer", cell: (c) => c.reviewer_id },
    { title: "From", cell: (c) => moment(c.start) },
    { title: "Before", numeric: true, cell: (c) => number(c.before) },
    { title: "After", numeric: true, cell: (c) => number(c.after) },
    { title: "q", numeric: true, cell: (c) => chance(c.q_value) },
    { title: "Verdict", cell: (c) => (c.flagged ? "change" : "no more than chance") },
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
  return rows.length === 0 ? null : el("section", {}, el("h2", {}, "Calibrated view"),
    el("p", { class: "hint" }, "How each reviewer places each model, in standard deviations of its own scores. It changes no vote."),
    table("Calibrated scores", [
      { title: "Reviewer", cell: (c) => c.reviewer_id },
      { title: "Model", cell: (c) => c.model_id },
      { title: "z", numeric: true, cell: (c) => number(c.z) },
      { title: "Scores", numeric: true, cell: (c) => String(c.reviews) },
    ], rows));
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

// chance writes a p or q value as papers do.
const chance = (p) => (p != null && p < 0.001 ? "< 0.001" : number(p, 3));

const interval = (low, high) => (low == null || high == null ? "–" : `${number(low)} to ${number(high)}`);

const side = 22, row = 44; // margin and height of a row in a plot, in pixels

// plot draws estimates with their intervals over one axis. By default the axis is
// centred on 0. A band shows the effects that are too small to count.
function plot(title, rows, axis) {
  const drawn = rows.filter((r) => r.estimate != null);
  if (drawn.length === 0) return el("p", { class: "hint" }, "There is no figure to draw.");
  if (!axis) {
    const most = Math.max(...drawn.flatMap((r) => [r.estimate, r.lower, r.upper, r.delta].map((v) => Math.abs(v ?? 0))));
    const high = round(most * 1.05 || 1);
    axis = { low: -high, high };
  }
  const width = Math.min(640, document.getElementById("main").clientWidth - 32); // texts keep their size on a phone
  const x = (value) => side + (Math.min(axis.high, Math.max(axis.low, value)) - axis.low) / (axis.high - axis.low) * (width - 2 * side);
  const height = drawn.length * row + 30;
  const parts = axis.parts ?? 4;
  const marks = Array.from({ length: parts + 1 }, (_, i) => axis.low + i * (axis.high - axis.low) / parts);
  const label = `${title}. The table below holds the figures.`;
  return svg("svg", { class: "plot", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    marks.map((mark) => [
      svg("line", { class: mark === 0 ? "zero" : "grid", x1: x(mark), x2: x(mark), y1: 4, y2: height - 24 }),
      svg("text", { class: "mark", x: x(mark), y: height - 8, "text-anchor": "middle" }, number(mark, axis.parts ? 0 : 2)),
    ]),
    drawn.map((r, i) => {
      const top = i * row, middle = top + 31;
      return [
        svg("text", { x: side, y: top + 18 }, r.label),
        r.note ? svg("text", {
          class: r.strong ? "note strong" : "note", x: width - side, y: top + 18, "text-anchor": "end",
        }, r.note) : null,
        r.delta ? svg("rect", { class: "band", x: x(-r.delta), y: middle - 7, width: x(r.delta) - x(-r.delta), height: 14 }) : null,
        r.lower == null || r.upper == null ? null
          : svg("line", { class: "interval", x1: x(r.lower), x2: x(r.upper), y1: middle, y2: middle }),
        svg("circle", { class: "estimate", cx: x(r.estimate), cy: middle, r: 5 }),
      ];
    }));
}

// round rounds up to 1, 2 or 5 times a power of ten.
function round(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value * 0.999);
}
