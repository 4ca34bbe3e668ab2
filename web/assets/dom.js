// Building the document. What models wrote only ever goes through here, as text
// nodes: no string of theirs is parsed as markup.

// el makes an HTML element. An attribute that is false or null is left out; one
// named on* is a listener. Children are nodes or texts, null is none.
export function el(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

// svg makes an SVG element in the same way.
export function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (value !== false && value != null) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.flat(Infinity).filter((child) => child != null));
  return node;
}

// number writes a figure; one that is not known is a dash, never 0.
export function number(value, digits = 2) {
  if (value == null) return "–";
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits, signDisplay: "negative" }).replace("-", "−");
}

// seconds writes milliseconds as seconds.
export function seconds(ms) {
  return ms == null ? "–" : `${number(ms / 1000, 1)} s`;
}

// count writes a number of things: count(2, "ballot") is "2 ballots".
export function count(n, thing) {
  return `${n.toLocaleString("en")} ${thing}${n === 1 ? "" : "s"}`;
}

// moment writes a time as the reader's clock has it.
export function moment(time) {
  return el("time", { datetime: time }, new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }));
}

// table makes a table that scrolls by itself where the screen is narrow. A column
// is {title, cell, numeric}: cell gives the content of a row; the first column
// heads its row.
export function table(caption, columns, rows) {
  const kind = (column) => (column.numeric ? "numeric" : null);
  return el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    el("table", {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, columns.map((c) => el("th", { scope: "col", class: kind(c) }, c.title)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, columns.map((c, i) =>
        el(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: kind(c) }, c.cell(row))))))));
}

// problem shows what went wrong and how to mend it.
export function problem(error) {
  const body = error.body ?? {};
  return el("div", { class: "notice bad" },
    el("p", {}, el("strong", {}, body.title ?? "That did not work"), ": ", body.detail ?? error.message),
    body.errors?.length ? el("ul", {}, body.errors.map((e) => el("li", {}, `${e.field}: ${e.message}${e.fix ? `; ${e.fix}` : ""}`))) : null,
    body.request_id ? el("p", { class: "hint" }, `Request ${body.request_id}`) : null);
}
