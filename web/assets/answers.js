// The answers and the reviews of a session. Each answer has a tab. Below an answer stands what the reviewers said about
// it. Two answers can be read side by side.

import { spent } from "./audit.js";
import { copyButton, el, lasting, nth, table, tame } from "./dom.js";
import { about, growing, plain, show, withoutBallot } from "./markdown.js";

export const outcomes = {
  ok: "done", error: "failed", abstained: "abstained", invalid: "no ballot", fallback: "took over", waiting: "waiting", writing: "writing",
  again: "asked again", reviewing: "reviewing", given: "already given",
};

// life returns the signs of what a member does and for how long: one for its place in the reading column, and a row for
// the rail. The argument since says from when the time counts: "session", or null while the member does not work yet.
function life(model, since) {
  const signs = [0, 1].map(() => {
    const state = el("span", { class: "state waiting" }, outcomes.waiting), time = el("span", { class: "time", "data-since": since });
    return { state, time, node: el("span", { class: "hint" }, state, " ", time) };
  });
  const preview = el("span", { class: "preview", dir: "auto" });
  const each = (change) => signs.forEach(change);
  const s = {
    sign: signs[0].node, row: el("li", {}, el("span", { class: "model" }, model), signs[1].node, preview), ended: false,
    state: (status, words = outcomes[status]) => each(({ state }) => {
      state.className = `state ${status}`;
      state.textContent = words;
    }),
    // count counts the time from another moment on. It stops the time if that is null.
    count: (from) => each(({ time }) => {
      if (from) {
        time.dataset.since = from;
      } else {
        time.removeAttribute("data-since");
        time.textContent = "";
      }
    }),
    say: (words) => { preview.textContent = tame(words); },
    // finish shows how the work of the member ended, and after how many ms.
    finish: (status, ms, words) => {
      s.ended = true;
      s.state(status);
      s.count(null);
      each(({ time }) => { time.textContent = ms == null ? "" : `in ${lasting(ms)}`; });
      s.say(words);
    },
    // unreached is called for a member that will have no result. The argument stopped says that the session was cancelled
    // or interrupted. The argument why is a text for a member that the session leaves out, and otherwise undefined.
    unreached: (stopped, why) => {
      if (s.ended) return;
      s.ended = why !== undefined;
      s.state("unreached", why ?? (stopped && signs[0].time.dataset.since ? "not finished" : "not reached"));
      s.count(null);
      s.say("");
    },
  };
  return s;
}

// answerTabs returns the tabs of the answers, their panels, and a list of the members for the rail. No tab has another
// size or moves while the session runs. The function opened is called when the reader opens a tab.
export function answerTabs(opened) {
  const list = el("div", { class: "seats tabs", role: "tablist", "aria-label": "Answers by member" });
  const hint = el("p", { class: "hint" }, "Open an answer to read it.");
  const panels = el("div", { class: "panels" }, hint);
  const rows = el("ul", { class: "members" });
  const seats = new Map();
  const open = (model) => {
    hint.hidden = true;
    for (const [name, s] of seats) {
      s.tab.setAttribute("aria-selected", String(name === model));
      s.tab.tabIndex = name === model ? 0 : -1;
      s.panel.hidden = name !== model;
      if (name === model) s.draw();
    }
  };
  // choose is called when the reader opens a tab.
  const choose = (model) => {
    opened(model);
    open(model);
  };
  list.addEventListener("keydown", (event) => {
    const tabs = [...list.children], at = tabs.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -at, End: tabs.length - 1 - at }[event.key];
    if (step === undefined || at < 0) return;
    event.preventDefault();
    const next = tabs.at((at + step) % tabs.length);
    next.focus();
    next.click();
  });
  return {
    list, panels, rows, seats, choose,
    // place makes the tabs of the members.
    place: (models, since) => {
      seats.clear();
      models.forEach((model, i) => {
        const s = tab(model, since, i);
        s.tab.onclick = () => choose(model);
        seats.set(model, s);
      });
      list.replaceChildren(...[...seats.values()].map((s) => s.tab));
      list.firstChild?.setAttribute("tabindex", "0");
      panels.replaceChildren(hint, ...[...seats.values()].map((s) => s.panel));
      rows.replaceChildren(...[...seats.values()].map((s) => s.row));
    },
    // order sorts the tabs by the order of these models. If no tab is open, it opens the first.
    order: (models) => {
      const sorted = [...models, ...[...seats.keys()].filter((m) => !models.includes(m))].filter((m) => seats.has(m));
      const tabs = sorted.map((m) => seats.get(m).tab);
      if (!tabs.every((node, i) => list.children[i] === node)) {
        const held = document.activeElement; // a moved element loses the focus
        list.append(...tabs);
        if (list.contains(held)) held.focus({ preventScroll: true });
      }
      if (sorted.length > 0 && !hint.hidden) open(sorted[0]);
    },
  };
}

function tab(model, since, i) {
  const place = el("span", { class: "place" });
  const s = life(model, since);
  const prose = el("div", { class: "prose" }), foot = el("div"), said = el("div");
  const text = growing(prose);
  let latest = null; // the text so far; it is drawn only while the tab is open
  Object.assign(s, {
    prose,
    tab: el("button", { type: "button", role: "tab", id: `tab-${i}`, "aria-controls": `panel-${i}`, "aria-selected": "false", tabindex: "-1", title: model },
      el("span", { class: "model" }, model), place, s.sign),
    panel: el("div", { class: "inside", role: "tabpanel", id: `panel-${i}`, "aria-labelledby": `tab-${i}`, tabindex: "0", hidden: true }, prose, foot, said),
    draw: () => { if (latest !== null && !s.ended) text.set(latest, false); },
    // write shows the text so far.
    write: (whole) => {
      if (s.ended) return;
      s.state(whole === "" ? "again" : "writing");
      prose.setAttribute("aria-busy", "true");
      latest = whole;
      if (!s.panel.hidden) text.set(whole, false);
      s.say(whole.length > 160 ? `… ${plain(whole.slice(-160), 200)}` : plain(whole, 200));
    },
    // end shows the whole answer. It is "" for a failure. The text that is drawn already stays where it is.
    end: (status, ms, whole, ...content) => {
      s.finish(status, ms, "");
      prose.removeAttribute("aria-busy");
      text.set(whole, true);
      foot.replaceChildren(...content.filter(Boolean));
    },
    opinions: (node) => said.replaceChildren(node),
    rank: (rank, ranks) => { place.textContent = nth(rank, ranks); },
  });
  const { unreached } = s;
  s.unreached = (...why) => {
    unreached(...why);
    if (!s.ended) prose.removeAttribute("aria-busy");
  };
  return s;
}

// answerInto shows a member's answer in its tab. The argument judged says that the caller gave the answer to judges.
export function answerInto(seat, a, judged) {
  if (seat.ended) return; // the same answer arrives more than once
  const given = judged ? "This answer was given to the judges." : "The earlier session paid for this answer.";
  const paid = a.given ? given : spent(a);
  const hint = el("p", { class: "hint" }, paid, a.finish_reason ? ` · finish reason “${a.finish_reason}”` : "");
  if (a.error) {
    seat.end("error", a.latency_ms, "", failure(a.error), hint);
    return;
  }
  const [status, ms] = a.given ? ["given", null] : [a.status, a.latency_ms];
  seat.end(status, ms, a.response, el("div", { class: "tools" }, copyButton(`Copy the answer of ${a.model}`, () => a.response), hint));
}

// reviewList returns a list of the reviews, each of which can be opened, and a list of the reviewers for the rail.
export function reviewList() {
  const list = el("ul", { class: "seats" }), rows = el("ul", { class: "members reviewers" });
  const seats = new Map();
  return {
    list, rows, seats,
    place: (models) => {
      seats.clear();
      for (const model of models) seats.set(model, review(model));
      list.replaceChildren(...[...seats.values()].map((s) => s.item));
      rows.replaceChildren(...[...seats.values()].map((s) => s.row));
    },
  };
}

function review(model) {
  const s = life(model, null);
  const words = el("span", { class: "words" }), body = el("div", { class: "inside" });
  return Object.assign(s, {
    item: el("li", {}, el("details", {}, el("summary", {}, el("span", { class: "model" }, model), s.sign, words), body)),
    end: (status, ms, line, ...content) => {
      s.finish(status, ms, "");
      words.textContent = tame(line);
      body.replaceChildren(...content.flat().filter(Boolean));
    },
  });
}

// reviewInto shows a review: the text, and beside it the ballot. The ballot says whose answer each letter is.
export function reviewInto(seat, r) {
  if (seat.ended) return;
  const ballot = r.parsed_ranking;
  const { prose, critiques } = read(r);
  const words = prose || [...critiques].map(([label, said]) => `**${label}:** ${said}`).join("\n\n");
  seat.end(r.status, r.latency_ms, r.error ? r.error.message : ballot?.abstained ? ballot.reason : ranked(r),
    r.error ? failure(r.error) : null,
    ballot?.reason ? el("p", { dir: "auto" }, ballot.reason) : null,
    el("div", { class: "review" },
      words ? el("div", {}, el("h4", {}, "In its own words"), show(el("div", { class: "prose" }), words)) : null,
      el("div", { class: "key" }, slate(r))),
    r.repair == null ? null : [el("h4", {}, "Reply to the second request for a ballot"), el("pre", { tabindex: "0" }, r.repair)],
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

// named replaces the letters in a review by the names of the members.
const named = (words, { label_to_model: slate }) => words.replaceAll(/\bResponse [A-Z]{1,2}\b/g, (label) =>
  (slate[label] ? slate[label].model.replaceAll(/[\\`*_~[\]<>$|#]/g, "\\$&") : label));

// key says in one line which letter of a slate stands for which member.
export const key = ({ label_to_model: slate }) => Object.entries(slate).sort(([, a], [, b]) => a.display_index - b.display_index)
  .map(([label, { model }]) => `${label} is ${model}`).join(", ");

// slate shows the answers that a reviewer saw, in the order shown, with the ranks and scores that the reviewer
// gave.
function slate(review) {
  const ballot = review.parsed_ranking;
  const shown = Object.entries(review.label_to_model).sort(([, a], [, b]) => a.display_index - b.display_index);
  if (shown.length === 0) return null;
  const place = places(ballot), ranks = [...place.values()];
  return [
    table(`What the letters stand for, and the ballot of ${review.model}`, [
      { title: "Letter", cell: ([label]) => label.replace("Response ", "") },
      { title: "Answer by", cell: ([, seat]) => seat.model },
      { title: "Place", numeric: true, cell: ([label]) => (place.has(label) ? nth(place.get(label), ranks) : "–") },
      { title: "Score", numeric: true, cell: ([label]) => known(ballot?.scores[label]) },
    ], shown),
    ballot?.score_rank_mismatch ? el("p", { class: "hint" }, "The ranking and the scores contradict each other. The ranking counts.") : null,
    review.repaired ? el("p", { class: "hint" }, "The ballot was read from a second reply.") : null,
  ];
}

// opinions adds to an answer what the reviewers said about it.
export function opinions(seat, model, reviews) {
  const rows = [];
  for (const r of reviews) {
    const [label] = Object.entries(r.label_to_model).find(([, shown]) => shown.model === model) ?? [];
    if (!label || r.model === model || !r.parsed_ranking?.ranking.includes(label)) continue;
    const ranks = places(r.parsed_ranking), place = ranks.get(label), score = r.parsed_ranking.scores[label];
    const { prose, critiques } = read(r);
    const words = named(critiques.get(label) ?? about(prose, label), r);
    rows.push({ place, node: el("li", {},
      el("p", {}, el("strong", {}, r.model), `: ${nth(place, [...ranks.values()])} of ${ranks.size}`, score == null ? "" : `, ${score} of 10`),
      words ? show(el("div", { class: "prose" }), words) : null) });
  }
  if (rows.length === 0) return;
  rows.sort((a, b) => a.place - b.place);
  seat.opinions(el("div", { class: "opinions" }, el("h3", {}, "What the reviewers said about this answer"),
    el("ul", {}, rows.map((row) => row.node))));
}

// comparison shows two texts side by side. The reader chooses them. A text has a name, and the member that wrote it, which
// is "" for the final answer.
export function comparison(texts) {
  const pane = (which, chosen) => {
    const text = el("div", { class: "prose", tabindex: "0", role: "region", "aria-label": `The text on the ${which}` });
    const draw = () => { show(text, texts.find((t) => t.model === select.value).text); };
    const select = el("select", { "aria-label": `On the ${which}`, onchange: draw },
      texts.map((t, i) => el("option", { value: t.model, selected: i === chosen }, t.name)));
    return { node: el("div", {}, select, text), draw };
  };
  const left = pane("left", 0), right = pane("right", 1);
  return el("details", { class: "fold compare", ontoggle: (event) => {
    if (event.target.open) [left, right].forEach((side) => side.draw());
  } }, el("summary", {}, "Side by side"), el("div", { class: "sides" }, left.node, right.node));
}
