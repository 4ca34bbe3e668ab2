// Markdown as nodes. markdown-it reads a text into tokens, and the tokens are built into
// elements here, one by one. No text is ever parsed as markup, so that nothing needs to
// be sanitised afterwards: an element or an attribute that is not written in this file
// cannot come out of it. The libraries are loaded when the first text needs them.

import { copyButton, el } from "./dom.js";

const longest = 1_000_000; // characters; a longer text is shown as it is
const slice = 10; // ms of building before the browser gets a turn

let parser = null, loading = null;

// ready loads the parser. Without it, texts are shown as plain paragraphs.
export function ready() {
  loading ??= import("./markdown-it.min.js").then(() => { parser = reader(globalThis.markdownit); }, () => { loading = null; });
  return loading;
}

function reader(create) {
  const md = create({ html: false, linkify: true, maxNesting: deepest + 6 });
  md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  md.validateLink = (url) => /^(https?:\/\/|mailto:)/i.test(url);
  md.inline.ruler.before("escape", "math", inlineMath);
  md.block.ruler.before("fence", "math", blockMath, { alt: ["paragraph", "blockquote", "list"] });
  md.block.ruler.before("table", "deep", tooDeep);
  // Pairing thousands of marks takes time that grows with their square.
  const parse = md.inline.parse.bind(md.inline);
  md.inline.parse = (src, parser, env, out) => {
    if (src.length < mostMarks || (src.match(/[*_~$[\]`<\\]|:\/\//g)?.length ?? 0) < mostMarks) {
      parse(src, parser, env, out);
    } else {
      out.push({ type: "text", content: src, nesting: 0 });
    }
  };
  return md;
}

const mostMarks = 3000; // marks of a paragraph; one with more is shown as it is
const mostMisses = 100; // formulas of a paragraph without an end; behind them no more are looked for

const longestFormula = 1000; // characters; it also bounds the search for the end of one
const mostLines = 50; // of a formula

const deepest = 24; // blocks and items around a block

// inlineMath reads $x$ and \(x\). As in Pandoc, a dollar sign opens a formula only before
// a character that is no blank, and closes it only behind one and before no digit: "$5
// and $10" is text.
function inlineMath(state, silent) {
  const { src, pos } = state;
  const escaped = src.startsWith("\\(", pos);
  if (!escaped && (src[pos] !== "$" || /[\s$]/.test(src[pos + 1] ?? " "))) return false;
  if (state.misses > mostMisses) return false;
  const begin = pos + (escaped ? 2 : 1), last = Math.min(state.posMax, begin + longestFormula);
  let end = -1;
  for (let i = begin; i < last; i++) {
    if (escaped ? src.startsWith("\\)", i) : src[i] === "$" && !/[\s\\]/.test(src[i - 1]) && !/\d/.test(src[i + 1] ?? "")) {
      end = i;
      break;
    }
    if (src[i] === "\n" && src[i + 1] === "\n") break;
  }
  if (end <= begin) {
    state.misses = (state.misses ?? 0) + 1;
    return false;
  }
  if (!silent) state.push("math", "", 0).content = src.slice(begin, end);
  state.pos = end + (escaped ? 2 : 1);
  return true;
}

// blockMath reads $$x$$ and \[x\] that begin a line. As in LaTeX, there is no empty line in
// a formula.
function blockMath(state, start, end, silent) {
  const from = state.bMarks[start] + state.tShift[start];
  const opens = state.src.slice(from, from + 2), closes = { $$: "$$", "\\[": "\\]" }[opens];
  if (!closes) return false;
  const lines = [];
  for (let line = start; line < Math.min(end, start + mostLines) && !(line > start && state.isEmpty(line)); line++) {
    let text = state.src.slice(state.bMarks[line] + (line === start ? state.tShift[line] + 2 : 0), state.eMarks[line]);
    const closed = text.indexOf(closes);
    if (closed >= 0) {
      if (text.slice(closed + 2).trim() !== "") return false;
      text = text.slice(0, closed);
    }
    lines.push(text);
    if (closed < 0) continue;
    if (silent) return true;
    const token = state.push("math_block", "", 0);
    token.content = lines.join("\n");
    token.map = [start, line + 1];
    state.line = line + 1;
    return true;
  }
  return false;
}

// tooDeep shows the lines of a block inside many others as they are. Without it,
// markdown-it leaves them out.
function tooDeep(state, start, end, silent) {
  if (state.level < deepest) return false;
  if (silent) return true;
  state.push("deep", "", 0).content = state.getLines(start, end, state.blkIndent, false);
  state.line = end;
  return true;
}

// markdown returns the nodes of a text.
export function markdown(text) {
  if (!parser || text.length > longest) return plainly(text);
  return [...blocks(parser.parse(text, {}))];
}

function plainly(text) {
  return [text.length > longest ? el("p", { class: "hint" }, "This text is too long to be formatted.") : null, el("p", { dir: "auto" }, text)]
    .filter(Boolean);
}

// growing draws a text that grows into an element. Blocks that cannot change any more stay
// as they are; what is behind them is read again, at most once a frame, and less often the
// longer it takes. A long text is read and built in slices.
export function growing(element) {
  const unread = { at: 0, blocks: 0, level: outermost };
  let text = "", final = false, cost = 0, timer = null, turn = 0;
  // Where the blocks that stay end: characters, children of the element, and the level of the last heading.
  let settled = unread;
  const draw = async () => {
    timer = null;
    const mine = ++turn, begun = performance.now(), whole = text, env = {};
    if (!parser) await ready();
    if (mine !== turn) return;
    // A definition of a link may stand behind its use: then all is read again at the end.
    if (parser && final && whole.length <= longest && /^[ >]*\[[^\]\n]{1,200}\]:/m.test(whole)) {
      parser.block.parse(whole, parser, env, []);
      settled = unread;
    }
    while (element.childNodes.length > settled.blocks) element.lastChild.remove();
    if (!parser || whole.length > longest) {
      element.replaceChildren(...plainly(whole));
      return;
    }
    let resume = performance.now() + slice;
    for (let size = piece, more = true; more;) {
      const rest = whole.slice(settled.at), part = firstLines(rest, size);
      more = part.length < rest.length;
      const tokens = parser.parse(part, env), end = certain(part, tokens);
      if (more && end.blocks === 0) { // a block that is longer than this part
        size *= 2;
        continue;
      }
      size = piece;
      const outline = { level: settled.level };
      let built = 0, level = outline.level;
      for (const node of blocks(tokens, outline)) {
        if (more && built === end.blocks) break;
        element.append(node);
        if (++built === end.blocks) level = outline.level;
        if (performance.now() < resume) continue;
        await new Promise(requestAnimationFrame);
        if (mine !== turn) return;
        resume = performance.now() + slice;
      }
      settled = { at: settled.at + end.at, blocks: settled.blocks + end.blocks, level };
    }
    cost = performance.now() - begun;
  };
  return {
    set(given, isFinal) {
      const whole = given.replaceAll(/\r\n?/g, "\n");
      if (!whole.startsWith(text.slice(0, settled.at))) {
        settled = unread;
        turn++; // What is being drawn is void.
      }
      text = whole;
      final = isFinal;
      if (timer !== null && !isFinal) return;
      clearTimeout(timer);
      timer = setTimeout(() => requestAnimationFrame(draw), isFinal ? 0 : Math.min(2000, 5 * cost));
    },
  };
}

const piece = 16_000; // characters that are read at a time

// firstLines returns the lines that end in the first characters of a text, or all of it.
function firstLines(text, size) {
  const end = text.length > size ? text.lastIndexOf("\n", size) + 1 : 0;
  return end > 0 ? text.slice(0, end) : text;
}

// certain returns how many blocks of a text, and of its characters, no further text
// changes: those before the last block that begins behind an empty line and whose first
// line is complete. "***" may become bold text of the paragraph above it, and "2" an item
// of the list above it.
function certain(text, tokens) {
  const lines = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines.push(at + 1);
  const tops = tokens.filter((t) => t.level === 0 && t.map && t.nesting >= 0);
  for (let i = tops.length - 1; i > 0; i--) {
    const line = tops[i].map[0];
    if (line + 1 < lines.length && text.slice(lines[line - 1], lines[line]).trim() === "") return { at: lines[line], blocks: i };
  }
  return { at: 0, blocks: 0 };
}

// show draws a whole text into an element, in slices.
export function show(element, text) {
  growing(element).set(text, true);
  return element;
}

const outermost = 2; // the level of the headings above an answer

// blocks yields the top-level nodes of tokens.
function* blocks(tokens, outline = { level: outermost }) {
  const build = builder(outline);
  for (let i = 0; i < tokens.length;) {
    let depth = 0, end = i;
    do depth += tokens[end++].nesting; while (depth > 0 && end < tokens.length);
    yield* build(tokens.slice(i, end));
    i = end;
  }
}

const tags = {
  paragraph: "p", blockquote: "blockquote", bullet_list: "ul", ordered_list: "ol", list_item: "li",
  thead: "thead", tbody: "tbody", tr: "tr", th: "th", td: "td", strong: "strong", em: "em", s: "s",
};
const directed = new Set(["p", "li", "th", "td"]);

// builder returns a function that builds elements of tokens. The outline holds the level
// of the last heading: that of the page goes on from its own second level, without a gap.
function builder(outline) {
  const build = (tokens, nesting = 0) => {
    const root = [], stack = [{ children: root }];
    const top = () => stack.at(-1);
    const put = (node) => top().children.push(node);
    const close = () => {
      const { make, children } = stack.pop();
      put(make(children));
    };
    for (const [i, t] of tokens.entries()) {
      const name = t.type.replace(/_(open|close)$/, "");
      if (t.nesting < 0) {
        if (stack.length > 1 && !(name === "paragraph" && t.hidden)) close();
        continue;
      }
      if (t.nesting > 0) {
        if (name === "paragraph" && t.hidden) continue;
        stack.push({ children: [], make: maker(name, t, tokens, i) });
        continue;
      }
      put(leaf(t, nesting));
    }
    while (stack.length > 1) close();
    return root.flat().filter((node) => node !== null);
  };
  const maker = (name, t, tokens, i) => {
    if (name === "heading") {
      const wanted = 2 + Number(t.tag.slice(1));
      outline.level = Math.min(6, wanted, outline.level + 1);
      const tag = `h${outline.level}`;
      return (children) => el(tag, { dir: "auto" }, children);
    }
    if (name === "link") {
      return (children) => el("a", { href: t.attrGet("href"), rel: "noopener nofollow", target: "_blank" }, children);
    }
    if (name === "table") {
      return (children) => el("div", { class: "scroll", role: "region", "aria-label": "Table", tabindex: "0" }, el("table", {}, children));
    }
    const tag = tags[name];
    if (!tag) return (children) => children;
    const attributes = { dir: directed.has(tag) ? "auto" : null };
    if (tag === "ol") attributes.start = t.attrGet("start");
    if (tag === "th" || tag === "td") {
      attributes.class = { "text-align:right": "right", "text-align:center": "centre" }[t.attrGet("style")] ?? null;
      if (tag === "th") attributes.scope = "col";
    }
    if (tag === "li") {
      const first = tokens.slice(i + 1, i + 3).find((next) => next.type === "inline")?.children[0];
      const task = first?.type === "text" && /^\[([ xX])\] /.exec(first.content);
      if (task) {
        first.content = first.content.slice(4);
        const done = task[1] !== " ";
        const box = () => el("input", { type: "checkbox", disabled: true, checked: done, "aria-label": done ? "done" : "to do" });
        return (children) => el("li", { ...attributes, class: "task" }, box(), " ", children);
      }
    }
    return (children) => el(tag, attributes, children);
  };
  const leaf = (t, nesting) => {
    switch (t.type) {
      case "inline": return build(t.children, nesting + 1);
      case "text": case "text_special": case "html_inline": case "html_block": return t.content;
      case "softbreak": return "\n";
      case "hardbreak": return el("br");
      case "hr": return el("hr");
      case "code_inline": return el("code", {}, t.content);
      case "image": return picture(t);
      case "fence": return code(t.content, /^[\w+#.-]{1,30}/.exec(t.info.trim())?.[0] ?? "");
      case "code_block": return code(t.content, "");
      case "math": return formula(t.content, false);
      case "math_block": return formula(t.content, true);
      default: return t.content || null;
    }
  };
  return build;
}

// picture shows an image as a link: the page loads nothing from elsewhere.
function picture(t) {
  const href = t.attrGet("src");
  return el("a", { href, rel: "noopener nofollow", target: "_blank" }, `Image: ${t.content || href}`);
}

// code shows a block of code with its language and a button that copies it.
function code(text, language) {
  const body = el("code", {}, text);
  if (language) paint(body, text, language.toLowerCase());
  return el("figure", { class: "code" },
    el("figcaption", {}, el("span", {}, language || "text"), copyButton("Copy the code", () => text)),
    el("pre", { tabindex: "0", dir: "ltr", role: "region", "aria-label": language ? `Code, ${language}` : "Code" }, body));
}

const longestCode = 50_000; // characters of code that is highlighted
let highlighter = null;

// paint colours code of a language that the highlighter knows.
async function paint(body, text, language) {
  if (text.length > longestCode) return;
  try {
    highlighter ??= import("./highlight.min.js");
    const { default: hljs } = await highlighter;
    if (!hljs.getLanguage(language)) return;
    // The tree of tokens is taken in place of the markup that is made from it.
    const tree = hljs.highlight(text, { language, ignoreIllegals: true })._emitter?.rootNode;
    const grow = (node) => (typeof node === "string" ? node
      : el("span", { class: node.scope && `code-${node.scope.split(/[.:]/)[0].replaceAll(/[^a-z_]/g, "")}` }, node.children.map(grow)));
    if (tree) body.replaceChildren(...tree.children.map(grow));
  } catch {
    highlighter = null; // The code stands there without colours.
  }
}

let katex = null;

// formula shows math as MathML, and as it was written until that is loaded, and where it
// cannot be read.
function formula(text, display) {
  const place = el(display ? "div" : "span", { class: display ? "math scroll" : "math", tabindex: display ? "0" : null }, text);
  katex ??= import("./katex.min.js").then(() => globalThis.katex);
  katex.then((k) => {
    place.replaceChildren(...mathML(k.__renderToDomTree(text, {
      displayMode: display, output: "mathml", throwOnError: true, strict: "ignore", trust: false, maxExpand: 200, maxSize: 20,
    })));
  }).catch(() => { place.classList.add("unread"); });
  return place;
}

// mathML builds the nodes of KaTeX's tree. KaTeX would set styles, which the policy of the
// page refuses; of these the frame of \fcolorbox is kept, as a class.
function mathML(node) {
  if ("text" in node) return [node.text];
  if ("character" in node && node.character) return [node.character];
  const inside = (node.children ?? []).flatMap(mathML);
  if (!("type" in node) && !("character" in node)) return inside; // a span around the formula
  const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", node.type ?? "mspace");
  for (const [name, value] of Object.entries(node.attributes ?? { width: `${node.width}em` })) {
    if (!/^(style|class|id|href|src|on.*|data-.*)$/i.test(name)) made.setAttribute(name, value);
  }
  if (node.attributes?.style?.includes("border")) made.setAttribute("class", "boxed");
  made.append(...inside);
  return [made];
}

// plain returns the beginning of a text without its marks, on one line of at most so many
// characters.
export function plain(text, most) {
  const line = text.slice(0, 6 * most)
    .replaceAll(/^ {0,3}(```|~~~).*$/gm, "").replaceAll(/^[\s>]*(#{1,6}|[-*+]|\d{1,9}[.)]) +/gm, "").replaceAll(/^ {0,3}[-*_=|: ]{3,}$/gm, "")
    .replaceAll(/!?\[([^\][\n]{0,200})\]\([^()\s]{0,500}\)/g, "$1").replaceAll(/[*`]+|~~|\|/g, "").replaceAll(/\s+/g, " ").trim();
  if (line.length <= most && text.length <= 6 * most) return line;
  const cut = line.slice(0, most - 1);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), most / 2))}…`;
}

const longestBallot = 20_000; // characters

// withoutBallot takes a review apart: its prose, and the critiques that stand in its
// ballot, by label. What cannot be told for certain to be the ballot stays in the prose.
export function withoutBallot(text) {
  const fenced = /(?:^|\n) {0,3}```(?:json)?[ \t]*\n([^`]*?)\n? {0,3}```\s*$/i.exec(text.slice(-longestBallot));
  const candidates = fenced ? [[text.slice(-longestBallot).length - fenced.index, fenced[1]]] : [];
  const end = text.trimEnd();
  if (end.endsWith("}") && end.length < 4 * longestBallot && end.startsWith("{")) candidates.push([text.length, end]);
  if (end.endsWith("}")) {
    for (let at = end.lastIndexOf("\n{"), tries = 0; at >= 0 && tries < 5 && end.length - at < longestBallot; tries++) {
      candidates.push([text.length - at, end.slice(at)]);
      at = end.lastIndexOf("\n{", at - 1);
    }
  }
  for (const [length, json] of candidates) {
    try {
      const ballot = JSON.parse(json);
      if (typeof ballot !== "object" || !ballot || !("ranking" in ballot || "scores" in ballot || "abstain" in ballot)) continue;
      const critiques = new Map(Object.entries(ballot.critiques ?? {}).filter(([, words]) => typeof words === "string"));
      return { prose: text.slice(0, text.length - length).trim(), critiques };
    } catch { /* it is no JSON */ }
  }
  return { prose: text, critiques: new Map() };
}

// about returns what the prose of a review says of the answer with a label, "" where that
// cannot be told: the paragraphs from one that begins with the label up to one that begins
// with another.
export function about(prose, label) {
  const begins = /^[\s>#*_\d.)-]{0,12}(Response [A-Z]{1,2})\b/;
  let on = false;
  const own = [];
  for (const paragraph of prose.split(/\n\s*\n/)) {
    const named = begins.exec(paragraph)?.[1];
    if (named) on = named === label;
    if (on) own.push(paragraph);
  }
  return own.join("\n\n");
}
