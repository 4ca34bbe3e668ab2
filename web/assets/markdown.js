// Markdown as nodes. markdown-it parses a text into tokens, and this module builds an element from each token. It
// never parses a text as markup, so that nothing needs to be sanitised: only elements and attributes that this file
// names can come out of it. The libraries are loaded when the first text needs them.

import { copyButton, el } from "./dom.js";

const longest = 1_000_000; // characters; a longer text is shown unformatted
const slice = 10; // ms of building before the browser gets a turn

let parser = null, loading = null;

// ready loads the parser. Until then, texts are shown as plain paragraphs.
export function ready() {
  loading ??= import("./markdown-it.min.js").then(() => { parser = reader(globalThis.markdownit); }, () => { loading = null; });
  return loading;
}

// reader returns a parser with the limits and the math of this module. create makes a markdown-it parser.
function reader(create) {
  const md = create({ html: false, linkify: true, maxNesting: deepest + 6 });
  md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  md.validateLink = (url) => /^(https?:\/\/|mailto:)/i.test(url);
  md.inline.ruler.before("escape", "math", inlineMath);
  md.block.ruler.before("fence", "math", blockMath, { alt: ["paragraph", "blockquote", "list"] });
  md.block.ruler.before("table", "deep", tooDeep);
  // The time that markdown-it needs to pair marks grows with the square of their number.
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

const mostMarks = 3000; // marks of a paragraph; a paragraph with more is shown unformatted
const mostMisses = 100; // unclosed formulas of a paragraph; after so many, no further formula is read

const longestFormula = 1000; // characters; it also bounds the search for the end of a formula
const mostLines = 50; // lines of a formula

const deepest = 24; // how many blocks and list items may be around a block

// inlineMath reads $x$ and \(x\). As in Pandoc, a dollar sign opens a formula only before a character that is not
// blank. It closes a formula only after such a character and not before a digit. So "$5 and $10" is text.
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

// blockMath reads $$x$$ and \[x\] at the start of a line. As in LaTeX, a formula has no empty line.
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

// tooDeep shows the lines of a block that is inside too many other blocks as plain text. markdown-it would leave these
// lines out.
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

// growing is for a text that grows. It draws the text into an element. Blocks that cannot change any more are kept. The
// rest is parsed again, at most once a frame, and less often if parsing takes long. A long text is parsed and built in
// slices.
export function growing(element) {
  const unread = { at: 0, blocks: 0, level: outermost };
  let text = "", final = false, cost = 0, timer = null, turn = 0;
  // settled says where the kept blocks end: their number of characters, their number of the element's children, and the
  // level of the last heading.
  let settled = unread;
  const draw = async () => {
    timer = null;
    const mine = ++turn, begun = performance.now(), whole = text, env = {};
    if (!parser) await ready();
    if (mine !== turn) return;
    // A link can be defined after its use. Then the whole text is parsed again at the end.
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
      if (more && end.blocks === 0) { // the block is longer than this part
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
      element.dir = direction(whole);
      if (!whole.startsWith(text.slice(0, settled.at))) {
        settled = unread;
        turn++; // The drawing in progress is void.
      }
      text = whole;
      final = isFinal;
      if (timer !== null && !isFinal) return;
      clearTimeout(timer);
      timer = setTimeout(() => requestAnimationFrame(draw), isFinal ? 0 : Math.min(2000, 5 * cost));
    },
  };
}

const rightToLeft = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;

// direction returns the direction of a text: that of its first letter. The value auto for the attribute dir would pass
// over all blocks that have a direction of their own, and the indents of lists and quotes would stay on the left.
function direction(text) {
  const [first = ""] = /\p{L}/u.exec(text) ?? [];
  return rightToLeft.test(first) ? "rtl" : "ltr";
}

const piece = 16_000; // characters that are parsed at a time

// firstLines returns the complete lines within the first characters of a text, or the whole text.
function firstLines(text, size) {
  const end = text.length > size ? text.lastIndexOf("\n", size) + 1 : 0;
  return end > 0 ? text.slice(0, end) : text;
}

// certain is called for a text that grows. It returns how many blocks, and how many characters, of the text cannot
// change any more. These are all before the last block that follows an empty line and has a complete first line. Any
// other block can still join the block above: "***" can become bold text of a paragraph, and "2" an item of a list.
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

// show draws a complete text into an element, in slices.
export function show(element, text) {
  growing(element).set(text, true);
  return element;
}

const outermost = 2; // level of the headings above an answer

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

// builder returns a function that builds elements from tokens. The outline holds the level of the last heading, so
// that the headings of a text continue those of the page without a gap.
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

// picture shows an image as a link, because the page loads nothing from other hosts.
function picture(t) {
  const href = t.attrGet("src");
  return el("a", { href, rel: "noopener nofollow", target: "_blank" }, `Image: ${t.content || href}`);
}

// code shows a block of code with its language and a copy button.
function code(text, language) {
  const body = el("code", {}, text);
  if (language) paint(body, text, language.toLowerCase());
  return el("figure", { class: "code" },
    el("figcaption", {}, el("span", {}, language || "text"), copyButton("Copy the code", () => text)),
    el("pre", { tabindex: "0", dir: "ltr", role: "region", "aria-label": language ? `Code, ${language}` : "Code" }, body));
}

const longestCode = 50_000; // characters; longer code is not highlighted
let highlighter = null;

// paint colours code in a language that the highlighter knows.
async function paint(body, text, language) {
  if (text.length > longestCode) return;
  try {
    highlighter ??= import("./highlight.min.js");
    const { default: hljs } = await highlighter;
    if (!hljs.getLanguage(language)) return;
    // The tree of tokens is used, and not the markup that the highlighter makes from it.
    const tree = hljs.highlight(text, { language, ignoreIllegals: true })._emitter?.rootNode;
    const grow = (node) => (typeof node === "string" ? node
      : el("span", { class: node.scope && `code-${node.scope.split(/[.:]/)[0].replaceAll(/[^a-z_]/g, "")}` }, node.children.map(grow)));
    if (tree) body.replaceChildren(...tree.children.map(grow));
  } catch {
    highlighter = null; // The code stays without colours.
  }
}

let katex = null;

// formula shows math as MathML. Until KaTeX is loaded, and if it cannot parse the formula, the source is shown.
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

// mathML builds the nodes of KaTeX's tree. It leaves out the styles of KaTeX, which the page's policy refuses. Only
// the frame of \fcolorbox is kept, as a class.
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

// plain is the beginning of a text on one line, without its marks. The line has at most "most" characters.
export function plain(text, most) {
  const line = text.slice(0, 6 * most)
    .replaceAll(/^ {0,3}(```|~~~).*$/gm, "").replaceAll(/^[\s>]*(#{1,6}|[-*+]|\d{1,9}[.)]) +/gm, "").replaceAll(/^ {0,3}[-*_=|: ]{3,}$/gm, "")
    .replaceAll(/!?\[([^\][\n]{0,200})\]\([^()\s]{0,500}\)/g, "$1").replaceAll(/[*`]+|~~|\|/g, "").replaceAll(/\s+/g, " ").trim();
  if (line.length <= most && text.length <= 6 * most) return line;
  const cut = line.slice(0, most - 1);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), most / 2))}…`;
}

const longestBallot = 20_000; // characters

// withoutBallot splits a review into its prose and the critiques in its ballot, by label. A part that may not be the
// ballot stays in the prose.
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
    } catch { /* not JSON */ }
  }
  return { prose: text, critiques: new Map() };
}

// about is the part of a review's prose about the answer with a label, or "". It begins with the paragraph that starts
// with the label, and ends before a paragraph that starts with another label.
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
