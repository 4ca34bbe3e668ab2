// The view of one session. It is built from the events and the request of the session. So the view is the same live,
// after a reload, after the end, and for every reader with the same token.

import { answerInto, comparison, opinions, outcomes, reviewInto, seatList } from "./answers.js";
import { ask, cancel, convene, councils, follow, isFinal, keep, kept, now, request, session, tryAgain } from "./api.js";
import { costing, differences, findings, spent, standings, totals, verdict } from "./audit.js";
import { copyButton, count, el, lasting, problem, save, sendOnEnter, tame } from "./dom.js";
import { discard } from "./history.js";
import { growing, ready, show } from "./markdown.js";
import { decided, fewFirst, origin } from "./modes.js";

const fallbacks = {
  second_chairman: (s) => `The chairman failed; ${s.model} wrote the answer in its place.`,
  top_ranked: (s) => `No chairman could write: this is the answer that was ranked first, by ${s.model}, unchanged.`,
  first_answer: (s) => `No chairman could write and there is no ranking: this is the first answer, by ${s.model}, unchanged.`,
};

const stages = { stage1: "Answers", stage2: "Reviews", stage3: "Final answer" };

// watch shows a session until it ends or the signal is aborted.
export async function watch(section, signal, id) {
  const view = layout(section, signal, id);
  ready();
  const state = { answers: new Map(), reviews: new Map(), texts: new Map(), text: "" };
  const tally = (stage, all, seats, word) => {
    const ok = [...seats.values()].filter((s) => s.status === "ok").length, bad = seats.size - ok;
    view.step(stage, `${ok} of ${all}${bad ? `, ${bad} ${word}` : ""}`);
  };
  // write says that the stages before the synthesis are over. It marks the synthesis as the next stage, if it runs.
  const write = (so) => {
    if (view.runs("stage3")) view.step("stage3", "being written");
    view.say(view.runs("stage3") ? `${so} The chairman is writing.` : so);
  };
  const slowest = (seats) => Math.max(0, ...[...seats.values()].map((s) => s.latency_ms));

  const handle = (type, data) => {
    switch (type) {
      case "session.started":
        state.started = data;
        view.members(data);
        if (data.mode !== "judge") tally("stage1", data.models.length, state.answers, "failed");
        view.say(data.mode === "judge" ? "Asking the judges."
          : data.models.length === 1 ? `Asking ${data.models[0]}.` : "Asking the members.");
        break;
      case "stage1.delta":
        state.texts.set(data.model, (state.texts.get(data.model) ?? "") + data.text);
        view.writing(data.model, state.texts.get(data.model));
        break;
      case "stage1.restart":
        state.texts.set(data.model, "");
        view.writing(data.model, "");
        view.say(data.reason === "thinking" ? `The text of ${data.model} so far was its thinking. Its answer follows.`
          : `${data.model} broke off (${data.reason}) and is asked again.`);
        break;
      case "stage1.answer":
        state.answers.set(data.model, data);
        view.answer(data);
        if (data.given && state.started.mode === "judge") break;
        tally("stage1", state.started.models.length, state.answers, "failed");
        view.say(data.status === "ok" ? `${data.model} has answered.` : `${data.model} failed to answer.`);
        break;
      case "first.done":
        view.first(data);
        if (data.convened) view.say("Asking the whole council.");
        break;
      case "stage1.done":
        data.forEach(view.answer);
        state.answers = new Map(data.map((a) => [a.model, a]));
        tally("stage1", data.length, state.answers, "failed");
        if (view.runs("stage2")) {
          view.reviewers(slowest(state.answers));
          view.say(`Asking ${count(state.started.reviewers.length, "reviewer")}.`);
          tally("stage2", state.started.reviewers.length, state.reviews, "without a ballot");
        } else {
          write("The answers are complete.");
        }
        break;
      case "stage2.ballot":
        state.reviews.set(data.model, data);
        view.review(data);
        tally("stage2", state.started.reviewers.length, state.reviews, "without a ballot");
        view.say(data.status === "ok" ? `${data.model} has voted.` : `${data.model}: ${outcomes[data.status]}.`);
        break;
      case "stage2.done":
        view.tally(data, [...state.answers.values()], [...state.reviews.values()]);
        write("The ranking is complete.");
        break;
      case "stage3.delta":
        state.text += data.text;
        view.text(state.text, false);
        break;
      case "stage3.restart":
        state.text = "";
        if (data.reason !== "map") view.text("", false); // After the reason map, the same text follows at once.
        view.say(data.reason === "interrupted" ? "The text of the final answer was interrupted, and is written again."
          : data.reason === "thinking" ? `The text so far was the thinking of ${data.model}. The answer follows.`
          : data.reason === "map" ? "The text so far ended with the map of disagreement. The same text follows without it."
          : `${data.model} failed as chairman (${data.reason}). Another model takes over.`);
        break;
      case "stage3.done":
        view.synthesis(data);
        break;
      case "stage3.map":
        view.map(data);
        break;
      case "session.done":
        view.done(data);
        break;
      case "session.failed":
        view.failed(data);
    }
  };
  view.question(sessionStorage.getItem(`question ${id}`) ?? "A session of this daemon");
  // The page reads the request at the same time as the events. It tries again if the daemon cannot return the request
  // now. An older daemon never can.
  const what = () => request(id).catch((error) => (isFinal(error) ? null : Promise.reject(error)));
  let asked = false;
  const cut = (isCut, wait, atOnce) => {
    view.cut(isCut, wait, atOnce);
    if (isCut || asked) return;
    asked = true;
    tryAgain(() => Promise.all([what(), session(id), councils()]), () => {}, signal)
      .then((found) => { if (!signal.aborted) view.asked(...found, state.started); }, () => { asked = false; });
  };
  try {
    await follow(id, handle, cut, signal);
  } catch (error) {
    if (!signal.aborted) view.lost(error);
  }
}

// layout builds the empty view and returns the functions that fill it.
function layout(section, signal, id) {
  const steps = new Map(Object.entries(stages).map(([stage, name]) =>
    [stage, el("li", {}, el("span", { class: "step" }, name), el("span", { class: "hint" }))]));
  const said = el("p", { role: "status", class: "said", tabindex: "-1" });
  const clock = el("span", { class: "time" }), usual = el("span");
  const waited = el("p", { class: "hint clock", hidden: true }, "Asked ", clock, " ago", usual);
  const next = el("span", { "aria-hidden": "true" }); // hidden from screen readers, because it changes each second
  const retry = el("button", { type: "button" }, "Try now");
  const line = el("div", { class: "notice", role: "alert", hidden: true }, el("p", {}, "The connection to the daemon is lost. "
    + "The session goes on if the daemon is still running. If the daemon has stopped, the session goes on after a restart "
    + "only where sessions are kept on disk. ", next), retry);
  const beginning = el("p", { class: "hint" }); // It says which members began, and what they decided.
  const notices = el("div", { role: "alert" });
  const stop = el("button", {
    type: "button", onclick: () => {
      said.focus(); // a disabled button would lose the focus to the page
      stop.disabled = true;
      cancel(id).catch((error) => {
        stop.disabled = false;
        notices.append(problem(error));
      });
    },
  }, "Cancel the session");
  const author = el("p", { class: "hint" }), agreed = el("p", { class: "agreed" });
  const prose = el("div", { class: "prose" }), text = growing(prose);
  const map = el("div", { class: "map", hidden: true });
  const tools = el("div", { class: "tools" });
  const turns = el("div");
  const others = el("div"); // It holds the button of askOthers.
  const answer = part("Answer", "Final answer", author, prose, agreed, map, tools, others);
  const answers = seatList(), reviews = seatList();
  const compared = el("div");
  const wholeAnswers = part("Answers", "Answers", answers.list);
  const ranking = part("Ranking", "Ranking");
  const wholeReviews = part("Reviews", "Reviews", el("p", { class: "hint" },
    "Each reviewer saw the other answers without names, in an order of its own. "
    + "The labels in a review are those of its own slate."), reviews.list);
  const audit = part("Audit", "Audit");
  const figures = part("Figures", "Figures"), bill = el("div", { class: "hint" });
  const choice = part("Choice", "Which answer do you prefer?");
  const further = part("Further", "Go on");
  const heading = el("h1", { class: "question", tabindex: "-1", dir: "auto" });
  const whole = el("details", { hidden: true, class: "fold" }, el("summary", {}, "The whole question"));
  section.replaceChildren(
    el("p", { class: "kicker" }, `Session ${id}`), turns, heading, whole,
    el("ol", { class: "steps", "aria-label": "Progress" }, [...steps.values()]), el("div", { class: "row" }, said, waited, stop),
    beginning, line, notices,
    el("div", { class: "columns" }, el("div", {}, answer), el("div", {}, wholeAnswers, ranking, wholeReviews, audit, figures)),
    compared, choice, further);

  let begun = null; // start of the session by the daemon's clock, in ms; null until it is known
  let reviewed = 0; // ms from the start of the session to the start of the reviews
  const tick = () => {
    if (begun === null) return;
    for (const time of section.querySelectorAll("[data-since]")) {
      time.textContent = lasting(now() - begun - (time.dataset.since === "reviews" ? reviewed : 0));
    }
  };
  const timer = setInterval(tick, 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
  const over = (stopped) => {
    clearInterval(timer);
    if (document.activeElement === stop) said.focus();
    stop.hidden = waited.hidden = true;
    view.cut(false);
    for (const { seats } of [answers, reviews]) for (const s of seats.values()) s.unreached(stopped);
    for (const step of steps.values()) step.removeAttribute("aria-current");
    prose.setAttribute("aria-busy", "false");
  };
  const notice = (kind, ...content) => notices.append(el("div", { class: `notice ${kind}` }, content));

  let keeps = false; // whether the daemon keeps feedback
  // seen returns the members whose answers are open.
  const seen = () => [...new Set([
    ...[...answers.seats].filter(([, s]) => s.item.firstChild.open && s.body.querySelector(".prose")).map(([model]) => model),
    ...[...compared.querySelectorAll("details[open] select")].map((select) => select.value),
  ])].filter((model) => ended?.stage1?.some((a) => a.model === model && a.status === "ok"));
  // prefer shows a form in which the reader chooses among the open answers.
  const prefer = async () => {
    const { preference } = await import("./feedback.js");
    const { form, draw } = preference(id, seen, Boolean(ended.stage3));
    choice.append(form);
    choice.hidden = false;
    for (const place of [answers.list, compared]) for (const event of ["toggle", "change"]) place.addEventListener(event, draw, true);
  };

  let what; // the request; null if the daemon cannot return it, undefined until it is known
  // ended is the session, or null until its end. drawn says whether the actions on the session are shown.
  let ended = null, drawn = false;
  let synthesis = null; // the final answer, once a chairman or a fallback has written it
  let mapping = null; // the promise of a drawn map
  let charted = []; // the parts of a Markdown document that have the map
  let judged = false; // whether the answers were given to judges, so that there is no final answer
  // run shows the steps of these stages, and hides the others.
  const run = (some) => {
    for (const [stage, step] of steps) step.hidden = !some.includes(stage);
    wholeReviews.hidden = !some.includes("stage2");
  };
  const view = {
    runs: (stage) => !steps.get(stage).hidden,
    question: (full) => {
      whole.hidden = full.length <= 240;
      if (!whole.hidden) whole.replaceChildren(whole.firstChild, show(el("div", { class: "prose" }), full));
      heading.textContent = tame(whole.hidden ? full : `${full.slice(0, 200)}…`);
      document.title = `${full.slice(0, 60)} · councild`;
    },
    asked: (request, s, cards, started) => {
      what = request;
      keeps = cards.some((c) => c.keeps_feedback);
      const messages = request?.messages ?? [{ role: "user", content: request?.query ?? s.query }];
      view.question(messages.at(-1).content);
      if (messages.length > 1) turns.replaceChildren(conversation(messages.slice(0, -1)));
      if (s.status === "running") {
        begun = Date.parse(s.created);
        clock.dataset.since = "session";
        waited.hidden = false;
        if (s.metadata?.first) {
          view.first(s.metadata.first, s.metadata.given_from);
        } else if (request?.first && started && beginning.textContent === "") {
          beginning.textContent = `${fewFirst(request.first, started.models.length)}.`;
        }
        const { lately } = cards.find((c) => String(c.members) === String(started?.models ?? s.models)) ?? {};
        if (lately) usual.textContent = usually(lately);
        tick();
      }
      view.further();
    },
    say: (words) => { said.textContent = words; },
    cut: (isCut, wait, atOnce) => {
      if (!isCut && document.activeElement === retry) said.focus();
      line.hidden = !isCut;
      if (!isCut) return;
      next.textContent = `Trying again in ${wait} s.`;
      retry.onclick = atOnce;
    },
    step: (now, hint) => steps.forEach((step, stage) => {
      if (stage === now) {
        step.setAttribute("aria-current", "step");
        step.lastChild.textContent = hint;
      } else {
        step.removeAttribute("aria-current");
      }
      step.classList.toggle("past", stage < now);
    }),
    members: ({ models, reviewers, chairman, mode }) => {
      judged = mode === "judge";
      answers.place(models, judged ? null : "session");
      reviews.place(reviewers, null);
      wholeAnswers.hidden = false;
      run([judged ? null : "stage1", reviewers.length > 0 ? "stage2" : null, chairman ? "stage3" : null]);
    },
    // first says what the members that began decided. The argument from is the id of the session that has their
    // answers, or undefined.
    first: (first, from) => {
      beginning.replaceChildren(decided(first), ...(from ? [" ", el("a", { href: `#/session/${from}` }, "The earlier session")] : []));
      if (first.convened) return;
      run(["stage1"]);
      for (const [model, s] of answers.seats) if (!first.asked.includes(model)) s.unreached(false, "not asked");
    },
    reviewers: (ms) => {
      reviewed = ms;
      for (const time of reviews.list.querySelectorAll(".time:empty")) time.dataset.since = "reviews";
      for (const s of reviews.seats.values()) if (!s.ended) s.state("reviewing");
      tick();
    },
    writing: (model, so) => answers.seats.get(model)?.write(so),
    answer: (a) => answerInto(answers.seats.get(a.model), a, judged),
    review: (r) => reviewInto(reviews.seats.get(r.model), r),
    tally: (t, all, ballots) => {
      ranking.replaceChildren(ranking.firstChild, el("details", { class: "fold" }, el("summary", {}, "Votes, support and agreement"), standings(t)));
      audit.replaceChildren(audit.firstChild, el("p", {}, verdict(t)),
        el("details", { class: "fold" }, el("summary", {}, "What the audit looked at"), findings(t)));
      ranking.hidden = audit.hidden = false;
      agreed.textContent = t.agreement.sentence;
      for (const standing of t.aggregate_rankings) answers.seats.get(standing.model)?.rank(standing);
      answers.order(t.aggregate_rankings.map((standing) => standing.model));
      for (const [model, seat] of answers.seats) opinions(seat, model, ballots);
      view.compare(t.aggregate_rankings.map((s) => all.find((a) => a.model === s.model)));
    },
    compare: (all) => {
      const good = all.filter((a) => a?.response);
      if (good.length > 1) compared.replaceChildren(comparison(good));
    },
    text: (so, isFinal) => {
      answer.hidden = false;
      prose.setAttribute("aria-busy", String(!isFinal));
      text.set(so, isFinal);
    },
    synthesis: (s) => {
      synthesis = s;
      // No line of JSON can close the block.
      view.text(s.parsed == null ? s.response : `\`\`\`json\n${s.response}\n\`\`\``, true);
      author.textContent = s.fallback ? fallbacks[s.fallback](s) : `Written by ${s.model}, the chairman · ${spent(s)}`;
      steps.get("stage3").lastChild.textContent = "written";
    },
    // map is called again at the end of the session, which helps if the page could not load the module before.
    map: (m) => {
      mapping ??= import("./map.js").then(({ chart, pointOut, strip }) => {
        map.replaceChildren(...strip(m, synthesis, ({ model, quote }) => {
          const s = answers.seats.get(model);
          if (s) pointOut(s, quote);
        }));
        map.hidden = false;
        charted = chart(m, synthesis);
      }, () => { mapping = null; });
    },
    done: (s) => {
      s.stage1.forEach(view.answer);
      s.stage2.forEach(view.review);
      const { stages: ran, first, given_from: from } = s.metadata; // a session of an older daemon does not have them
      if (ran) run(ran);
      if (first) view.first(first, from);
      if (s.stage2.length === 0) view.compare(s.stage1);
      if (!s.stage3 && !judged) {
        view.text(s.answer, true);
        author.textContent = origin(s);
      }
      if (s.metadata.map) view.map(s.metadata.map);
      audit.querySelector("details")?.append(...differences(s.metadata));
      over();
      steps.forEach((step) => step.classList.add("past"));
      if (s.status === "degraded") {
        notice("warn",
          el("p", {}, el("strong", {}, "Degraded: "), judged ? "some judges are missing." : "the answer stands, but part of the council is missing."),
          s.stage3?.fallback ? el("p", {}, fallbacks[s.stage3.fallback](s.stage3)) : null,
          el("ul", {}, s.degradation.map((d) => el("li", {}, `${stages[d.stage]}: ${d.model}: ${d.message} (${d.code})`))));
      }
      if (s.metadata.warnings.length) {
        notice("warn", el("p", {}, el("strong", {}, "Warnings:")), el("ul", {}, s.metadata.warnings.map((w) => el("li", {}, w.message))));
      }
      figures.replaceChildren(figures.firstChild, el("details", { class: "fold" },
        el("summary", {}, `${lasting(s.metadata.timing.total_ms)}, ${costing(s.metadata.usage.total)}`), totals(s)), bill);
      // If this fails, the summary still has the cost.
      import("./spend.js").then((spend) => spend.bill(bill, s, signal), () => {});
      figures.hidden = false;
      view.say(judged ? "The judges have finished." : `The answer is ${s.status}.`);
      ended = s;
      view.further();
    },
    failed: (body) => {
      over(["cancelled", "interrupted"].includes(body.code));
      const neutral = body.code === "cancelled";
      const shown = problem({ body: neutral ? { title: "Cancelled", detail: "what had arrived by then is below" } : body });
      if (neutral) shown.classList.remove("bad");
      notices.append(shown);
      view.say({ cancelled: "The session was cancelled.", interrupted: "The session was interrupted." }[body.code] ?? "The session failed.");
      ended = {};
      view.further();
    },
    lost: (error) => {
      over();
      notices.append(problem(error));
    },
    // further is called when the session has ended. It shows the actions on that session.
    further: () => {
      if (!ended || drawn) return;
      // This runs only once. further is called again with the request, and a button in use must stay.
      if (ended.answer && !tools.firstChild) {
        tools.append(copyButton("Copy the final answer", () => ended.answer),
          download("Download as Markdown", `${id}.md`, "text/markdown", () => written(ended, what, charted)),
          download("Download as JSON", `${id}.json`, "application/json", () => JSON.stringify(ended, null, 2)));
      }
      if (what === undefined) return; // called again with the request
      drawn = true;
      const { first } = ended.metadata ?? {};
      if (first && !first.convened) others.append(...askOthers(id, what, ended, signal));
      const wanted = keeps && ended.metadata?.label_wanted;
      if (wanted) prefer();
      const asking = el("button", { type: "button", class: "plain", onclick: async () => {
        asking.hidden = true;
        await prefer();
        choice.querySelector("h2").tabIndex = -1;
        choice.querySelector("h2").focus();
      } }, "Say which answer you prefer");
      const discarding = () => discard(id, heading.textContent)
        .then((gone) => { if (gone) location.hash = "#/"; }, (error) => notices.append(problem(error)));
      further.replaceChildren(further.firstChild, what && ended.answer ? followUp(id, what, ended.answer) : "",
        el("div", { class: "tools" },
          what ? el("a", { href: `#/again/${id}` }, "Ask again with changes") : null,
          keeps && ended.answer && !wanted ? asking : null,
          el("button", { type: "button", class: "plain", onclick: discarding }, "Delete this session")));
      further.hidden = false;
    },
  };
  return view;
}

// part makes a section of the view, hidden until it has content.
function part(name, title, ...content) {
  const heading = el("h2", {}, title);
  heading.id = `part-${name.toLowerCase()}`;
  return el("section", { "aria-labelledby": heading.id, hidden: true }, heading, content);
}

// usually is a text that says how long the latest sessions of this council took.
function usually({ sessions, median_ms: median, p90_ms: most }) {
  const round = (ms) => (ms < 60_000 ? Math.ceil(ms / 5000) * 5000 : Math.round(ms / 30_000) * 30_000);
  const [low, high] = [lasting(round(median)), lasting(round(most))];
  return ` · usually ${low === high ? `about ${low}` : `${low} to ${high}`} (${count(sessions, "session")})`;
}

// conversation shows the earlier turns, folded.
function conversation(messages) {
  const turns = messages.filter((m) => m.role === "user").length;
  return el("details", { class: "fold turns" }, el("summary", {}, `Earlier in this conversation: ${count(turns, "question")}`),
    messages.map((m) => el("div", { class: `turn ${m.role}` },
      el("h3", {}, { user: "Question", assistant: "Answer", system: "Instructions" }[m.role] ?? m.role), show(el("div", { class: "prose" }), m.content))));
}

// askOthers makes a button for a session that only some members answered. The button asks the others, in a new session,
// and says what that costs.
function askOthers(id, what, { metadata }, signal) {
  const name = `convene ${id}`, draft = kept(name);
  const price = el("div", { class: "hint" }), trouble = el("div", { role: "alert" });
  const button = el("button", { type: "button", onclick: async () => {
    button.disabled = true;
    trouble.replaceChildren();
    try {
      const next = await convene(id, draft, () => keep(name, draft));
      sessionStorage.removeItem(name);
      location.hash = `#/session/${next}`;
    } catch (error) {
      const other = error.status === 409 ? error.body.session_id ?? id : id;
      trouble.replaceChildren(problem(error), other === id ? "" : el("p", {}, el("a", { href: `#/session/${other}` }, "Show that session")));
      button.disabled = false;
    }
  } }, "Ask the whole council");
  // If the import fails, the button has no price.
  if (what) import("./spend.js").then((spend) => spend.estimate(price, what, signal, spend.further(metadata.usage.cost_usd)), () => {});
  return [el("div", { class: "row" }, price, button), trouble];
}

// followUp makes the form for the next question of the conversation.
function followUp(id, what, answered) {
  const { seed, timeout_seconds: timeout, query, ...same } = what; // the next question has its own seed and time
  const name = `follow-up ${id}`, draft = kept(name), store = () => keep(name, draft);
  const field = el("textarea", { id: "follow-up", rows: 3, required: true, oninput: () => {
    draft.text = field.value;
    store();
  } });
  field.value = draft.text ?? "";
  const trouble = el("div", { role: "alert" });
  const button = el("button", { class: "primary" }, "Ask");
  const form = el("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      if (button.disabled) return; // Enter sends the form even so
      button.disabled = true;
      trouble.replaceChildren();
      const earlier = what.messages ?? [{ role: "user", content: query }];
      const messages = [...earlier, { role: "assistant", content: answered }, { role: "user", content: field.value }];
      try {
        const next = await ask({ ...same, messages }, draft, store);
        sessionStorage.removeItem(name);
        location.hash = `#/session/${next}`;
      } catch (error) {
        trouble.replaceChildren(problem(error));
        button.disabled = false; // after a success, the next session replaces the form
      }
    },
  }, el("label", { for: "follow-up" }, "A follow-up question"), field, el("div", { class: "row" },
    el("span", { class: "hint" }, "The council sees the whole conversation."), button), trouble);
  sendOnEnter(field, form);
  return form;
}

// download makes a button that saves a text as a file.
function download(label, name, type, text) {
  return el("button", { type: "button", class: "plain", onclick: () => save(new Blob([text()], { type }), name) }, label);
}

// written is a session as a Markdown document. The argument charted has the parts with its map.
function written(s, what, charted) {
  const lines = [];
  for (const m of what?.messages ?? [{ role: "user", content: what?.query ?? s.query }]) {
    lines.push(`# ${{ user: "Question", assistant: "Earlier answer", system: "Instructions" }[m.role] ?? m.role}`, m.content);
  }
  const { first } = s.metadata;
  if (first) lines.push(decided(first));
  lines.push("# Final answer", s.answer);
  if (!s.stage3) lines.push(origin(s));
  lines.push(...charted);
  const ranking = s.metadata.aggregate_rankings.map((r) => (r.final_rank == null ? `Not ranked: ${r.model}` : `${r.final_rank}. ${r.model} (${r.borda_normalized.toFixed(2)})`)).join("\n");
  if (s.stage2.length > 0) lines.push("# Ranking", ranking || "None.");
  for (const a of s.stage1) lines.push(`# Answer of ${a.model}`, a.response ?? `Failed: ${a.error?.message}`);
  for (const r of s.stage2) lines.push(`# Review of ${r.model}`, r.ranking ?? `Failed: ${r.error?.message}`);
  lines.push(`Session ${s.session_id}, ${s.created}, ${s.status}.`);
  return `${lines.join("\n\n")}\n`;
}
