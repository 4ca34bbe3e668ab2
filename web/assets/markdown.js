// The part of Markdown that answers use, as nodes: headings, lists, quotes, code fences
// and paragraphs, with bold and code inside. There are no links and no images. All
// other text stays as it is.

import { el } from "./dom.js";

const longest = 200_000; // characters; a longer text is shown as it is

// markdown returns the nodes of a text.
export function markdown(text) {
  if (text.length > longest) return [el("p", {}, text)];
  const out = [];
  const lines = text.split("\n");
  for (let i = 0; i < lines.length;) {
    const take = (pattern) => {
      const found = [];
      for (let m; i < lines.length && (m = pattern.exec(lines[i])); i++) found.push(m);
      return found;
    };
    const fence = /^ {0,3}(```+|~~~+)/.exec(lines[i]);
    if (fence) {
      const code = [];
      for (i++; i < lines.length && !lines[i].trimStart().startsWith(fence[1]); i++) code.push(lines[i]);
      i++;
      out.push(el("pre", { tabindex: "0" }, el("code", {}, code.join("\n"))));
      continue;
    }
    let found;
    if (/^\s*$/.test(lines[i])) {
      i++;
    } else if ((found = take(/^#{1,6} +(.*)$/)).length) {
      // A model's headings are not part of the outline of the page.
      out.push(...found.map((m) => el("p", { class: "heading" }, inline(m[1]))));
    } else if ((found = take(/^\s*[-*+] +(.*)$/)).length) {
      out.push(el("ul", {}, found.map((m) => el("li", {}, inline(m[1])))));
    } else if ((found = take(/^\s*(\d{1,9})[.)] +(.*)$/)).length) {
      out.push(el("ol", { start: found[0][1] }, found.map((m) => el("li", {}, inline(m[2])))));
    } else if ((found = take(/^> ?(.*)$/)).length) {
      out.push(el("blockquote", {}, el("p", {}, inline(found.map((m) => m[1]).join("\n")))));
    } else {
      const first = lines[i++];
      found = take(/^(?!\s*$|#{1,6} |\s*[-*+] |\s*\d{1,9}[.)] |> | {0,3}```| {0,3}~~~)(.*)$/);
      out.push(el("p", {}, inline([first, ...found.map((m) => m[1])].join("\n"))));
    }
  }
  return out;
}

function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.length > 2 && part.startsWith("`") && part.endsWith("`")) return el("code", {}, part.slice(1, -1));
    if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) return el("strong", {}, part.slice(2, -2));
    return part;
  });
}
