// The figures of a session: the ranking, the audit, and its time and cost.

import { count, el, nth, number, seconds, svg, table, usd } from "./dom.js";

// spent is a text that says how much time, how many tokens and what cost a seat's answer or review took.
export function spent({ attempts, usage, latency_ms: ms }) {
  const tokens = usage.output_tokens == null ? "tokens unknown" : atLeast(usage, count(usage.output_tokens, "output token"));
  return [seconds(ms), attempts === 1 ? null : count(attempts, "attempt"), tokens, costing(usage)].filter(Boolean).join(" · ");
}

// atLeast marks a figure as a lower bound if some requests did not report theirs.
const atLeast = ({ partial }, figure) => (partial ? `at least ${figure}` : figure);

// cost writes the cost of a usage. The text from costing also says that the figure is a cost.
export const cost = (usage) => (usage.cost_usd == null ? "unknown" : atLeast(usage, usd(usage.cost_usd)));
export const costing = (usage) => (usage.cost_usd == null ? "cost unknown" : cost(usage));

// bar draws a share from 0 to 1. The caller writes the figure beside the bar.
export function bar(share) {
  return svg("svg", { class: "bar", "aria-hidden": "true" }, svg("rect", { width: "100%", height: "100%", rx: 4 }),
    svg("rect", { class: "filled", width: `${100 * share}%`, height: "100%", rx: 4 }));
}

// share shows a share of the votes, or a dash if it is not known.
export const share = (value) => (value == null ? "–" : [bar(value), number(value)]);

// standings shows the ranking as a table.
export function standings({ aggregate_rankings: rows, agreement }) {
  if (rows.length === 0) return [el("p", {}, "There is no ranking, because no ballot could be counted.")];
  const support = new Map(agreement.winner_support.map((s) => [s.model, s.support]));
  const swayed = agreement.leave_one_out.filter((o) => o.changes);
  return [
    table("Borda count over the ballots", [
      { title: "Place", numeric: true, cell: (s) => nth(s.final_rank, rows.map((row) => row.final_rank)) },
      { title: "Answer by", cell: (s) => s.model },
      { title: "Borda, 0 to 1", numeric: true, cell: (s) => share(s.borda_normalized) },
      { title: "Firsts", numeric: true, cell: (s) => number(s.win_count, s.win_count % 1 ? 2 : 0) },
      { title: "Votes", numeric: true, cell: (s) => String(s.vote_count) },
      { title: "Support", numeric: true, cell: (s) => (support.has(s.model) ? `${number(100 * support.get(s.model), 0)} %` : "–") },
      { title: "Vote coverage", cell: (s) => s.vote_coverage },
    ], rows),
    el("p", { class: "hint" }, "Support is how often an answer wins when the ballots are resampled. "
      + "Vote coverage says how many of the reviewers that were asked to rank the answer did so."),
    el("p", {}, agreement.kendall_w == null ? "Agreement is unknown: too few ballots rank the same two answers." :
      `Kendall’s W is ${number(agreement.kendall_w)} over ${count(agreement.ballots, "ballot")}: 1 is full agreement. Chance alone gives `
      + "about 0.40 with four members, 0.28 with five and 0.18 with seven.",
    swayed.length === 0 ? null : swayed.map((o) => ` Without the ballot of ${o.reviewer}, the winner would be ${o.winners.join(" and ")}.`)),
  ];
}

// verdict sums up the audit in one sentence.
export function verdict({ bias_audit: audit }) {
  if (!audit) return "The audit is switched off on this daemon.";
  const length = audit.length_association && `longer answers scored ${audit.length_score_correlation < 0 ? "lower" : "higher"}`;
  const position = audit.position_bias_detected && "the mean scores of the positions differ";
  const up = [length, position].filter(Boolean);
  if (up.length) return `Signs of bias: ${up.join(", and ")}. One session proves nothing.`;
  return audit.overall_bias_risk === "low" ? "No sign of bias in this session. One session cannot prove that there is none."
    : `Some checks were not possible: ${Object.entries(audit.not_judged).map(([factor, why]) => `${factor}, because ${why}`).join("; ")}.`;
}

// findings puts the audit into words. The text says that one session proves nothing.
export function findings({ bias_audit: audit, demographic_disagreement: terms }) {
  const out = [];
  if (audit) {
    const n = audit.sample_sizes;
    out.push(
      el("p", {}, "One session cannot prove that there is bias, or that there is none. These figures may come from chance or from quality. ",
        el("a", { href: "#/report" }, "The bias report"), " uses many sessions."),
      el("ul", {},
        el("li", {}, audit.length_score_correlation == null ? "Length: its correlation with the scores is undefined." :
          `Length: longer answers scored ${audit.length_score_correlation < 0 ? "lower" : "higher"}, with a correlation of `
          + `${number(audit.length_score_correlation)}${within(audit.length_score_ci_lower, audit.length_score_ci_upper)} over ${count(n.answers, "answer")}; ${judged(audit.length_association, audit.not_judged.length)}.`),
        el("li", {}, audit.position_score_variance == null ? "Position: this session cannot separate its effect from quality." :
          `Position: the mean scores of the ${n.positions} positions have a variance of ${number(audit.position_score_variance)} `
          + `(${count(n.scores, "score")}); ${judged(audit.position_bias_detected, audit.not_judged.position)}.`),
        audit.reviewer_effect == null ? null : el("li", {},
          `Reviewers: a test of whether they score the same answers differently gives F = ${number(audit.reviewer_effect.f)} with `
          + `${audit.reviewer_effect.df.join(" and ")} degrees of freedom, p = ${number(audit.reviewer_effect.p_value)}. `
          + "One session cannot separate a harsh reviewer from chance."),
        extreme("lower", audit.harsh_reviewers), extreme("higher", audit.generous_reviewers)),
      table("Scores that each reviewer gave", [
        { title: "Reviewer", cell: ([model]) => model },
        { title: "Mean", numeric: true, cell: ([, mean]) => number(mean) },
        { title: "Spread (SD)", numeric: true, cell: ([model]) => number(audit.reviewer_score_variance[model]) },
        { title: "Scores", numeric: true, cell: ([model]) => String(n.reviewers[model]) },
      ], Object.entries(audit.reviewer_mean_scores)));
  } else {
    out.push(el("p", {}, "The person who runs this daemon can switch it on."));
  }
  if (terms) {
    const flagged = terms.axes.filter((axis) => axis.flagged);
    out.push(el("p", {}, `Demographic terms: ${terms.wording}.`), flagged.length === 0 ? null : el("ul", {}, flagged.map((axis) =>
      el("li", {}, `${axis.axis}: ${axis.evidence.map((e) => `${e.model} has ${e.terms.join(", ")}`).join("; ")}`))));
  }
  return out.filter(Boolean);
}

// differences says which differences a judge, or the embeddings of the answers, found in how the answers speak of
// people. The differences are known when the session has ended.
export function differences({ demographic_judgement: judgement, demographic_clustering: clusters }) {
  return [
    judgement && difference(`A judge, ${judgement.model}`, judgement, "no difference in how the answers treat people",
      "How the judge rates differences in treating people, 0 to 10", [
        { title: "Rating", numeric: true, cell: (a) => number(a.rating, 1) },
        { title: "In both orders", cell: (a) => a.ratings.map((r) => number(r, 1)).join(", ") },
        { title: "Quotes", cell: (a) => (a.quotes.length === 0 ? "–" : a.quotes.map((q) => el("p", {}, `${q.model}: “${q.quote}”`))) },
      ]),
    clusters && difference(`The embeddings of ${clusters.model}`, clusters, "no axis on which similar answers use similar terms",
      "Whether similar answers use similar terms of an axis", [
        { title: "Correlation", numeric: true, cell: (a) => number(a.correlation) },
        { title: "p", numeric: true, cell: (a) => number(a.p_value, 3) },
        { title: "q", numeric: true, cell: (a) => number(a.q_value, 3) },
      ]),
  ].flat().filter(Boolean);
}

// difference shows the result of the judge or of the embeddings: the flagged axes or the reason why none can be
// flagged, and a table of all axes.
function difference(who, { flagged, reason, axes }, none, caption, columns) {
  const found = flagged ? `flags ${axes.filter((a) => a.flagged).map((a) => a.axis).join(", ")}. A difference may be justified.`
    : reason ?? `found ${none}.`;
  return [
    el("p", {}, `${who}: ${found}`),
    axes.length === 0 ? null : table(caption, [
      { title: "Axis", cell: (a) => a.axis },
      { title: "Flagged", cell: (a) => (a.flagged ? "yes" : "no") },
      ...columns,
      { title: "Remark", cell: (a) => a.reason ?? "–" },
    ], axes),
  ];
}

// extreme names the reviewers with the lowest or highest scores. By chance, nearly every session has some.
const extreme = (direction, reviewers) => (reviewers.length === 0 ? null
  : el("li", {}, `Scored ${direction} than the others: ${reviewers.join(", ")}. This happens in nearly every session.`));

const judged = (flag, why) => {
  if (flag == null) return `not checked, because ${why}`;
  return flag ? "more than the threshold" : "within the threshold";
};

// within is the text of a 95 % interval. It is "" if the interval is not known.
const within = (low, high) => (low == null ? "" : ` (95 % interval ${number(low)} to ${number(high)})`);

// unkept says why the records are not kept.
function unkept(warnings) {
  const codes = warnings.map((w) => w.code);
  if (codes.includes("not_yet_written")) return "not yet written";
  return codes.includes("not_persisted") ? "could not be written" : "not kept";
}

// totals shows the time, the tokens and the cost of a session, and its seed and versions.
export function totals({ metadata: m, persisted }) {
  const { total } = m.usage;
  const tokens = (n) => (n == null ? "unknown" : atLeast(total, n.toLocaleString("en")));
  const parts = Object.entries({ stage1: "answers", stage2: "reviews", stage3: "final answer" })
    .filter(([stage]) => m.stages?.includes(stage) ?? true).map(([stage, name]) => `${name} ${seconds(m.timing[`${stage}_ms`])}`);
  const rows = {
    "Time": `${seconds(m.timing.total_ms)} (${parts.join(", ")})`,
    "Tokens": `${tokens(total.input_tokens)} in, ${tokens(total.output_tokens)} out`,
    "Cost": cost(total),
    "Records": persisted ? "kept" : unkept(m.warnings),
    "Seed and order": `${m.seed}, ${m.order}`,
    "Version": `councild ${m.versions.councild}, council ${m.versions.council_config}, ${m.versions.synthesis}`,
  };
  return el("dl", {}, Object.entries(rows).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
