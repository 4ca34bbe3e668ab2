// The home page: the question form, the council that answers, the questions of a demo, and the newest sessions.

import { ask, getAgain, keep as store, kept, offers } from "./api.js";
import { away, count, el, keys, lasting, problem, sendOnEnter, usd } from "./dom.js";
import { list } from "./history.js";
import { fewFirst, formed, manner } from "./modes.js";

const $ = (id) => document.getElementById(id);

const texts = ["query", "chairman", "max_cost_usd", "category", "language"]; // fields with one value each

// carried are the properties that "ask again" takes from a session and that have no field in the form. Each function
// returns words for its property, or null for the usual value.
const carried = {
  mode: (mode) => (mode === (council?.mode ?? "council") ? null : `the mode is ${mode}`),
  first: (n) => (n === council?.first ? null : `${count(n, "member")} ${n === 1 ? "is" : "are"} asked first`),
  answer_form: (form) => (JSON.stringify(form) === JSON.stringify(council?.answer_form) ? null : `the answer is ${formed(form)}`),
  data_class: (name) => `the data class is ${name}`,
  output_schema: () => "the answer must match a JSON Schema",
  order: (order) => (order === "balanced" ? null : `the order is ${order}`),
  timeout_seconds: (s) => `the time limit is ${lasting(1000 * s)}`,
  max_total_tokens: (n) => `the limit is ${count(n, "token")}`,
  on_partial: (choice) => (choice === "refuse" ? "an answer from only part of the council is refused" : null),
};

let draft = kept("draft"); // the content of the form, in the form of POST /v1/council
let cards = []; // the answer of GET /v1/councils; empty until it comes
let council = null; // the card of the chosen council
let estimating = new AbortController(); // aborted when the form changes or the reader leaves it

// home shows the page.
export async function home(section, signal) {
  signal.addEventListener("abort", () => estimating.abort());
  fill();
  await list($("sessions"), $("sessions-title"), signal, { limit: 5 }, false);
  if (signal.aborted) return;
  const offered = await offers(); // after the list, which asks for a token and waits for the daemon
  if (signal.aborted) return;
  cards = offered?.councils ?? [];
  $("no-council").hidden = offered === null || cards.length > 0;
  $("question-form").hidden = !$("no-council").hidden;
  suggest(offered?.demo?.questions ?? []);
  choose();
  read(); // takes what the reader typed meanwhile
  fill();
  estimateSoon();
}

// again is called for "ask again". It fills the form with the request of a session.
export async function again(section, signal, id) {
  const place = $("ask-problem");
  place.replaceChildren();
  try {
    const asked = await getAgain(`v1/council/${encodeURIComponent(id)}/request`, away(place), signal);
    if (signal.aborted) return;
    const { query, messages = [], seed, ...same } = asked; // the new session gets its own seed
    draft = { ...same, query: query ?? messages.at(-1)?.content, messages: messages.slice(0, -1) };
    keep();
    place.replaceChildren();
    window.history.replaceState(null, "", "#/"); // so that a reload keeps the reader's changes
    $("options").open = true;
  } catch (error) {
    if (signal.aborted) return;
    place.replaceChildren(problem(error));
  }
  const shown = home(section, signal);
  $("query").focus();
  await shown;
}

// choose takes the council of the draft, or the default one.
function choose() {
  council = cards.find(({ name }) => name === draft.council) ?? cards[0] ?? null;
  describe();
}

// suggest shows the questions of a demo. A click asks one of them.
function suggest(questions) {
  $("examples").hidden = questions.length === 0;
  $("examples-list").replaceChildren(...questions.map((question) => el("li", {}, el("button", {
    type: "button", dir: "auto", onclick: () => {
      $("query").value = question;
      read();
      $("question-form").requestSubmit();
    },
  }, question))));
}

// describe shows what the council does with a question, how long that usually takes, and what it usually costs. The
// options name its seats.
function describe() {
  $("estimate").replaceChildren(...(council?.sentence ? [el("p", {}, council.sentence)] : []));
  $("council-line").textContent = "";
  if (council === null) return;
  const { name, members, reviewers, first, answer_form: form, lately, limit_sentence: rule } = council;
  const facts = [
    ["Members", cards.length > 1 ? members.join(", ") : null], // Otherwise the reader can choose the members.
    ["Reviewers", reviewers.join() === members.join() ? null : reviewers.join(", ")],
    ["Time", lately === null || lately.sessions < 10 ? null : `9 of 10 sessions took at most ${lasting(lately.p90_ms)}`],
  ];
  const line = [
    cards.length > 1 || name === "default" ? null : `Council ${name}`, manner(council), first ? fewFirst(first, members.length) : null,
    form ? formed(form) : null, lately === null ? null : lately.median_ms < 1000 ? "under 1 s" : `about ${lasting(lately.median_ms)}`,
  ];
  $("council-line").textContent = `${line.filter(Boolean).join(" · ")} · `;
  $("cost-use").textContent = rule ?? "";
  $("council-facts").replaceChildren(...facts.filter(([, text]) => text).map(([title, text]) =>
    el("div", {}, el("dt", {}, title), el("dd", {}, text))));
}

// fill writes the draft into the form, with the choices of the council.
function fill() {
  const { members = [], allowed_models: allowed = [], chairman = "", max_cost_usd: limit = null } = council ?? {};
  const chosen = draft.models ?? members;
  const known = [...new Set([...members, ...allowed, ...chosen])];
  const several = cards.length > 1;
  $("councils").hidden = !several;
  $("council").replaceChildren(...(several ? cards : []).map((card) => {
    const option = el("option", { value: card.name }, card.name);
    option.selected = card === council;
    return option;
  }));
  // With several councils, the reader can choose members only after "ask again" on a session with chosen members of the
  // default council.
  $("models").hidden = council === null || (several && !(draft.models && council === cards[0]));
  $("chairman-field").hidden = !council?.chairman;
  $("models-choice").replaceChildren(...known.map((model) => {
    const box = el("input", { type: "checkbox", name: "models", value: model });
    box.checked = chosen.includes(model);
    return el("label", {}, box, model);
  }));
  const chairmen = [...new Set([...known, ...(draft.chairman ? [draft.chairman] : [])])].filter((model) => model !== chairman);
  $("chairman").replaceChildren(
    el("option", { value: "" }, chairman ? `${chairman}, as configured` : "as configured"),
    ...chairmen.map((model) => el("option", {}, model)));
  for (const name of texts) $(name).value = draft[name] ?? "";
  if (draft.chairman === chairman) $("chairman").value = "";
  $("max_cost_usd").placeholder = limit === null ? "none" : usd(limit);
  const { messages: earlier = [] } = draft;
  const conditions = Object.entries(carried).map(([name, say]) => draft[name] != null && say(draft[name])).filter(Boolean);
  $("earlier").hidden = earlier.length + conditions.length === 0;
  $("earlier").replaceChildren(
    earlier.length > 0 ? el("h2", {}, "Earlier in this conversation") : "",
    ...earlier.map(({ role, content }) => el("div", { class: "turn" },
      el("p", { class: "hint" }, { user: "You", assistant: "The council", system: "Instructions" }[role] ?? role),
      el("p", { class: "said-before", tabindex: "0" }, content))),
    conditions.length > 0 ? el("p", {}, `As before, ${new Intl.ListFormat("en").format(conditions)}.`) : "",
    el("button", {
      type: "button", onclick: () => {
        draft.messages = [];
        for (const name of Object.keys(carried)) delete draft[name];
        keep();
        fill();
        estimateSoon();
        $("query").focus();
      },
    }, "Remove these"));
}

// read copies the form into the draft. It leaves out empty fields, and the members if they are those of the council.
function read() {
  for (const name of texts) draft[name] = $(name).value;
  if (!council) return;
  const chosen = council === cards[0] && (draft.models || !$("models").hidden);
  if (cards.length > 1 && !chosen) {
    draft.council = council.name;
    draft.models = null;
    return;
  }
  draft.council = null;
  const models = [...document.querySelectorAll("#models-choice input:checked")].map((box) => box.value);
  if (models.length === 0 && document.querySelector("#models-choice input") === null) return;
  const usual = new Set(council.members);
  draft.models = models.length === usual.size && models.every((model) => usual.has(model)) ? null : models;
}

const keep = () => store("draft", draft);

// request returns the draft in the form of POST /v1/council. Call read first.
function request() {
  const { query, messages = [], models, council: name, max_cost_usd: cost } = draft;
  const rest = Object.fromEntries([
    ...["chairman", "category"].map((name) => [name, draft[name]]), ["language", draft.language.trim().toLowerCase()],
    ...Object.keys(carried).map((name) => [name, draft[name]]),
  ].filter(([, value]) => value));
  return {
    ...(messages.length > 0 ? { messages: [...messages, { role: "user", content: query }] } : { query }),
    ...(name && { council: name }), ...(models && { models }), ...rest,
    ...(cost.trim() && { max_cost_usd: amount(cost) }),
  };
}

// amount reads an amount of US dollars that the reader typed. It returns NaN for a text that is no amount above 0.
function amount(text) {
  const value = Number(text.trim().replace(/^\$\s*/, ""));
  return value > 0 && Number.isFinite(value) ? value : NaN;
}

// check returns the problems of the form that the page finds itself.
function check() {
  const errors = [];
  if (!draft.query?.trim()) errors.push({ field: "query", message: "Write a question" });
  if (draft.max_cost_usd?.trim() && Number.isNaN(amount(draft.max_cost_usd))) {
    errors.push({ field: "max_cost_usd", message: "Enter an amount in US dollars, such as 0.50" });
  }
  if (draft.models?.length < 2 && (draft.mode ?? council?.mode) !== "single") {
    errors.push({ field: "models", message: "Choose at least two members" });
  }
  if (draft.language && !/^[a-z]{2}$/i.test(draft.language.trim())) {
    errors.push({ field: "language", message: "Enter two letters, such as en" });
  }
  return errors;
}

// complain shows each problem at its field, and all others under the form.
function complain(error) {
  const rest = [];
  let first = null;
  for (const e of error.body?.errors ?? []) {
    const name = /^messages\b/.test(e.field) ? "query" : e.field.replace(/\W.*$/s, "");
    const place = $(`${name}-problem`);
    if (!place) {
      rest.push(e);
      continue;
    }
    place.textContent = [place.textContent, `${e.message}${e.fix ? `; ${e.fix}` : ""}.`].join(" ").trim();
    const field = $(name);
    field.setAttribute("aria-invalid", "true");
    if (name !== "query" && name !== "council") $("options").open = true;
    first ??= field.matches("fieldset") ? field.querySelector("input") : field;
  }
  if (first === null || rest.length > 0) {
    $("ask-problem").replaceChildren(problem(first === null ? error : { ...error, body: { ...error.body, errors: rest } },
      "Your question has not been sent."));
  } else {
    $("ask-problem").replaceChildren(el("p", { class: "bad" }, "Your question has not been sent. See the fields that are marked."));
  }
  first?.focus();
}

function forgive() {
  $("ask-problem").replaceChildren();
  for (const place of document.querySelectorAll("#question-form p.bad")) place.textContent = "";
  for (const field of document.querySelectorAll("#question-form [aria-invalid]")) field.removeAttribute("aria-invalid");
}

// estimateSoon shows what the question would cost, after the reader has paused.
function estimateSoon() {
  estimating.abort();
  const { signal } = estimating = new AbortController();
  if (council === null || check().length > 0) {
    describe();
    return;
  }
  setTimeout(() => {
    if (signal.aborted) return;
    const question = request(); // now, because the form can change
    // Without the daemon, no estimate is shown.
    import("./spend.js").then((spend) => spend.estimate($("estimate"), question, signal), () => {});
  }, 400);
}

$("question-form").addEventListener("input", (event) => {
  if (event.target.name === "council") {
    draft.council = event.target.value;
    for (const name of ["models", "mode", "first", "answer_form"]) draft[name] = null; // they belong to the other council
    draft.chairman = $("chairman").value = "";
    choose();
    read();
    fill();
    $("council").focus(); // because fill has replaced its options
  } else {
    read();
  }
  keep();
  estimateSoon();
});

sendOnEnter($("query"), $("question-form"));
$("query-keys").textContent = keys();

$("question-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button.primary");
  if (button.disabled) return;
  forgive();
  read();
  const errors = check();
  if (errors.length > 0) {
    complain({ body: { errors } });
    return;
  }
  button.disabled = true;
  const { query } = draft;
  try {
    const id = await ask(request(), draft, keep);
    try {
      sessionStorage.setItem(`question ${id}`, query); // the session view shows it, even after a reload
    } catch { /* the question is too long for the storage; the view asks the daemon for it */ }
    sessionStorage.removeItem("draft");
    draft = {};
    $("options").open = false;
    choose();
    fill();
    estimateSoon();
    location.hash = `#/session/${id}`;
  } catch (error) {
    complain(error);
  } finally {
    button.disabled = false;
  }
});
