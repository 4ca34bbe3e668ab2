// The figures of the bias report as sentences.

import { number } from "./dom.js";

const topics = {
  position: "effect of the place", self_preference: "self-preference", family_affinity: "preference for the own provider",
  affinity: "affinity between two models", pair: "affinity between two models", length_points_per_doubling: "effect of length",
  reasoning_points_per_doubling: "effect of reasoning",
  length_slope_deviation: "reward for length of its own", style_mimicry: "favour for answers like the own one",
  ballot_similarity: "likeness of ballots",
  pooled_length_score_correlation: "length and score", position_score_correlation: "place and score",
};

const base = (m) => m.metric_name.split("|")[0].replace(/_in_common$/, "");

// topic names what a figure is about.
export const topic = (m) => topics[base(m)] ?? base(m).replaceAll("_", " ");

const size = (x, digits = Math.abs(x) < 0.095 ? 2 : 1) => number(Math.abs(x), digits);

// range writes an interval. Where it holds 0, each end says its direction.
function range({ ci_lower: low, ci_upper: high }, more, less) {
  if (low == null || high == null) return "";
  if (low < 0 && high > 0) return ` (${size(low)} ${less} to ${size(high)} ${more})`;
  const [least, most] = [low, high].map(Math.abs).sort((a, b) => a - b);
  return ` (${size(least)} to ${size(most)})`;
}

// effect says what a figure states, without a verdict.
function effect(m) {
  const who = m.subject, [one, own] = who ? [`${who} scores`, "its"] : ["reviewers score", "their"];
  const points = (before, more, less, after = "") =>
    `${before} ${size(m.point_estimate)} points ${m.point_estimate < 0 ? less : more}${after}${range(m, more, less)}`;
  switch (base(m)) {
    case "harshness": return points(one, "higher", "lower", " than the others on the same answers");
    case "position":
      if (m.unit === "of pairs") {
        const way = m.point_estimate < 0 ? "loses" : "wins";
        return `with ${who}, the answer that is shown first ${way} in both orders in ${size(m.point_estimate)} of pairs more${range(m, "for the first", "for the last")}`;
      }
      if (!isPlace(who)) return points(`${one} the answer that it is shown first`, "higher", "lower", " than those at other places");
      return points(`answers at ${place(who)} score`, "higher", "lower", " than the others");
    case "position_effect": return points(`answers at ${place(who)} score`, "higher", "lower", " than the others");
    case "self_preference": return points(`${one} ${own} own answers`, "higher", "lower", " than the others do");
    case "family_affinity": return points(`${one} other answers of ${own} provider`, "higher", "lower", " than the others do");
    case "affinity":
    case "pair": {
      const [reviewer, candidate] = who.split(">");
      return points(`${reviewer} scores ${candidate}`, "higher", "lower", " than the others do");
    }
    case "length_points_per_doubling": return points("an answer of twice the length scores", "higher", "lower");
    case "reasoning_points_per_doubling": return points("an answer after twice the reasoning scores", "higher", "lower");
    case "length_slope_deviation":
      return points(`${who} scores an answer of twice the length`, "higher", "lower", " than the others do");
    case "style_mimicry": return points("an answer that is closer to the reviewer's own by 0.1 of similarity scores", "higher", "lower");
    case "anchoring": return points("for each point that the first answer is better, those behind it score", "higher", "lower");
    case "drift": return points(`${who} became`, "milder", "harsher", " over the window");
    default: return `${topic(m)}${who ? ` of ${who}` : ""}: ${number(m.point_estimate)} ${m.unit}`;
  }
}

const isPlace = (subject) => /^\d+( of \d+)?$/.test(subject);

// place names a place on the slate, of which the first has the number 0.
export const place = (subject) => (isPlace(subject) ? subject.replace(/^\d+/, (n) => `place ${Number(n) + 1}`) : subject);

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

const stop = (text) => (/(^|[.!?])$/.test(text) ? text : `${text}.`);

// alongside says what else changed when a reviewer did.
export const alongside = (changed) => (changed?.length
  ? `Then changed too: ${changed.map((a) => `${a.what} ${a.name} (${a.before} to ${a.after})`).join(", ")}.` : "");

// sentence says what was found of a figure and, where nothing was, what could have been.
// Models' names keep their case.
export function sentence(m) {
  const subject = topic(m);
  if (m.point_estimate == null) return stop(`${capital(subject)}${m.verdict === "not_identified" ? " cannot be told" : ""}: ${m.reason}`);
  const said = effect(m), found = stop(m.subject && said.startsWith(m.subject.split(">")[0]) ? said : capital(said));
  switch (m.verdict) {
    case "association": return `${found} The quality of the answers may explain it.`;
    case "differs": return `${found} Ranks do not depend on it.`;
    case "changed": return [found, alongside(m.also_changed)].filter(Boolean).join(" ");
    case "alike":
    case "negligible": return `No ${subject} that counts: ${stop(said)}`;
    case "inconclusive": {
      const [first, rest] = m.reason.split("; ");
      if (first !== "no effect shown") return `${found} It is no finding: ${stop(m.reason)}`;
      const least = m.minimum_detectable_effect;
      const single = m.detectable_single, of = single > least ? ["that all reviewers share ", ` and ${size(single)} of a single reviewer`] : ["", ""];
      const findable = least == null ? "" : `${size(least)} ${m.unit} ${of[0]}would have been found in four of five such windows${of[1]}.`;
      return `No ${subject} shown: ${stop(said)} ${rest?.startsWith("one of ") ? "" : `${capital(stop(rest ?? ""))} `}${findable}`;
    }
    case "insufficient": return `${found} It is no finding: ${stop(m.reason)}`;
    default: return found;
  }
}
