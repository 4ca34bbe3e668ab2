// The map of disagreement: where the answers agree and where they do not. Each quote stands word for word in the answer
// of its member. The reader opens that answer with a click on the quote, which is then marked in place.

import { count, el } from "./dom.js";
import { markdown } from "./markdown.js";

const title = "Map of disagreement";
const reading = "This is how the chairman reads the answers. councild has checked that each quote is in its answer, but not that the quotes contradict each other.";
const entries = 3; // of a list; the others are folded
const openQuotes = 6; // quotes of the first dispute that are shown unfolded

// noMap says why there is no map. The argument synthesis is the final answer, or null if that is not known.
function noMap({ reason }, synthesis) {
  const unwritten = ["top_ranked", "first_answer"].includes(synthesis?.fallback);
  const why = {
    no_map: unwritten ? "no chairman could write the final answer" : "the chairman wrote none",
    not_json: "the chairman wrote something else instead",
    schema: "the chairman’s map does not have the required form",
    cut_off: "the chairman’s reply was cut off",
    quotes_invented: "more than half of the chairman’s quotes are not in any answer",
  }[reason] ?? reason;
  return `No map of disagreement: ${why}.`;
}

const members = ({ quotes }) => [...new Set(quotes.map((q) => q.model))].join(", ");

const leftOut = (n) => `${count(n, "quote")} left out, because ${n === 1 ? "it is not in an answer or does" : "they are not in an answer or do"} not support the entry.`;

// strip returns the nodes that show a map. point is called with a quote that the reader selects.
export function strip(map, synthesis, point) {
  if (map.reason != null) return [el("p", { class: "hint" }, noMap(map, synthesis))];
  const { disputed, agreed, only_one_said: lone, open, dropped } = map;
  const claim = (c, names, unfolded = false) => el("details", { open: unfolded },
    el("summary", {}, el("span", {}, el("span", { dir: "auto" }, c.claim), names && [" ", el("bdi", { class: "hint" }, members(c))])),
    el("ul", {}, c.quotes.map((q) => el("li", {}, el("button", { type: "button", onclick: () => point(q) },
      el("bdi", {}, q.model), " ", el("q", { dir: "auto" }, q.quote))))));
  const dispute = ({ about, sides }, i) => {
    const unfolded = i === 0 && sides.flatMap((side) => side.quotes).length <= openQuotes;
    return [el("p", { class: "about", dir: "auto" }, about), sides.map((side) => claim(side, true, unfolded))];
  };
  const rows = [
    row("Disputed", disputed.map(dispute)),
    row("Agreed", agreed.map((c) => claim(c, true))),
    ...[...Map.groupBy(lone, members)].map(([model, claims]) => row(["Only ", el("bdi", {}, model)], claims.map((c) => claim(c)))),
    row("Open (not checked)", open.map((question) => el("p", { dir: "auto" }, question))),
  ].filter(Boolean);
  const some = rows.length > 0;
  return [
    el("h3", {}, title),
    el("p", { class: "hint" }, some ? `${reading} Select a quote to see it in its answer.` : "The chairman’s map has no entries."),
    some ? el("dl", {}, rows) : "",
    dropped > 0 ? el("p", { class: "hint" }, leftOut(dropped)) : "",
  ];
}

// row shows a list of the map. Each item is a node or nodes.
function row(term, items) {
  if (items.length === 0) return null;
  const rest = items.slice(entries);
  return el("div", {}, el("dt", {}, term), items.slice(0, entries).map((item) => el("dd", {}, item)),
    rest.length === 0 ? null
      : el("dd", {}, el("details", {}, el("summary", {}, `${rest.length} more`), rest.map((item) => el("div", {}, item)))));
}

// chart returns the parts of a Markdown document that have a map.
export function chart(map, synthesis) {
  if (map.reason != null) return [noMap(map, synthesis)];
  const line = (text) => text.replaceAll(/\s+/g, " ").trim();
  const claims = (list) => list.map((c) =>
    [`- ${line(c.claim)}`, ...c.quotes.map((q) => `  - ${q.model}: “${line(q.quote)}”`)].join("\n")).join("\n");
  const parts = map.disputed.flatMap(({ about, sides }) => [`## Disputed: ${line(about)}`, claims(sides)]);
  if (map.agreed.length) parts.push("## Agreed", claims(map.agreed));
  for (const [model, list] of Map.groupBy(map.only_one_said, members)) parts.push(`## Only ${model}`, claims(list));
  if (map.open.length) parts.push("## Open, not checked", map.open.map((question) => `- ${line(question)}`).join("\n"));
  if (map.dropped > 0) parts.push(leftOut(map.dropped));
  return parts.length ? [`# ${title}`, reading, ...parts] : [];
}

let marks = []; // the marks of the last quote
let selected = 0; // counts the selected quotes

// pointOut marks a quote in an answer whose tab is open, if it finds the quote.
export async function pointOut({ tab, prose }, quote) {
  const mine = ++selected;
  for (const mark of marks) {
    const { parentNode: parent } = mark;
    mark.replaceWith(...mark.childNodes);
    parent?.normalize();
  }
  marks = [];
  tab.focus({ preventScroll: true });
  tab.scrollIntoView({ block: "nearest" });
  // The answer is drawn in slices, and the quote may stand in one that is still missing.
  for (let frame = 0; frame < 30 && mine === selected; frame++) {
    marks = find(prose, quote).map(({ node, from, to }) => {
      const range = document.createRange(), mark = el("mark");
      range.setStart(node, from);
      range.setEnd(node, to);
      range.surroundContents(mark);
      return mark;
    });
    if (marks.length > 0) {
      marks[0].scrollIntoView({ block: "center" });
      return;
    }
    await new Promise(requestAnimationFrame);
  }
}

// texts returns the text nodes of an element, without those of formulas and of the titles of code.
function texts(element) {
  const nodes = [], walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (!walker.currentNode.parentElement.closest("figcaption, .math")) nodes.push(walker.currentNode);
  return nodes;
}

// find returns the parts of text nodes in which a quote stands, or []. It compares without blanks. The quote is
// Markdown, and the nodes show what it means. So find looks for the quote as it is, then for the text that its Markdown
// shows, and at last only for the letters and digits of that text. These may confuse "< 5" with "> 5", and count only if
// they fit one place.
function find(prose, quote) {
  const nodes = texts(prose), letters = /[\p{L}\p{M}\p{N}]+/gu;
  const shown = texts(el("div", {}, markdown(quote))).map((node) => node.data).join("");
  for (const [text, kept] of [[quote, /\S+/gu], [shown, /\S+/gu], [shown, letters]]) {
    const runs = nodes.flatMap((node) => [...node.data.matchAll(kept)].map((m) => ({ node, from: m.index, text: m[0] })));
    const sought = text.match(kept)?.join("") ?? "", whole = runs.map((run) => run.text).join("");
    const begin = whole.indexOf(sought), end = begin + sought.length;
    if (sought === "" || begin < 0 || (kept === letters && whole.includes(sought, begin + 1))) continue;
    let at = 0, first = null, last = null; // at is where a run begins in whole
    for (const { node, from, text: { length } } of runs) {
      if (at <= begin && begin < at + length) first = { node, from: from + begin - at };
      if (at < end && end <= at + length) last = { node, to: from + end - at };
      at += length;
    }
    return nodes.slice(nodes.indexOf(first.node), nodes.indexOf(last.node) + 1)
      .map((node) => ({ node, from: node === first.node ? first.from : 0, to: node === last.node ? last.to : node.length }));
  }
  return [];
}
