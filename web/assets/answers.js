// The answers of a session, in the order of their ranks. The reader opens an answer to see the opinions of the
// reviewers, and can compare two answers side by side.

import { bar, spent } from "./audit.js";
import { copyButton, el, lasting, number, table, tame } from "./dom.js";
import { about, growing, plain, show, withoutBallot } from "./markdown.js";

export const outcomes = {
  ok: "done", error: "failed", abstained: "abstained", invalid: "no ballot", fallback: "took over", waiting: "waiting", writing: "writing",
  again: "asked again", reviewing: "reviewing", given: "already given",
};

// seatList returns a list of seats. The reader can open each of them. From the start of the session, a seat shows what
// it does, for how long, and its text as it arrives.
export function seatList() {
  const list = el("ul", { class: "seats" });
  const seats = new Map();
  return {
    list, seats,
    // place is called with the models. It makes their seats. The argument since says from when the time of the seats
    // counts: "session", or null while they do not work yet.
    place: (models, since) => {
      seats.clear();
      list.replaceChildren(...models.map((model) => {
        const s = seat(model, since);
        seats.set(model, s);
        return s.item;
      }));
    },
    // order sorts the seats by the order of these models.
    order: (models) => {
      const sorted = [...models, ...[...seats.keys()].filter((m) => !models.includes(m))].map((m) => seats.get(m)).filter(Boolean);
      if (sorted.every((s, i) => list.children[i] === s.item)) return;
      const held = document.activeElement; // a moved element loses the focus
      list.append(...sorted.map((s) => s.item));
      if (list.contains(held)) held.focus({ preventScroll: true });
    },
  };
}

function seat(model, since) {
  const place = el("span", { class: "place" });
  const state = el("span", { class: "state waiting" }, outcomes.waiting);
  const time = el("span", { class: "time", "data-since": since });
  const share = el("span", { class: "share" });
  const preview = el("span", { class: "preview", dir: "auto" });
  const prose = el("div", { class: "prose" });
  const body = el("div", { class: "inside" }, prose);
  let latest = null; // the text so far; it is drawn only while the seat is open
  const details = el("details", { ontoggle: () => { if (details.open && latest !== null && !s.ended) text.set(latest, false); } }, el("summary", {},
    place, el("span", { class: "model" }, model), share, el("span", { class: "hint" }, state, " ", time), preview), body);
  const item = el("li", {}, details);
  const text = growing(prose);
  const s = {
    item, body, prose, ended: false,
    state: (status) => {
      state.className = `state ${status}`;
      state.textContent = outcomes[status];
    },
    // write shows the text so far.
    write: (whole) => {
      if (s.ended) return;
      s.state(whole === "" ? "again" : "writing");
      prose.setAttribute("aria-busy", "true");
      latest = whole;
      if (details.open) text.set(whole, false);
      preview.textContent = tame(whole.length > 160 ? `… ${plain(whole.slice(-160), 200)}` : plain(whole, 200));
    },
    // end shows the result of the seat.
    end: (status, ms, words, ...content) => {
      s.ended = true;
      s.state(status);
      time.removeAttribute("data-since");
      time.textContent = ms == null ? "" : `in ${lasting(ms)}`;
      preview.textContent = tame(words);
      body.replaceChildren(...content.flat().filter(Boolean));
    },
    rank: (standing) => {
      if (standing.final_rank == null) {
        place.textContent = "not ranked";
        return;
      }
      place.textContent = `${standing.final_rank}.`;
      share.replaceChildren(bar(standing.borda_normalized), number(standing.borda_normalized));
      share.title = "Share of the votes, by Borda count: 1 is always first, 0 always last";
    },
    // unreached is called for a seat that will have no result. The argument stopped says that the session was cancelled
    // or interrupted. The argument why is a text for a seat that the session leaves out, and otherwise undefined.
    unreached: (stopped, why) => {
      if (s.ended) return;
      s.ended = why !== undefined;
      state.className = "state unreached";
      state.textContent = why ?? (stopped && time.dataset.since ? "not finished" : "not reached");
      time.removeAttribute("data-since");
      time.textContent = "";
      prose.removeAttribute("aria-busy");
    },
  };
  return s;
}

// answerInto shows a member's answer in its seat. The argument judged says that the caller gave the answer to judges.
export function answerInto(seat, a, judged) {
  if (seat.ended) return; // the same answer arrives more than once
  const given = judged ? "This answer was given to the judges." : "The earlier session has paid for this answer.";
  const paid = a.given ? given : spent(a);
  const hint = el("p", { class: "hint" }, paid, a.finish_reason ? ` · ended with “${a.finish_reason}”` : "");
  if (a.error) {
    seat.end("error", a.latency_ms, a.error.message, failure(a.error), hint);
    return;
  }
  const [status, ms] = a.given ? ["given", null] : [a.status, a.latency_ms];
  seat.end(status, ms, plain(a.response, 200), show(el("div", { class: "prose" }), a.response),
    el("div", { class: "tools" }, copyButton(`Copy the answer of ${a.model}`, () => a.response)), hint);
}

// reviewInto shows a review in its seat: the words, and the ballot as a table.
export function reviewInto(seat, r) {
  if (seat.ended) return;
  const ballot = r.parsed_ranking;
  const { prose, critiques } = read(r);
  const words = prose || [...critiques].map(([label, said]) => `**${label}:** ${said}`).join("\n\n");
  seat.end(r.status, r.latency_ms, r.error ? r.error.message : ballot?.abstained ? ballot.reason : ranked(r),
    r.error ? failure(r.error) : null,
    ballot?.reason ? el("p", {}, ballot.reason) : null,
    slate(r),
    words ? [el("h3", {}, "In its own words"), show(el("div", { class: "prose" }), words)] : null,
    r.repair == null ? null : [el("h3", {}, "Asked again for the ballot"), el("pre", { tabindex: "0" }, r.repair)],
    el("p", { class: "hint" }, spent(r)));
}

// read splits a review into its prose and its critiques, and keeps the result. A review without a ballot in JSON is
// all prose.
const taken = new WeakMap();
function read(r) {
  if (!taken.has(r)) {
    const whole = { prose: r.ranking ?? "", critiques: new Map() };
    taken.set(r, r.ranking && ["json", "scores"].includes(r.parsed_ranking?.source) && !r.repaired ? withoutBallot(r.ranking) : whole);
  }
  return taken.get(r);
}

// ranked is a reviewer's ranking in one line.
function ranked(r) {
  const names = r.parsed_ranking?.ranking.map((label) => r.label_to_model[label]?.model ?? label) ?? [];
  return names.length ? names.join(" › ") : "";
}

const failure = (f) => el("p", { class: "bad" }, `${f.message} (${f.code}${f.http_status ? `, HTTP ${f.http_status}` : ""})`);

// places returns the rank of each label on a ballot. Tied labels share a rank.
function places(ballot) {
  const found = new Map();
  let last = [];
  ballot?.ranking.forEach((label, i) => {
    const tied = ballot.tied.find((group) => group.includes(label)) ?? [label];
    found.set(label, last === tied ? found.get(ballot.ranking[i - 1]) : i + 1);
    last = tied;
  });
  return found;
}

const known = (value) => (value == null ? "–" : String(value));

// slate shows the answers that a reviewer saw, in the order shown, with the ranks and scores that the reviewer
// gave.
function slate(review) {
  const ballot = review.parsed_ranking;
  const shown = Object.entries(review.label_to_model).sort(([, a], [, b]) => a.display_index - b.display_index);
  if (shown.length === 0) return null;
  const place = places(ballot);
  return [
    table(`The slate of ${review.model}, in the order shown`, [
      { title: "Label", cell: ([label]) => label },
      { title: "Written by", cell: ([, seat]) => seat.model },
      { title: "Rank", numeric: true, cell: ([label]) => known(place.get(label)) },
      { title: "Score", numeric: true, cell: ([label]) => known(ballot?.scores[label]) },
    ], shown),
    ballot?.score_rank_mismatch ? el("p", { class: "hint" }, "The ranking contradicts the scores. The ranking counts.") : null,
    review.repaired ? el("p", { class: "hint" }, "The ballot was read from a second reply.") : null,
  ];
}

// opinions adds to an answer what the reviewers said about it.
export function opinions(seat, model, reviews) {
  const rows = [];
  for (const r of reviews) {
    const [label] = Object.entries(r.label_to_model).find(([, shown]) => shown.model === model) ?? [];
    if (!label || r.model === model || !r.parsed_ranking?.ranking.includes(label)) continue;
    const place = places(r.parsed_ranking).get(label), score = r.parsed_ranking.scores[label];
    const { prose, critiques } = read(r);
    const words = critiques.get(label) ?? about(prose, label);
    rows.push({ place, node: el("li", {},
      el("p", {}, el("strong", {}, r.model), `: rank ${place} of ${r.parsed_ranking.ranking.length}`, score == null ? "" : `, ${score} of 10`),
      words ? show(el("div", { class: "prose" }), words) : null) });
  }
  seat.body.querySelector(".opinions")?.remove();
  if (rows.length === 0) return;
  rows.sort((a, b) => a.place - b.place);
  seat.body.append(el("section", { class: "opinions" }, el("h3", {}, "What the reviewers said about this answer"),
    el("ul", {}, rows.map((row) => row.node))));
}

// comparison shows two answers side by side. The reader chooses them.
export function comparison(answers) {
  const pane = (which, chosen) => {
    const text = el("div", { class: "prose", tabindex: "0", role: "region", "aria-label": `The ${which} answer` });
    const draw = () => { show(text, answers.find((a) => a.model === select.value).response); };
    const select = el("select", { "aria-label": `The ${which} answer`, onchange: draw },
      answers.map((a, i) => el("option", { value: a.model, selected: i === chosen }, a.model)));
    return { node: el("div", {}, select, text), draw };
  };
  const left = pane("first", 0), right = pane("second", 1);
  return el("details", { class: "fold compare", ontoggle: (event) => {
    if (event.target.open) [left, right].forEach((side) => side.draw());
  } }, el("summary", {}, "Compare two answers side by side"), el("div", { class: "sides" }, left.node, right.node));
}
