// The view of one session. All but the question is built from the session's events
// alone, so that it is the same for a live session, after a reload, and for a finished
// session.

import { cancel, follow, session } from "./api.js";
import { count, el, number, problem, seconds, svg, table } from "./dom.js";
import { markdown } from "./markdown.js";

const outcomes = {
  ok: "done", error: "failed", abstained: "abstained", invalid: "no ballot", fallback: "took over", waiting: "waiting",
};

const fallbacks = {
  second_chairman: (s) => `The chairman failed; ${s.model} wrote the answer in its place.`,
  top_ranked: (s) => `No chairman could write: this is the answer that was ranked first, by ${s.model}, unchanged.`,
  first_answer: (s) => `No chairman could write and there is no ranking: this is the first answer, by ${s.model}, unchanged.`,
};

// watch shows a session until it is over or the signal is aborted.
export async function watch(section, signal, id) {
  let question = sessionStorage.getItem(`question ${id}`);
  const view = layout(section, id, question);
  let state = { answers: new Map(), reviews: new Map(), text: "" };

  const handle = (type, data) => {
    switch (type) {
      case "session.started":
        state.started = data;
        view.members(data.models, data.reviewers);
        view.step(1, 0, data.models.length);
        view.say(`Asking ${count(data.models.length, "member")}.`);
        break;
      case "stage1.answer":
        state.answers.set(data.model, data);
        view.answer(data);
        view.step(1, state.answers.size, state.started.models.length);
        view.say(data.status === "ok" ? `${data.model} has answered.` : `${data.model} failed to answer.`);
        break;
      case "stage1.done":
        data.forEach(view.answer);
        view.step(2, 0, state.started.reviewers.length);
        break;
      case "stage2.ballot":
        state.reviews.set(data.model, data);
        view.review(data);
        view.step(2, state.reviews.size, state.started.reviewers.length);
        view.say(data.status === "ok" ? `${data.model} has voted.` : `${data.model}: ${outcomes[data.status]}.`);
        break;
      case "stage2.done":
        view.tally(data);
        view.step(3, 0, 1);
        view.say("The ranking is complete. The chairman is writing.");
        break;
      case "stage3.delta":
        state.text += data.text;
        view.text(state.text, true);
        break;
      case "stage3.restart":
        state.text = "";
        view.text("", true);
        view.say(`${data.model} failed as chairman (${data.reason}). Another model takes over.`);
        break;
      case "stage3.done":
        view.synthesis(data);
        break;
      case "session.done":
        view.done(data);
        break;
      case "session.failed":
        view.failed(data);
    }
  };
  const cut = (isCut) => {
    view.cut(isCut);
    if (isCut || question !== null) return;
    question = ""; // it is asked for once, and after a failure again with the next connection
    session(id).then(({ query }) => { if (!signal.aborted) view.question(query); }, () => { question = null; });
  };
  try {
    await follow(id, handle, cut, signal);
  } catch (error) {
    if (!signal.aborted) view.lost(error);
  }
}

// layout builds the empty view and returns the functions that fill it.
function layout(section, id, question) {
  const steps = ["Answers", "Reviews", "Final answer"].map((name) =>
    el("li", {}, el("span", { class: "step" }, name), el("span", { class: "hint" })));
  const said = el("p", { role: "status", class: "said" });
  const line = el("p", { class: "notice", hidden: true }, "The connection to the daemon is lost. "
    + "The session goes on if the daemon is still running. If the daemon has stopped, the session goes on after a restart "
    + "only where sessions are kept on disk. Trying again.");
  const notices = el("div", { role: "alert" });
  const stop = el("button", {
    type: "button", onclick: () => {
      stop.disabled = true;
      cancel(id).catch((error) => {
        stop.disabled = false;
        notices.append(problem(error));
      });
    },
  }, "Cancel the session");
  const author = el("p", { class: "hint" });
  const prose = el("div", { class: "prose" });
  const answer = part("Answer", author, prose);
  const ranking = part("Ranking");
  const answers = el("ul", { class: "seats" }), reviews = el("ul", { class: "seats" });
  const audit = part("Audit");
  const figures = part("Figures");
  const wholeAnswers = part("Answers", answers);
  const wholeReviews = part("Reviews", el("p", { class: "hint" },
    "Each reviewer saw the other answers without names, in an order of its own. "
    + "The labels in a review are those of its own slate."), reviews);
  const heading = el("h1", { class: "question", tabindex: "-1" });
  const whole = el("details", { hidden: true }, el("summary", {}, "The whole question"), el("pre", { tabindex: "0" }, question));
  section.replaceChildren(
    el("p", { class: "kicker" }, `Session ${id}`), heading, whole,
    el("ol", { class: "steps", "aria-label": "Progress" }, steps), el("div", { class: "row" }, said, stop), line, notices,
    answer, ranking, wholeAnswers, wholeReviews, audit, figures);
  const seats = new Map(); // the items of both lists, by list and model

  const place = (list, models) => list.replaceChildren(...models.map((model) => {
    const item = el("li", {}, head(model, "waiting"));
    seats.set(`${list === answers} ${model}`, item);
    return item;
  }));
  const fill = (list, seat, ...body) => {
    const item = seats.get(`${list === answers} ${seat.model}`);
    if (!item.querySelector("details")) { // the same seat arrives more than once
      item.replaceChildren(el("details", {},
        el("summary", {}, head(seat.model, seat.status, seconds(seat.latency_ms))), el("div", { class: "inside" }, body)));
    }
  };
  const over = () => {
    stop.hidden = true;
    for (const state of section.querySelectorAll(".state.waiting")) {
      state.className = "state unreached";
      state.textContent = "not reached";
    }
    for (const step of steps) step.removeAttribute("aria-current");
  };
  const notice = (kind, ...content) => notices.append(el("div", { class: `notice ${kind}` }, content));

  let drawn = null; // the text to draw with the next frame
  const view = {
    question: (text) => {
      whole.hidden = text.length <= 240;
      heading.textContent = whole.hidden ? text : `${text.slice(0, 200)}…`;
      document.title = `${text.slice(0, 60)} · councild`;
    },
    say: (text) => { said.textContent = text; },
    cut: (isCut) => { line.hidden = !isCut; },
    step: (n, done, all) => steps.forEach((step, i) => {
      if (i + 1 === n) {
        step.setAttribute("aria-current", "step");
      } else {
        step.removeAttribute("aria-current");
      }
      step.classList.toggle("past", i + 1 < n);
      if (i + 1 === n) step.lastChild.textContent = n === 3 ? "being written" : `${done} of ${all}`;
      if (i + 1 < n && step.lastChild.textContent === "") step.lastChild.textContent = "done";
    }),
    members: (models, reviewers) => {
      place(answers, models);
      place(reviews, reviewers);
      wholeAnswers.hidden = wholeReviews.hidden = false;
    },
    answer: (a) => fill(answers, a,
      a.error ? failure(a.error) : el("div", { class: "prose" }, markdown(a.response)),
      el("p", { class: "hint" }, spent(a), a.finish_reason ? ` · ended with “${a.finish_reason}”` : "")),
    review: (r) => fill(reviews, r,
      r.error ? failure(r.error) : null,
      r.parsed_ranking?.reason ? el("p", {}, r.parsed_ranking.reason) : null,
      slate(r),
      r.ranking == null ? null : [el("h3", {}, "In its own words"), el("pre", { tabindex: "0" }, r.ranking)],
      r.repair == null ? null : [el("h3", {}, "Asked again for the ballot"), el("pre", { tabindex: "0" }, r.repair)],
      el("p", { class: "hint" }, spent(r))),
    tally: (t) => {
      ranking.replaceChildren(ranking.firstChild, ...standings(t));
      audit.replaceChildren(audit.firstChild, ...findings(t));
      ranking.hidden = audit.hidden = false;
    },
    text: (text, writing) => {
      answer.hidden = false;
      prose.setAttribute("aria-busy", writing);
      if (drawn === null) requestAnimationFrame(() => { // at most once a frame
        prose.replaceChildren(...markdown(drawn));
        drawn = null;
      });
      drawn = text;
    },
    synthesis: (s) => {
      view.text(s.response, false);
      author.textContent = s.fallback ? fallbacks[s.fallback](s) : `Written by ${s.model}, the chairman · ${spent(s)}`;
      steps[2].lastChild.textContent = "written";
    },
    done: (s) => {
      s.stage1.forEach(view.answer);
      s.stage2.forEach(view.review);
      over();
      steps.forEach((step) => step.classList.add("past"));
      if (s.status === "degraded") {
        notice("warn",
          el("p", {}, el("strong", {}, "Degraded: "), "the answer stands, but part of the council is missing."),
          s.stage3?.fallback ? el("p", {}, fallbacks[s.stage3.fallback](s.stage3)) : null,
          el("ul", {}, s.degradation.map((d) => el("li", {}, `${stages[d.stage]}: ${d.model}: ${d.message} (${d.code})`))));
      }
      if (s.metadata.warnings.length) {
        notice("warn", el("p", {}, el("strong", {}, "Warnings:")), el("ul", {}, s.metadata.warnings.map((w) => el("li", {}, w.message))));
      }
      figures.replaceChildren(figures.firstChild, totals(s));
      figures.hidden = false;
      view.say(`The answer is ${s.status}.`);
    },
    failed: (body) => {
      over();
      prose.setAttribute("aria-busy", false);
      notices.append(problem({ body }));
      view.say({ cancelled: "The session was cancelled.", interrupted: "The session was interrupted." }[body.code] ?? "The session failed.");
    },
    lost: (error) => {
      over();
      line.hidden = true;
      notices.append(problem(error));
    },
  };
  view.question(question ?? "A session of this daemon");
  return view;
}

const stages = { stage1: "Answers", stage2: "Reviews", stage3: "Final answer" };

// part is a section of the view, hidden until there is something in it.
function part(title, ...content) {
  const heading = el("h2", {}, title);
  heading.id = `part-${title.toLowerCase()}`;
  return el("section", { "aria-labelledby": heading.id, hidden: true }, heading, content);
}

function head(model, status, time) {
  return [
    el("span", { class: "model" }, model),
    el("span", { class: "hint" }, el("span", { class: `state ${status}` }, outcomes[status]), time ? ` · ${time}` : null),
  ];
}

function failure(f) {
  return el("p", { class: "bad" }, `${f.message} (${f.code}${f.http_status ? `, HTTP ${f.http_status}` : ""})`);
}

// spent says what the answer or the review of a seat took.
function spent({ attempts, usage, latency_ms: ms }) {
  const tokens = usage.output_tokens == null ? "tokens unknown" : atLeast(usage, count(usage.output_tokens, "output token"));
  const cost = usage.cost_usd == null ? "cost unknown" : atLeast(usage, `$${number(usage.cost_usd, 5)}`);
  return [seconds(ms), attempts === 1 ? null : count(attempts, "attempt"), tokens, cost].filter(Boolean).join(" · ");
}

// atLeast marks a figure as a lower bound where some requests did not report theirs.
const atLeast = ({ partial }, figure) => (partial ? `at least ${figure}` : figure);

// slate shows the answers that a reviewer saw, in its order, with its ranks and scores.
function slate(review) {
  const ballot = review.parsed_ranking;
  const shown = Object.entries(review.label_to_model).sort(([, a], [, b]) => a.display_index - b.display_index);
  if (shown.length === 0) return null;
  const places = new Map();
  let last = [];
  ballot?.ranking.forEach((label, i) => {
    const tied = ballot.tied.find((group) => group.includes(label)) ?? [label];
    places.set(label, last === tied ? places.get(ballot.ranking[i - 1]) : i + 1);
    last = tied;
  });
  const known = (value) => (value == null ? "–" : String(value));
  return [
    table(`The slate of ${review.model}, in the order shown`, [
      { title: "Label", cell: ([label]) => label },
      { title: "Written by", cell: ([, seat]) => seat.model },
      { title: "Rank", numeric: true, cell: ([label]) => known(places.get(label)) },
      { title: "Score", numeric: true, cell: ([label]) => known(ballot?.scores[label]) },
    ], shown),
    ballot?.score_rank_mismatch ? el("p", { class: "hint" }, "The ranking contradicts the scores. The ranking counts.") : null,
    review.repaired ? el("p", { class: "hint" }, "The ballot was read from a second reply.") : null,
  ];
}

// bar draws a share of 1. The figure stands beside it.
function bar(share) {
  return svg("svg", { class: "bar", "aria-hidden": "true" }, svg("rect", { width: "100%", height: "100%", rx: 4 }),
    svg("rect", { class: "filled", width: `${100 * share}%`, height: "100%", rx: 4 }));
}

function standings({ aggregate_rankings: rows, agreement }) {
  if (rows.length === 0) return [el("p", {}, "No ballot could be counted: there is no ranking.")];
  const support = new Map(agreement.winner_support.map((s) => [s.model, s.support]));
  const swayed = agreement.leave_one_out.filter((o) => o.changes);
  return [
    table("Borda count over the ballots", [
      { title: "Rank", numeric: true, cell: (s) => String(s.final_rank) },
      { title: "Answer by", cell: (s) => s.model },
      { title: "Borda, 0 to 1", numeric: true, cell: (s) => [bar(s.borda_normalized), number(s.borda_normalized)] },
      { title: "Firsts", numeric: true, cell: (s) => number(s.win_count, s.win_count % 1 ? 2 : 0) },
      { title: "Votes", numeric: true, cell: (s) => String(s.vote_count) },
      { title: "Support", numeric: true, cell: (s) => (support.has(s.model) ? `${number(100 * support.get(s.model), 0)} %` : "–") },
      { title: "Confidence", cell: (s) => s.confidence },
    ], rows),
    el("p", { class: "hint" }, "Support is how often an answer wins when the ballots are resampled. "
      + "Confidence is how many of those asked to rank the answer did so."),
    el("p", {}, agreement.kendall_w == null ? "There are too few ballots to say how far they agree." :
      `Kendall’s W is ${number(agreement.kendall_w)} over ${count(agreement.ballots, "ballot")}: 1 is full agreement, 0 none.`,
    swayed.length === 0 ? null : " One ballot less would change the winner: without that of "
      + `${swayed.map((o) => `${o.reviewer} it is ${o.winners.join(" and ")}`).join(", of ")}.`),
  ];
}

// findings puts the audit into words. One session proves nothing, and the text says so.
function findings({ bias_audit: audit, demographic_disagreement: terms }) {
  const out = [];
  if (audit) {
    const risk = {
      low: "Nothing stands out in this session.", medium: "Something stands out in this session.",
      indeterminate: "This session is too small for its indicators to be judged.",
    }[audit.overall_bias_risk];
    const n = audit.sample_sizes;
    out.push(
      el("p", {}, el("strong", {}, `${risk} `),
        "One session cannot prove a bias, nor that there is none: these figures may be chance or quality. ",
        el("a", { href: "#/report" }, "The bias report"), " judges over many sessions."),
      el("ul", {},
        el("li", {}, audit.length_score_correlation == null ? "Length: no correlation with the scores is defined." :
          `Length: longer answers scored ${audit.length_score_correlation < 0 ? "lower" : "higher"}, with a correlation of `
          + `${number(audit.length_score_correlation)} over ${count(n.answers, "answer")}; ${judged(audit.length_bias_detected)}.`),
        el("li", {}, audit.position_score_variance == null ? "Position: cannot be told from quality in this session." :
          `Position: the mean scores of the ${n.positions} places vary by ${number(audit.position_score_variance)} `
          + `(${count(n.scores, "score")}); ${judged(audit.position_bias_detected)}.`),
        audit.reviewer_effect == null ? null : el("li", {},
          `Reviewers: the test whether they score the same answers differently has F = ${number(audit.reviewer_effect.f)} on `
          + `${audit.reviewer_effect.df.join(" and ")} degrees of freedom, p = ${number(audit.reviewer_effect.p_value)}. `
          + "One session cannot tell a harsh reviewer from chance."),
        extreme("lower", audit.harsh_reviewers), extreme("higher", audit.generous_reviewers)),
      table("Scores that each reviewer gave", [
        { title: "Reviewer", cell: ([model]) => model },
        { title: "Mean", numeric: true, cell: ([, mean]) => number(mean) },
        { title: "Spread (SD)", numeric: true, cell: ([model]) => number(audit.reviewer_score_variance[model]) },
        { title: "Scores", numeric: true, cell: ([model]) => String(n.reviewers[model]) },
      ], Object.entries(audit.reviewer_mean_scores)));
  } else {
    out.push(el("p", {}, "The audit is switched off on this daemon."));
  }
  if (terms) {
    const flagged = terms.axes.filter((axis) => axis.flagged);
    out.push(el("p", {}, `Demographic terms: ${terms.wording}.`), flagged.length === 0 ? null : el("ul", {}, flagged.map((axis) =>
      el("li", {}, `${axis.axis}: ${axis.evidence.map((e) => `${e.model} has ${e.terms.join(", ")}`).join("; ")}`))));
  }
  return out.filter(Boolean);
}

// extreme names the reviewers whose scores stand out, which is common by chance.
const extreme = (direction, reviewers) => (reviewers.length === 0 ? null
  : el("li", {}, `Scored ${direction} than the others, as a reviewer does in nearly every session: ${reviewers.join(", ")}.`));

const judged = (flag) => {
  if (flag == null) return "not judged, because there is too little data";
  return flag ? "more than the threshold" : "within the threshold";
};

// unkept says why the records are not kept.
function unkept(warnings) {
  const codes = warnings.map((w) => w.code);
  if (codes.includes("not_yet_written")) return "not yet written";
  return codes.includes("not_persisted") ? "could not be written" : "not kept";
}

function totals({ metadata: m, persisted }) {
  const { total } = m.usage;
  const tokens = (n) => (n == null ? "unknown" : atLeast(total, n.toLocaleString("en")));
  const rows = {
    "Time": `${seconds(m.timing.total_ms)}, of which answers ${seconds(m.timing.stage1_ms)}, `
      + `reviews ${seconds(m.timing.stage2_ms)}, final answer ${seconds(m.timing.stage3_ms)}`,
    "Tokens": `${tokens(total.input_tokens)} in, ${tokens(total.output_tokens)} out`,
    "Cost": m.usage.cost_usd == null ? "unknown" : atLeast(total, `$${number(m.usage.cost_usd, 5)}`),
    "Records": persisted ? "kept" : unkept(m.warnings),
    "Seed and order": `${m.seed}, ${m.order}`,
    "Version": `councild ${m.versions.councild}, council ${m.versions.council_config}, ${m.versions.synthesis}`,
  };
  return el("dl", {}, Object.entries(rows).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
