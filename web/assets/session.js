// The view of one session. It is built from the events and the request of the session. So the view is the same live,
// after a reload, after the end, and for every reader with the same token.

import { download, menu, notifier, steady } from "./reading.js";
import { answerInto, answerTabs, comparison, opinions, reviewInto, reviewList } from "./answers.js";
import { ask, cancel, convene, councils, follow, get, isFinal, keep, kept, now, request, session, tryAgain } from "./api.js";
import { bar, costing, differences, findings, standings, totals, verdict } from "./audit.js";
import { copyButton, count, el, few, Few, icon, lasting, nth, number, problem, sendOnEnter, tame } from "./dom.js";
import { found, missing, paper, reasons, shared, stages, written } from "./ending.js";
import { discard } from "./history.js";
import { growing, ready, show } from "./markdown.js";
import { decided, fewFirst } from "./modes.js";

// watch shows a session until it ends or the signal is aborted.
export async function watch(section, signal, id) {
  const view = layout(section, signal, id);
  ready();
  const state = { answers: new Map(), reviews: new Map(), texts: new Map(), text: "" };
  // tally counts the members of a stage that are done, and returns a sentence about them.
  const tally = (stage, all, seats, word, did, next) => {
    const ok = [...seats.values()].filter((s) => s.status === "ok").length, bad = seats.size - ok;
    view.step(stage, `${ok} of ${all}${bad ? `, ${bad} ${word}` : ""}`);
    view.title("▸", `${ok} of ${all}`);
    return `${Few(ok)} of ${few(all)} ${ok === 1 ? "has" : "have"} ${did}${bad ? `, ${few(bad)} ${word}` : ""}. ${next}`;
  };
  const answered = () => {
    const { models, first } = state.started, all = first && !state.convened ? first : models.length;
    const next = first && !state.convened ? "Their answers decide whether the others are asked." : {
      stage2: "Reviews begin when the last one is done.", stage3: "The chairman writes when the last one is done.",
    }[["stage2", "stage3"].find(view.runs)] ?? "";
    return tally("stage1", all, state.answers, "failed", "answered", next);
  };
  const reviewed = () => tally("stage2", state.started.reviewers.length, state.reviews, "without a ballot", "voted",
    view.runs("stage3") ? "The chairman writes when the last one is done." : "The ranking follows when the last one is done.");
  // write says that the stages before the synthesis are over. It marks the synthesis as the next stage, if it runs.
  const write = (so) => {
    if (view.runs("stage3")) {
      view.step("stage3", "being written");
      view.title("▸", "writing");
    }
    view.say(view.runs("stage3") ? `${so} The chairman is writing.` : so);
  };
  const slowest = (seats) => Math.max(0, ...[...seats.values()].map((s) => s.latency_ms));

  const handle = (type, data) => {
    switch (type) {
      case "session.started":
        state.started = data;
        view.members(data);
        if (data.mode !== "judge") answered();
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
        view.say(answered());
        break;
      case "first.done":
        view.first(data);
        state.convened = data.convened;
        if (data.convened) view.say("Asking the whole council.");
        break;
      case "stage1.done":
        data.forEach(view.answer);
        state.answers = new Map(data.map((a) => [a.model, a]));
        if (state.started.mode !== "judge") answered();
        if (view.runs("stage2")) {
          view.reviewers(slowest(state.answers));
          reviewed();
          view.say(`Asking ${count(state.started.reviewers.length, "reviewer")}.`);
        } else {
          write("The answers are complete.");
        }
        break;
      case "stage2.ballot":
        state.reviews.set(data.model, data);
        view.review(data);
        view.say(reviewed());
        break;
      case "stage2.done":
        if (state.started.mode === "task") break;
        view.tally(data, [...state.reviews.values()]);
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
  const handled = (type, data) => {
    handle(type, data);
    if (!type.endsWith(".delta")) view.settle(); // a text that grows is drawn later
  };
  // The sum of what the replies cost so far is null if the cost of one is unknown.
  view.spent = () => [...state.answers.values(), ...state.reviews.values()].filter((reply) => !reply.given)
    .reduce((sum, { usage }) => (sum == null || usage.cost_usd == null ? null : sum + usage.cost_usd), 0);
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
    await follow(id, handled, cut, signal);
  } catch (error) {
    if (!signal.aborted) view.lost(error);
  }
}

// layout builds the empty view and returns the functions that fill it.
function layout(section, signal, id) {
  const steps = new Map(Object.entries(stages).map(([stage, name]) =>
    [stage, el("li", {}, el("span", { class: "step" }, name), el("span", { class: "hint" }))]));
  const heading = el("h1", { class: "question", tabindex: "-1", dir: "auto" });
  const whole = el("details", { hidden: true, class: "fold" }, el("summary", {}, "The whole question"));
  const turns = el("div");

  // The line below the title. It has the same height while the session runs and afterwards.
  const team = el("p", { class: "hint team" });
  const clock = el("span", { class: "time" }), usual = el("span");
  const passed = el("progress", { max: "1", "aria-label": "Time so far, of the expected time", hidden: true });
  const waited = el("p", { class: "hint clock", hidden: true }, clock, " so far", usual);
  const took = el("p", { class: "hint took", hidden: true });

  const said = el("p", { role: "status", class: "said", tabindex: "-1" });
  const next = el("span", { "aria-hidden": "true" }); // hidden from screen readers, because it changes each second
  const retry = el("button", { type: "button" }, "Try now");
  const line = el("div", { class: "notice lost", role: "alert", hidden: true }, el("p", {}, "The connection to the daemon is lost. "
    + "The session continues if the daemon is still running. If the daemon has stopped, the session continues after a restart, "
    + "but only if the daemon keeps sessions on disk. ", next), retry);
  const notices = el("div", { role: "alert" });
  const stop = el("button", {
    type: "button", onclick: async () => {
      if (!await (await import("./actions.js")).sure(view.spent()) || ended) return;
      said.focus(); // a disabled button would lose the focus to the page
      stop.disabled = true;
      cancel(id).catch((error) => {
        stop.disabled = false;
        notices.append(problem(error));
      });
    },
  }, "Cancel");
  const notify = notifier(() => heading.textContent, signal);
  const share = copyButton("Share", () => location.href, "Share",
    "Link copied. Whoever opens it with a token of the same name sees the session.");
  const onward = el("button", { type: "button", hidden: true, onclick: () => {
    const field = further.querySelector("textarea");
    field.focus({ preventScroll: true });
    field.closest("section").scrollIntoView({ block: "center" });
  } }, "Continue");
  const tools = el("div", { class: "actions", role: "group", "aria-label": "This session" }, stop, notify.button);

  const prose = el("div", { class: "prose" }), text = growing(prose), space = el("div", { class: "space" }, prose);
  const room = el("div", { class: "room" }, space, said);
  const author = el("p", { class: "hint author" }), beginning = el("p", { class: "hint beginning" });
  const others = el("div"); // It holds the button of askOthers.
  const answer = part("Answer", "Answer", room, author, beginning, others);
  const agreed = el("p", { class: "agreed" }), map = el("div", { class: "map", hidden: true });
  const agreement = part("Agreement", "Do they agree?", agreed, map);
  const further = part("Continue", "Continue");
  let redraw = () => {}; // draws the form of preferences again
  const opened = new Set(); // members whose answers the reader has opened
  const still = steady(section, signal);
  const answers = answerTabs((model) => {
    opened.add(model);
    redraw();
    if (ended) return;
    // The reader reads a member's answer now. So the final answer grows in its own space.
    still.hold();
    if (room.style.height) return;
    room.style.height = `${room.offsetHeight}px`;
    space.tabIndex = 0;
    space.role = "region";
    space.ariaLabel = "The answer so far";
  }), reviews = reviewList();
  const compared = el("div");
  const wholeAnswers = part("Answers", "Answers", answers.list, answers.panels, compared);
  const choice = part("Choice", "Which answer do you prefer?");
  const ranking = el("div", { class: "ranking" }), audit = el("div", { class: "audit" }), versions = el("div");
  const wholeReviews = el("div", { class: "reviews" }, el("h3", {}, "Ballots"), el("p", { class: "hint" },
    "Each reviewer saw the other answers without names, in an order of its own. "
    + "So the same letter means a different answer in each review. The table next to a review shows which."), reviews.list);
  const judging = part("Judged", "How it was judged", el("details", { class: "fold" },
    el("summary", {}, "Ranking, ballots, audit, versions"), ranking, wholeReviews, audit, versions));
  const more = el("div", { class: "tools more" });
  const reviewers = el("div", { hidden: true }, el("h2", {}, "Reviewers"), reviews.rows);
  const progress = el("div", { class: "progress" }, el("ol", { class: "steps", "aria-label": "Progress" }, [...steps.values()]),
    el("div", {}, el("h2", {}, "Members"), answers.rows), reviewers);
  const ranked = el("div", { hidden: true });
  const figures = part("Figures", "Time and cost"), bill = el("div", { class: "hint" }), warnings = el("div");
  const conversed = el("div"); // It holds links to the earlier and later turns of the conversation.
  section.replaceChildren(
    el("div", { class: "reading" }, heading, whole, turns, team, el("div", { class: "when" }, waited, took, passed), tools,
      notices, answer, agreement, further, wholeAnswers, choice, judging, more),
    el("aside", { class: "rail", "aria-label": "At a glance" }, progress, ranked, figures, conversed), line);
  section.classList.add("reserved");
  answer.hidden = false;
  still.watch(answers.panels);

  let begun = null; // start of the session by the daemon's clock, in ms; null until it is known
  let reviewed = 0; // ms from the start of the session to the start of the reviews
  let expected = null; // ms that a session of this council usually takes, or null
  let live = false; // whether the session ran when the view was opened
  const tick = () => {
    if (begun === null) return;
    for (const time of section.querySelectorAll("[data-since]")) {
      time.textContent = lasting(now() - begun - (time.dataset.since === "reviews" ? reviewed : 0));
    }
    if (expected) passed.value = Math.min(1, (now() - begun) / expected);
  };
  const timer = setInterval(tick, 1000);
  signal.addEventListener("abort", () => {
    clearInterval(timer);
    section.classList.remove("reserved");
  });
  // over is called at the end. The argument mark begins the title of the tab.
  const over = (mark, stopped) => {
    clearInterval(timer);
    document.querySelector("dialog.sure")?.close();
    if (tools.contains(document.activeElement)) said.focus();
    stop.hidden = notify.button.hidden = waited.hidden = passed.hidden = progress.hidden = true;
    view.cut(false);
    for (const { seats } of [answers, reviews]) for (const s of seats.values()) s.unreached(stopped);
    for (const step of steps.values()) step.removeAttribute("aria-current");
    prose.setAttribute("aria-busy", "false");
    room.style.height = "";
    space.removeAttribute("tabindex");
    space.role = space.ariaLabel = null;
    if (mark) view.title(mark);
    if (mark === "✓") notify.tell();
  };
  const notice = (kind, ...content) => notices.append(el("div", { class: `notice ${kind}` }, content));
  const badge = (status) => el("span", { class: "badge" }, el("span", { class: `state ${status}` }, status));

  let keeps = false; // whether the daemon keeps feedback
  // seen returns the members whose answers the reader has opened.
  const seen = () => [...opened.union(new Set([...compared.querySelectorAll("details[open] select")].map((select) => select.value)))]
    .filter((model) => ended?.stage1?.some((a) => a.model === model && a.status === "ok"));
  // prefer shows a form in which the reader chooses among the answers that they have opened.
  const prefer = async () => {
    const { preference } = await import("./feedback.js");
    const { form, draw } = preference(id, seen, Boolean(ended.stage3));
    choice.append(form);
    choice.hidden = false;
    for (const event of ["toggle", "change"]) compared.addEventListener(event, draw, true);
    redraw = draw;
  };

  let what; // the request; null if the daemon cannot return it, undefined until it is known
  // ended is the session, or null until its end. drawn says whether the actions on the session are shown.
  let ended = null, drawn = false;
  let synthesis = null; // the final answer, once a chairman or a fallback has written it
  let mapping = null; // the promise of a drawn map
  let charted = []; // the parts of a Markdown document that have the map
  let judged = false; // whether the answers were given to judges, so that there is no final answer
  let voters = []; // the models that were asked to review
  // run shows the steps of these stages, and hides the others.
  const run = (some) => {
    for (const [stage, step] of steps) step.hidden = !some.includes(stage);
    wholeReviews.hidden = !some.includes("stage2");
  };
  // openAnswer opens a member's answer for the reader, who is somewhere else on the page.
  const openAnswer = (model) => {
    answers.choose(model);
    return answers.seats.get(model);
  };
  const view = {
    settle: still.settle,
    runs: (stage) => !steps.get(stage).hidden,
    title: (mark, standing) => {
      if (signal.aborted) return;
      if (mark) view.mark = standing ? `${mark} ${standing} · ` : `${mark} `;
      document.title = `${view.mark}${view.asks}`;
      icon({ "▸": "icon-busy", "✓": "icon-done" }[view.mark.slice(0, 1)] ?? "icon");
    },
    mark: "", asks: "",
    question: (full) => {
      if (whole.childElementCount === 1) whole.append(el("div", { class: "prose" }));
      const long = full.length > 400;
      heading.textContent = tame(long ? `${full.slice(0, 360)}…` : full);
      view.asks = full.slice(0, 60);
      view.title();
      const measure = () => {
        const wanted = long || heading.scrollHeight > heading.clientHeight + 1;
        if (wanted && !whole.lastChild.firstChild) show(whole.lastChild, full);
        whole.hidden = !wanted;
      };
      view.fits?.disconnect();
      view.fits = new ResizeObserver(measure);
      view.fits.observe(heading);
      whole.lastChild.replaceChildren();
      measure();
    },
    asked: (request, s, cards, started) => {
      what = request;
      keeps = cards.some((c) => c.keeps_feedback);
      const messages = request?.messages ?? [{ role: "user", content: request?.query ?? s.query }];
      view.question(messages.at(-1).content);
      if (messages.length > 1) turns.replaceChildren(conversation(messages.slice(0, -1)));
      const card = cards.find((c) => String(c.members) === String(started?.models ?? s.models));
      view.team(s.council || card?.name);
      thread(conversed, id, signal);
      live = s.status === "running";
      if (live && !ended) {
        begun = Date.parse(s.created);
        clock.dataset.since = "session";
        waited.hidden = false;
        if (s.metadata?.first) {
          view.first(s.metadata.first, s.metadata.given_from);
        } else if (request?.first && started && beginning.textContent === "") {
          beginning.textContent = `${fewFirst(request.first, started.models.length)}.`;
        }
        const lately = card?.lately;
        if (lately) {
          usual.textContent = usually(lately);
          expected = lately.median_ms;
          passed.hidden = false;
        }
        tick();
      }
      if (!live) section.classList.remove("reserved");
      view.further();
    },
    // team names the council and its members. It is called with the name of the council when that is known.
    team: (council) => {
      view.council = council ?? view.council;
      const all = judged ? voters : [...answers.seats.keys()];
      const names = all.length <= 4 ? all.join(", ") : count(all.length, judged ? "judge" : "member");
      team.textContent = tame([view.council, names].filter(Boolean).join(" · "));
    },
    council: null,
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
    members: ({ models, reviewers: judges, chairman, mode }) => {
      judged = mode === "judge";
      voters = judges;
      answers.place(models, judged ? null : "session");
      reviews.place(judges);
      wholeAnswers.hidden = false;
      if (judged || mode === "task") answer.querySelector("h2").textContent = "Result";
      run([judged ? null : "stage1", judges.length > 0 ? "stage2" : null, chairman ? "stage3" : null]);
      view.team();
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
      reviewers.hidden = false;
      for (const s of reviews.seats.values()) {
        if (s.ended) continue;
        s.count("reviews");
        s.state("reviewing");
      }
      tick();
    },
    writing: (model, so) => answers.seats.get(model)?.write(so),
    answer: (a) => answerInto(answers.seats.get(a.model), a, judged),
    review: (r) => reviewInto(reviews.seats.get(r.model), r),
    tally: (t, ballots) => {
      const { aggregate_rankings: rows } = t, ranks = rows.map((row) => row.final_rank);
      ranking.replaceChildren(el("h3", {}, "Ranking"), ...standings(t));
      audit.replaceChildren(el("h3", {}, "Audit"), el("p", {}, verdict(t)),
        el("details", { class: "fold" }, el("summary", {}, "What the audit checked"), findings(t)));
      agreed.textContent = t.agreement.sentence;
      for (const { model, final_rank: rank } of rows) answers.seats.get(model)?.rank(rank, ranks);
      for (const [model, seat] of answers.seats) opinions(seat, model, ballots);
      const go = (model) => el("button", { type: "button", class: "plain", onclick: () => {
        const { tab } = openAnswer(model);
        tab.focus({ preventScroll: true });
        tab.scrollIntoView({ block: "center" });
      } }, model);
      const title = "Borda score, from 0 (always last) to 1 (always first)";
      ranked.replaceChildren(el("h2", {}, "Ranking"), ranks.every((rank) => rank == null) ? el("p", { class: "hint" }, "Not ranked.")
        : el("ul", { class: "ranked" }, rows.map(({ model, final_rank: rank, borda_normalized: share }) => el("li", {},
          el("span", { class: "place" }, nth(rank, ranks)), go(model),
          share == null ? null : el("span", { class: "share", title }, bar(share), number(share))))));
    },
    // compare offers the texts of a session side by side, those of these members in their order.
    compare: (s, order) => {
      const good = order.map((model) => s.stage1.find((a) => a.model === model)).filter((a) => a?.response)
        .map((a) => ({ name: `The answer of ${a.model}`, model: a.model, text: a.response }));
      const verbatim = ["top_ranked", "first_answer"].includes(s.stage3?.fallback);
      if (s.stage3?.response && !verbatim) good.unshift({ name: "The final answer", model: "", text: s.answer });
      if (good.length > 1) compared.replaceChildren(comparison(good));
    },
    text: (so, isFinal) => {
      prose.setAttribute("aria-busy", String(!isFinal));
      text.set(so, isFinal);
    },
    synthesis: (s) => {
      synthesis = s;
      // No line of JSON can close the block.
      view.text(s.parsed == null ? s.response : `\`\`\`json\n${s.response}\n\`\`\``, true);
      steps.get("stage3").lastChild.textContent = "written";
    },
    // map is called again at the end of the session, which helps if the page could not load the module before.
    map: (m) => {
      mapping ??= import("./map.js").then(({ chart, pointOut, strip }) => {
        map.replaceChildren(...strip(m, synthesis, ({ model, quote }) => {
          if (answers.seats.has(model)) pointOut(openAnswer(model), quote);
        }));
        map.hidden = false;
        charted = chart(m, synthesis);
      }, () => { mapping = null; });
    },
    done: (s) => {
      s.stage1.forEach(view.answer);
      s.stage2.forEach(view.review);
      const { stages: ran, first, given_from: from, aggregate_rankings: rows, timing, usage } = s.metadata;
      if (ran) run(ran); // a session of an older daemon does not have them
      if (first) view.first(first, from);
      if (!s.stage3 && !judged && !s.task) view.text(s.answer, true);
      if (s.task) prose.replaceChildren(found(s));
      author.textContent = written(s, judged);
      author.classList.toggle("hint", !judged && !s.task);
      if (s.metadata.map) view.map(s.metadata.map);
      audit.querySelector("details")?.append(...differences(s.metadata));
      const order = rows.length ? rows.map((row) => row.model) : s.stage1.map((a) => a.model);
      view.compare(s, order);
      over("✓");
      answers.order(order);
      if (rows.length === 0 && !s.task) for (const seat of answers.seats.values()) seat.rank(null, []);
      steps.forEach((step) => step.classList.add("past"));
      if (s.status === "degraded") notice("warn", missing(s, voters, judged), reasons(s.degradation));
      const rest = s.metadata.warnings.filter((w) => w.code !== "cost_uncertain"); // the bill says that one
      if (rest.length) warnings.replaceChildren(el("div", { class: "notice warn" }, rest.map((w) => el("p", {}, w.message))));
      const sum = `${lasting(timing.total_ms)} · ${costing(usage.total)}`;
      took.replaceChildren(`Took ${sum}`, s.status === "degraded" ? badge(s.status) : "");
      took.hidden = false;
      figures.replaceChildren(figures.firstChild, el("details", { class: "fold" },
        el("summary", {}, `${lasting(timing.total_ms)}, ${costing(usage.total)}`), totals(s)), bill, warnings);
      versions.replaceChildren(el("h3", {}, "Versions and seed"), el("p", {},
        `councild ${s.metadata.versions.councild}, council ${s.metadata.versions.council_config}, ${s.metadata.versions.synthesis}. `
        + `Seed ${s.metadata.seed}, order ${s.metadata.order}. Session ${id}.`));
      // If this fails, the summary still has the cost.
      import("./spend.js").then((spend) => spend.bill(bill, s, signal), () => {});
      figures.hidden = false;
      ranked.hidden = s.stage2.length === 0 || Boolean(s.task);
      judging.hidden = false;
      agreement.hidden = agreed.textContent === "" && !s.metadata.map;
      view.say(judged ? "The judges have finished." : s.task ? "The review is complete." : `The answer is ${s.status}.`);
      said.classList.add("offscreen");
      ended = s;
      view.further();
    },
    failed: (body) => {
      const neutral = body.code === "cancelled";
      over(neutral ? "■" : "✗", ["cancelled", "interrupted"].includes(body.code));
      answers.order([]);
      const shown = problem({
        body: neutral ? { title: "Cancelled", detail: "what arrived before that is below" } : { ...body, errors: shared(body.errors ?? []) },
      });
      if (neutral) shown.classList.remove("bad");
      notices.append(shown);
      took.replaceChildren(badge(neutral ? "cancelled" : "failed"));
      took.hidden = false;
      agreement.hidden = agreed.textContent === "";
      judging.hidden = ![...reviews.seats.values()].some((r) => r.ended);
      view.say({ cancelled: "The session was cancelled.", interrupted: "The session was interrupted." }[body.code] ?? "The session failed.");
      ended = {};
      view.further();
    },
    lost: (error) => {
      over("");
      notices.append(problem(error));
    },
    // further is called when the session has ended. It shows the actions on that session.
    further: () => {
      if (!ended || drawn) return;
      // This runs only once. further is called again with the request, and a button in use must stay.
      if (!tools.querySelector(".copying")) {
        tools.append(...[
          ended.answer ? copyButton("Copy the final answer", () => ended.answer) : null, share,
          ended.stage1 ? menu("Download", [
            download("Download as Markdown", `${id}.md`, "text/markdown", () => paper(ended, what, charted)),
            download("Download as JSON", `${id}.json`, "application/json", () => JSON.stringify(ended, null, 2))], signal) : null,
          onward,
        ].filter(Boolean));
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
      if (what && ended.answer) {
        further.replaceChildren(further.firstChild, followUp(id, what, ended.answer));
        further.hidden = onward.hidden = false;
      }
      more.replaceChildren(...[
        what && !ended.task ? el("a", { href: `#/again/${id}` }, "Ask again with changes") : null,
        keeps && ended.answer && !wanted ? asking : null,
        el("button", { type: "button", class: "plain", onclick: discarding }, "Delete this session")].filter(Boolean));
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
  return `, usually ${low === high ? `about ${low}` : `${low} to ${high}`} (${count(sessions, "session")})`;
}

// thread shows links to the turns of a conversation, if it has several. An older daemon does not know conversations.
async function thread(place, id, signal) {
  const path = `v1/council?${new URLSearchParams({ thread: id })}`;
  const { sessions } = await get(path, { unasked: true }).catch(() => ({ sessions: [] }));
  const own = sessions.find((s) => s.session_id === id)?.thread;
  const turns = sessions.filter((s) => own && s.thread === own).sort((a, b) => Date.parse(a.created) - Date.parse(b.created));
  if (signal.aborted || turns.length < 2) return;
  place.replaceChildren(el("h2", {}, "Conversation"), el("ol", { class: "thread" }, turns.map((s) => el("li", {},
    el("a", { href: `#/session/${s.session_id}`, dir: "auto", "aria-current": s.session_id === id ? "page" : null },
      s.title || s.query)))));
}

// conversation shows the earlier turns, folded.
function conversation(messages) {
  const turns = messages.filter((m) => m.role === "user").length;
  return el("details", { class: "fold before" }, el("summary", {}, `Earlier in this conversation: ${count(turns, "question")}`),
    messages.map((m) => el("div", { class: `turn ${m.role}` },
      el("p", { class: "hint" }, { user: "Question", assistant: "Answer", system: "Instructions" }[m.role] ?? m.role),
      show(el("div", { class: "prose" }), m.content))));
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
  const fit = () => { // for browsers that do not fit a field to its text by themselves
    if (CSS.supports("field-sizing", "content")) return;
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  const field = el("textarea", { id: "follow-up", rows: 1, required: true, dir: "auto", placeholder: "Ask a follow-up question",
    enterkeyhint: matchMedia("(pointer: coarse)").matches ? "enter" : "send", oninput: () => {
      draft.text = field.value;
      fit();
      store();
    } });
  field.value = draft.text ?? "";
  requestAnimationFrame(fit);
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
  }, el("label", { for: "follow-up", class: "hint" }, "The council sees the whole conversation."),
  el("div", { class: "ask" }, field, button), trouble);
  sendOnEnter(field, form);
  return form;
}
