// Sentences about modes: how a council comes to its answer, and how a session came to its answer.

import { listed as all } from "./dom.js";

// manner says how a council comes to its answer. A council of an older daemon does not name its mode.
export function manner({ mode, members: { length: n } }) {
  return {
    council: `${n} answers, reviewed, one synthesis`,
    ranked: `best of ${n} by rank`,
    synthesis: `${n} answers, one synthesis`,
    vote: `most frequent answer of ${n}`,
    single: "one model",
  }[mode ?? "council"] ?? mode;
}

// formed is a text for the form in which members answer.
export const formed = ({ type, options }) => ({
  choice: `one of ${options?.join(", ")}`, number: "a number", json: "JSON",
}[type] ?? "a few words");

// fewFirst says how many of n members begin.
export const fewFirst = (first, n) => `${first} of ${n} ${first === 1 ? "is" : "are"} asked first`;

// decided says what the members that began decided. Its argument is metadata.first of a session.
export function decided({ asked, why }) {
  const names = all(asked), one = asked.length === 1;
  return {
    same_answer: `${names} gave the same answer, so the others were not asked. The same answer can still be wrong, and it is not known how often that happens here.`,
    asked_alone: `Only ${names} was asked.`,
    different: `${names} gave different answers, so the whole council was asked.`,
    unreadable: `The answers of ${names} cannot be compared, because one does not have the form asked for. `
      + "So the whole council was asked.",
    no_form: "Answers without a form cannot be compared, so the whole council was asked at once.",
    failed: `${one ? `${names} failed to answer` : `Not all of ${names} answered`}, so the whole council was asked.`,
    on_demand: `Only ${names} ${one ? "was" : "were"} asked at first. Then the whole council was asked.`,
  }[why] ?? "";
}

// origin says whose text is the answer of a session that no chairman has written. It is "" if that is not known.
export function origin({ answer_from: from, metadata: { first }, stage1 }) {
  const { rule, model, tied, votes } = from ?? {};
  const equals = tied?.length ? all([model, ...tied]) : null;
  const verbatim = `The answer of ${model}, word for word.`;
  return {
    top: equals ? `${verbatim} The answers of ${equals} share the first rank. The seed picked this one.`
      : `The answer of ${model}, ranked first, word for word.`,
    commonest: `${equals ? `The answers of ${equals} are equally frequent. The seed picked this one`
      : `The most frequent answer${votes ? `: ${votes} of ${stage1.length} members` : ""}`}. In the words of ${model}.`,
    only: `The answer of ${model}, the only one asked, word for word.`,
    first: first && !first.convened ? verbatim : `There is no ranking. This is the first answer, by ${model}, word for word.`,
  }[rule] ?? "";
}
