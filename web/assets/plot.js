// Plots of estimates with their intervals.

import { el, number, svg } from "./dom.js";

const row = 30, gap = 16; // height of a row and space between columns, in pixels
const letter = 7.6; // width of a label's letter, in pixels
const least = 260; // width in pixels; in a narrower element, the plot is scaled down

// plot draws estimates with their intervals over one axis, as wide as the element around the plot. On a wide screen a
// label is on the row of its dot, and on a phone it is above the dot.
export function plot(title, rows, axis) {
  const drawn = rows.filter((r) => r.estimate != null);
  if (drawn.length === 0) return el("p", { class: "hint" }, "There is no figure to draw.");
  const place = el("div", { class: "chart-place" });
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.max(least, Math.floor(entry.contentRect.width));
    if (now === width) return;
    width = now;
    place.replaceChildren(draw(title, drawn, axis, width));
  }).observe(place);
  place.append(draw(title, drawn, axis, Math.max(least, document.getElementById("main").clientWidth - 40)));
  return place;
}

// draw returns the plot at a width in pixels.
function draw(title, rows, axis, width) {
  const narrow = width < 640;
  const left = narrow ? gap : Math.min(0.34 * width, 12 + letter * Math.max(...rows.map((r) => r.label.length)));
  const right = narrow || !rows.some((r) => r.note) ? gap : 128;
  // On a phone, notes move above the labels if one of them would overlap its label.
  const above = narrow && rows.some((r) => r.note && (r.label.length + r.note.length + 2) * letter > width - 2 * gap) ? 18 : 0;
  const high = narrow ? row + 20 + above : row;
  const across = width - left - right - 2 * gap;
  const x = (value) => left + gap + (Math.min(axis.high, Math.max(axis.low, value)) - axis.low) / (axis.high - axis.low) * across;
  const height = rows.length * high + 30;
  const parts = 4;
  const marks = Array.from({ length: parts + 1 }, (_, i) => axis.low + i * (axis.high - axis.low) / parts);
  const most = Math.floor((narrow ? width - 2 * gap : left) / letter);
  const short = (text) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
  return svg("svg", {
    class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${title}. The table below holds the figures.`,
  },
  marks.map((mark) => [
    svg("line", { class: mark === 0 ? "zero" : "grid", x1: x(mark), x2: x(mark), y1: 4, y2: height - 24 }),
    svg("text", { class: "mark", x: x(mark), y: height - 8, "text-anchor": "middle" }, number(mark, 2)),
  ]),
  rows.map((r, i) => {
    const top = i * high + above, middle = narrow ? top + 34 : top + row / 2;
    return [
      svg("text", {
        class: "label", x: narrow ? left : left - 4, y: narrow ? top + 18 : middle + 5, "text-anchor": narrow ? "start" : "end",
      }, short(r.label)),
      r.note ? svg("text", {
        class: "note", x: above ? left : width - gap, y: narrow ? top + 18 - above : middle + 5,
        "text-anchor": above ? "start" : "end",
      }, r.note) : null,
      r.lower == null || r.upper == null ? null
        : svg("line", { class: "interval", x1: x(r.lower), x2: x(r.upper), y1: middle, y2: middle }),
      svg("circle", { class: "estimate", cx: x(r.estimate), cy: middle, r: 5 }),
    ];
  }));
}
