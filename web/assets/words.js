// The figures of the bias report as sentences.

import { number } from "./dom.js";

const topics = {
  harshness: "harshness", position: "position", self_preference: "self-preference", family_affinity: "preference for the own provider",
  affinity: "affinity between two models", length_points_per_doubling: "length", length_slope_deviation: "reward for length",
  anchoring: "anchoring", drift: "drift", discrimination: "spread of scores", agreement: "agreement",
  pooled_length_score_correlation: "length and score", position_score_correlation: "position and score",
};

// place names a place, which figures count from 0 and people from 1.
export const place = (subject) => subject.replace(/^\d+/, (n) => `place ${Number(n) + 1}`);

const base = (m) => m.metric_name.split("|")[0];

// topic names what a figure is about.
export const topic = (m) => topics[base(m)] ?? base(m).replaceAll("_", " ");

const size = (x) => number(Math.abs(x), Math.abs(x) < 0.095 ? 2 : 1);

// amount writes how large an effect is, with its unit and its interval: 0.6 points lower
// (0.4 to 0.9). An interval that holds 0 keeps its signs.
function amount(m, more, less, unit = "points") {
  const e = m.point_estimate, digits = [e, m.ci_lower, m.ci_upper].some((v) => v && Math.abs(v) < 0.095) ? 2 : 1;
  const size = (x) => number(Math.abs(x), digits);
  let interval = "";
  if (m.ci_lower != null && m.ci_upper != null) {
    const [low, high] = [m.ci_lower, m.ci_upper];
    interval = low > 0 || high < 0 ? ` (${size(Math.min(Math.abs(low), Math.abs(high)))} to ${size(Math.max(Math.abs(low), Math.abs(high)))})`
      : ` (${number(low, digits)} to ${number(high, digits)})`;
  }
  return `${size(e)} ${unit} ${e < 0 ? less : more}${interval}`;
}

// effect says what a figure states, without a verdict.
function effect(m) {
  const who = m.subject;
  switch (base(m)) {
    case "harshness": return `${who} scores ${amount(m, "higher than the others", "lower than the others")} on the same answers`;
    case "position": return /^\d+( of \d+)?$/.test(who) ? `answers at ${place(who)} score ${amount(m, "higher", "lower")}`
      : `by place, scores differ by ${amount(m, "", "")}${who ? `, ${who.replaceAll("_", " ")}` : ""}`;
    case "self_preference": return `${who || "reviewers"} score${who ? "s" : ""} ${who ? "its" : "their"} own answers ${amount(m, "higher", "lower")} than the others do`;
    case "family_affinity": return `${who || "reviewers"} score${who ? "s" : ""} answers of the same provider ${amount(m, "higher", "lower")} than the others do`;
    case "affinity": {
      const [reviewer, candidate] = who.split(">");
      return `${reviewer} scores ${candidate ?? "one model"} ${amount(m, "higher", "lower")} than the others do`;
    }
    case "length_points_per_doubling": return `an answer of twice the length scores ${amount(m, "higher", "lower")}`;
    case "length_slope_deviation": return `${who || "a reviewer"} gives an answer of twice the length ${amount(m, "more", "less")} than the council does`;
    case "anchoring": return `for each point that the first answer is better, those behind it score ${amount(m, "higher", "lower")}`;
    case "drift": return `${who || "a reviewer"} became ${amount(m, "milder", "harsher")} over the window`;
    default: return `${topic(m)}${who ? ` of ${who}` : ""}: ${number(m.point_estimate)} ${m.unit}`;
  }
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

const stop = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

// sentence says what was found of a figure and, where nothing was, what could have been.
// Models' names keep their case.
export function sentence(m) {
  const say = (text) => (m.subject && text.startsWith(m.subject) ? text : capital(text));
  const subject = topic(m);
  switch (m.verdict) {
    case "bias": return stop(say(effect(m)));
    case "association": return `${stop(say(effect(m)))} The quality of the answers may explain it.`;
    case "negligible": return `No ${subject} that counts: ${stop(effect(m))}`;
    case "inconclusive": return m.point_estimate == null ? `${capital(subject)}: ${stop(m.reason)}`
      : `No ${subject} shown: ${effect(m)}. ${m.minimum_detectable_effect == null ? ""
        : `${capital(`${size(m.minimum_detectable_effect)} ${m.unit} would have been found in four of five such windows.`)}`}`;
    case "not_identified": return `${capital(subject)} cannot be told: ${stop(m.reason)}`;
    case "insufficient": return `${capital(subject)}: ${stop(m.reason)}`;
    default: return m.point_estimate == null ? `${capital(subject)}: ${stop(m.reason)}` : stop(say(effect(m)));
  }
}
