// What the reader does to a session or a conversation: rename, stop and delete it. Each asks first.

import { call, cancel, remove, session } from "./api.js";
import { el, usd } from "./dom.js";

// asked shows a dialog, and returns whether the reader pressed its second button.
async function asked(title, content, no, yes) {
  const dialog = el("dialog", { class: "sure", "aria-labelledby": "asked-title" },
    el("form", { method: "dialog" },
      el("h2", { id: "asked-title" }, title), content,
      el("div", { class: "row end" }, el("button", { type: "button", onclick: () => dialog.close("") }, no),
        el("button", { class: "primary", value: "yes" }, yes))));
  document.body.append(dialog);
  dialog.showModal();
  await new Promise((resolve) => { dialog.onclose = resolve; });
  dialog.remove();
  return dialog.returnValue === "yes";
}

// rename asks the reader for the title of a session, and stores it. It returns whether the title has changed.
export async function rename(id, old) {
  const field = el("input", { id: "asked-name", maxlength: 200, autocomplete: "off", value: old });
  const content = [el("label", { for: "asked-name" }, "Title"), field,
    el("p", { class: "hint" }, "Leave it empty to use the question as the title.")];
  const saving = asked("Rename", content, "Cancel", "Save");
  field.select();
  const title = await saving && field.value.trim();
  if (title === false || title === old) return false;
  await call(`v1/council/${encodeURIComponent(id)}`, {
    method: "PATCH", body: JSON.stringify({ title }), headers: { "Content-Type": "application/json" },
  });
  return true;
}

// sure asks the reader whether to stop a session that runs, and says what is spent. An unknown amount is null.
export const sure = (dollars) => asked("Stop now?",
  el("p", {}, `What is spent stays spent${dollars ? `: ${usd(dollars)}` : ""}.`), "Keep running", "Stop");

// stop asks the reader whether to stop a session that runs, and cancels it. It returns whether it did.
export async function stop(id) {
  const { stage1 = [], stage2 = [], stage3 } = await session(id);
  const costs = [...stage1, ...stage2, stage3].map((part) => part?.usage?.cost_usd).filter((cost) => cost != null);
  const stopping = await sure(costs.length > 0 ? costs.reduce((sum, cost) => sum + cost, 0) : null);
  if (stopping) await cancel(id);
  return stopping;
}

// discard asks the reader whether to delete a session, or all sessions of a conversation, and deletes them. It returns
// whether they are gone.
export async function discard(id, question) {
  const ids = [id].flat();
  const dialog = document.getElementById("delete");
  document.getElementById("delete-title").textContent = ids.length === 1
    ? "Delete this session?" : `Delete this conversation of ${ids.length} turns?`;
  document.getElementById("delete-question").textContent = question;
  dialog.returnValue = "";
  const sure = await new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "delete");
    dialog.showModal();
  });
  if (!sure) return false;
  for (const one of ids) {
    // A 404 says that the session is gone already.
    await remove(one).catch((error) => (error.status === 404 ? null : Promise.reject(error)));
    for (const kind of ["question", "follow-up"]) sessionStorage.removeItem(`${kind} ${one}`);
  }
  return true;
}
