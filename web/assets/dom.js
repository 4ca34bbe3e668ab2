// Functions that build the document. All texts of models pass through here and become text nodes. None of them is
// parsed as markup.

// el makes an HTML element. It leaves out attributes that are false or null. An attribute named on* is a listener.
// Children are nodes or texts, and null is skipped.
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
  for (const child of children.flat(Infinity)) if (child != null) node.append(typeof child === "string" ? tame(child) : child);
  return node;
}

const mostMarks = 32; // marks on one letter; characters without a width count too

// tame cuts long runs of marks that combine with the letter before. A browser lays out such a run as one character,
// in time that grows with the square of its length.
export function tame(text) {
  return text.length > mostMarks ? text.replace(runs, "$1") : text;
}

const runs = new RegExp(`([\\p{M}\\p{Cf}]{${mostMarks}})[\\p{M}\\p{Cf}]+`, "gu");

// number writes a figure. An unknown one is a dash, never 0.
export function number(value, digits = 2) {
  if (value == null) return "–";
  const format = { minimumFractionDigits: digits, maximumFractionDigits: digits, signDisplay: "negative" };
  return value.toLocaleString("en", format).replace("-", "−");
}

// usd writes an amount of US dollars, rounded to cents. Below ten cents it has up to two significant digits. USD.Dollars
// of package spend follows the same rule.
export function usd(amount) {
  if (amount == null) return "unknown";
  const digits = amount > 0 && amount < 0.1 ? Math.min(12, 1 - Math.floor(Math.log10(amount))) : 2;
  return `$${amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits })}`;
}

// seconds writes milliseconds as seconds.
export function seconds(ms) {
  return ms == null ? "–" : `${number(ms / 1000, 1)} s`;
}

// lasting writes milliseconds as a duration, such as 41 s or 2 min 5 s.
export function lasting(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  return s < 60 ? `${s} s` : `${Math.floor(s / 60)} min${s % 60 ? ` ${s % 60} s` : ""}`;
}

// count writes a number with its noun: count(2, "ballot") is "2 ballots".
export function count(n, thing) {
  return `${n.toLocaleString("en")} ${thing}${n === 1 ? "" : "s"}`;
}

const small = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

// few writes a small number as a word. Few begins the word with a capital letter.
export const few = (n) => small[n] ?? n.toLocaleString("en");
export const Few = (n) => few(n).replace(/^./, (letter) => letter.toUpperCase());

const ordinal = new Intl.PluralRules("en", { type: "ordinal" });

// nth writes a rank, such as 2nd. The argument ranks has all ranks of the order. A rank that several share is =2nd.
export function nth(rank, ranks) {
  if (rank == null) return "not ranked";
  const ending = { one: "st", two: "nd", few: "rd", other: "th" }[ordinal.select(rank)];
  return `${ranks.filter((other) => other === rank).length > 1 ? "=" : ""}${rank}${ending}`;
}

// listed writes names, such as "a, b, and c".
export const listed = (names) => new Intl.ListFormat("en").format(names);

// moment writes a time in the reader's time zone.
export function moment(time) {
  return el("time", { datetime: time }, new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }));
}

// table makes a table that scrolls by itself on a narrow screen. A column is {title, cell, numeric}, where cell
// returns the content for a row. The cells of the first column are the headers of their rows.
export function table(caption, columns, rows) {
  const kind = (column) => (column.numeric ? "numeric" : null);
  return el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    el("table", {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, columns.map((c) => el("th", { scope: "col", class: kind(c) }, c.title)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, columns.map((c, i) =>
        el(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: kind(c) }, c.cell(row))))))));
}

// copyButton makes a button that copies a text to the clipboard, and says so. A page over plain HTTP from another
// machine has no clipboard. There the button selects the text and uses the old copy command.
export function copyButton(label, text, words = "Copy", told = "Copied") {
  const said = el("span", { class: "copied", role: "status" });
  const button = el("button", {
    type: "button", class: "copy", "aria-label": label, onclick: async () => {
      let done = true;
      try {
        await navigator.clipboard.writeText(text());
      } catch {
        const area = el("textarea", { class: "offscreen", "aria-hidden": "true" });
        area.value = text();
        document.body.append(area);
        area.select();
        done = document.execCommand("copy");
        area.remove();
        button.focus();
      }
      said.textContent = done ? told : "Could not copy. Select the text and copy it yourself.";
      clearTimeout(timer);
      timer = setTimeout(() => { said.textContent = ""; }, Math.max(3000, 60 * said.textContent.length));
    },
  }, words);
  let timer;
  return el("span", { class: "copying" }, said, button);
}

// save has the browser store a blob as a file.
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// touched says whether the reader uses a finger. Phones have no Shift+Enter, so Enter starts a new line there.
const touched = () => matchMedia("(pointer: coarse)").matches;

// keys says what Enter does in a field with sendOnEnter. It is "" on a phone, where nothing needs to be said.
export const keys = () => (touched() ? "" : "Enter to send, Shift+Enter for a new line.");

// sendOnEnter makes Enter in a field send its form, only once while the key is held. Shift+Enter starts a new line.
export function sendOnEnter(field, form) {
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || touched()) return;
    event.preventDefault();
    if (!event.repeat) form.requestSubmit();
  });
}

// problem shows what went wrong and how to correct it. The argument lost says what that means for the reader if the
// daemon does not answer.
export function problem(error, lost = "") {
  const body = error.body ?? {};
  if (error.unreachable) {
    return el("div", { class: "notice bad" }, el("p", {}, el("strong", {}, "The daemon does not answer."), lost && ` ${lost}`));
  }
  if (error.status === 401) { // its detail is for programs
    return el("div", { class: "notice bad" }, el("p", {}, el("strong", {}, "A valid token is needed."), " Reload this page to enter one. ", lost));
  }
  return el("div", { class: "notice bad" },
    el("p", {}, el("strong", {}, body.title ?? "Something went wrong"), ": ", body.detail ?? error.message),
    body.errors?.length ? el("ul", {}, body.errors.map((e) => el("li", {}, `${e.field}: ${e.message}${e.fix ? `; ${e.fix}` : ""}`))) : null,
    body.request_id ? el("p", { class: "hint" }, `Request ${body.request_id}`) : null);
}

// away is for a daemon that does not answer. It returns a function that says so in the element place, or says why the
// daemon cannot answer. The arguments of that function are the seconds until the next try, and the error. A screen
// reader does not read the seconds, because they change each second.
export function away(place) {
  const why = el("span"), left = el("span", { "aria-hidden": "true" });
  const notice = el("div", { class: "notice warn", role: "alert" }, el("p", {}, why, left));
  return (wait, { body }) => {
    if (!notice.isConnected) place.replaceChildren(notice);
    const reason = body?.detail ? `The daemon cannot answer now: ${body.detail}. ` : "The daemon does not answer. ";
    if (why.textContent !== reason) why.textContent = reason; // a screen reader would read the same text again
    left.textContent = `Trying again in ${wait} s.`;
  };
}

// icon sets the icon of the tab: icon, icon-busy while an answer is written, or icon-done.
export function icon(name) {
  const link = document.querySelector('link[rel="icon"]'), address = `assets/${name}.svg`;
  if (link.getAttribute("href") !== address) link.setAttribute("href", address);
}
