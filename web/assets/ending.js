// What a session says of itself at its end: who wrote the answer, what is missing and why, and the whole as a document.

import { key } from "./answers.js";
import { spent } from "./audit.js";
import { count, el, few, Few, listed, nth } from "./dom.js";
import { decided, origin } from "./modes.js";

export const stages = { stage1: "Answers", stage2: "Reviews", stage3: "Final answer" };

const fallbacks = {
  second_chairman: (s) => `The chairman failed. ${s.model} wrote the answer instead.`,
  top_ranked: (s) => `No chairman could write a final answer. This is the answer that was ranked first, by ${s.model}, unchanged.`,
  first_answer: (s) => `No chairman could write a final answer, and there is no ranking. This is the first answer, by ${s.model}, unchanged.`,
};

// written says who wrote the final answer, and from which answers. After a task, it says the task's result.
export function written(s, judged) {
  if (s.task) return `${s.task.result.verdict}: ${s.task.result.reason}`;
  if (judged) {
    const first = s.metadata.aggregate_rankings.filter((row) => row.final_rank === 1).map((row) => row.model);
    return first.length === 0 ? "No answer was ranked." : `Ranked first: ${listed(first)}.`;
  }
  if (!s.stage3) return origin(s);
  if (["top_ranked", "first_answer"].includes(s.stage3.fallback)) return fallbacks[s.stage3.fallback](s.stage3);
  const from = s.stage1.filter((a) => a.status === "ok").map((a) => a.model);
  return `Written by ${s.stage3.model}${s.stage3.fallback ? "" : ", the chairman"}, from the answers of ${listed(from)} · ${spent(s.stage3)}`;
}

// found lists the findings that a review of a change shows.
export const found = ({ task }) => el("ul", {}, (task.result.findings ?? []).filter((f) => f.shown).map((f) => el("li", {},
  f.blocks ? el("strong", {}, "blocks ") : null, el("code", {}, `${f.file}:${f.start}`), ` ${f.wordings[0].what}`,
  el("p", { class: "hint" }, `Found by ${listed(f.found_by)}${f.confirmed_by.length ? `, confirmed by ${listed(f.confirmed_by)}` : ""}`
    + `${f.rejected_by.length ? `, rejected by ${listed(f.rejected_by)}` : ""}`))));

// missing says in one paragraph what a degraded session lacks, and what that means for its answer.
export function missing(s, voters, judged) {
  const failed = s.stage1.filter((a) => a.status !== "ok" && a.error).length, there = s.stage1.filter((a) => a.response).length;
  const asked = s.metadata.first && !s.metadata.first.convened ? s.metadata.first.asked.length : s.stage1.length;
  const votes = s.stage2.filter((r) => r.status === "ok").length, mute = s.stage2.length - votes;
  const unranked = !s.task && voters.length > 0 && s.metadata.aggregate_rankings.every((row) => row.final_rank == null);
  const parts = [
    failed > 0 ? `${few(failed)} of ${few(asked)} members failed` : null,
    mute > 0 ? `${few(mute)} of ${few(s.stage2.length)} ${judged ? "judges" : "reviewers"} ${s.task ? "failed" : "gave no ballot"}` : null,
  ].filter(Boolean);
  const lack = parts.length ? `${parts.join(", and ")}${unranked ? ", so nobody could rank" : ""}.` : "";
  const basis = s.task ? "" : judged ? (votes > 0 ? `The ranking is based on ${count(votes, "ballot")}.` : "")
    : s.stage3?.fallback ? fallbacks[s.stage3.fallback](s.stage3)
    : !s.stage3 && unranked ? "This is one member’s answer."
    : `The answer is based on ${count(there, "answer")}${voters.length > 0 && !unranked ? ` and ${count(votes, "ballot")}` : ""}.`;
  return el("p", {}, el("strong", {}, "Degraded. "), `${lack.replace(/^./, (letter) => letter.toUpperCase())} ${basis}`.trim());
}

// shared returns the errors of a failed session. Those that several members share become one.
export const shared = (errors) => [...Map.groupBy(errors, (e) => JSON.stringify([e.message, e.fix])).values()].map((group) =>
  ({ ...group[0], field: group.length > 1 ? `${Few(group.length)} members, ${listed(group.map((e) => e.field))}` : group[0].field }));

// reasons says why members failed. A reason that several share, or that holds in several stages, is said once.
export function reasons(degradation) {
  const grouped = (list, by) => [...Map.groupBy(list, (item) => JSON.stringify(by(item))).values()];
  const inStages = grouped(degradation, (d) => [d.stage, d.code, d.message])
    .map((group) => ({ ...group[0], names: group.map((d) => d.model) }));
  return el("details", { class: "fold" }, el("summary", {}, "Reasons"),
    el("ul", {}, grouped(inStages, (r) => [r.code, r.message, r.names]).map((group) => {
      const [{ code, message, names }] = group, who = names.length > 1 ? `${few(names.length)} members, ${listed(names)}` : names[0];
      return el("li", {}, `${listed(group.map((r) => stages[r.stage]))}: ${who}: ${message} (${code})`);
    })));
}

// paper is a session as a Markdown document. The argument charted has the parts with its map.
export function paper(s, what, charted) {
  const lines = [];
  for (const m of what?.messages ?? [{ role: "user", content: what?.query ?? s.query }]) {
    lines.push(`# ${{ user: "Question", assistant: "Earlier answer", system: "Instructions" }[m.role] ?? m.role}`, m.content);
  }
  const { first } = s.metadata;
  if (first) lines.push(decided(first));
  lines.push(...s.task ? ["# Result", written(s)] : ["# Final answer", s.answer]);
  if (!s.stage3 && !s.task) lines.push(origin(s));
  lines.push(...charted);
  const rows = s.metadata.aggregate_rankings, ranks = rows.map((r) => r.final_rank);
  const line = (r) => `- ${nth(r.final_rank, ranks)}: ${r.model}${r.final_rank == null ? "" : ` (${r.borda_normalized.toFixed(2)})`}`;
  const ranking = rows.map(line).join("\n");
  if (s.stage2.length > 0 && !s.task) lines.push("# Ranking", ranking || "None.");
  for (const a of s.stage1) lines.push(`# Answer of ${a.model}`, a.response ?? `Failed: ${a.error?.message}`);
  for (const r of s.stage2) {
    lines.push(`# Review by ${r.model}`);
    if (Object.keys(r.label_to_model).length > 0) lines.push(`Key: ${key(r)}.`);
    lines.push(r.ranking ?? `Failed: ${r.error?.message}`);
  }
  lines.push(`Session ${s.session_id}, ${s.created}, ${s.status}.`);
  return `${lines.join("\n\n")}\n`;
}
