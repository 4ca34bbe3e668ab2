// The reader's opinion of a session that has ended: which of the answers that they opened they prefer, and how good the final
// answer is.

import { feedback } from "./api.js";
import { el, problem } from "./dom.js";

// preference returns a form for a session. The function seen returns the members whose answers the reader has opened. The
// form offers these answers as choices, and the final answer if a chairman has written it. Call draw when the reader has
// opened another answer.
export function preference(id, seen, written) {
  const choices = el("div", { class: "preferences" });
  const said = el("p", { role: "status", class: "hint" });
  const trouble = el("div", { role: "alert" });
  const rating = el("select", { id: "rating" }, el("option", { value: "" }, "not rated"),
    ["1, very poor", "2", "3", "4", "5, excellent"].map((words) => el("option", { value: words[0] }, words)));
  const synthesis = "synthesis";
  const over = () => [...(written ? [synthesis] : []), ...seen()];
  const radios = new Map(); // the radio buttons, by the value that is sent
  const radio = (word, words) => {
    if (!radios.has(word)) {
      radios.set(word, el("label", {}, el("input", { type: "radio", name: "preferred", value: word }), ` ${words}`));
    }
    return radios.get(word);
  };
  const draw = () => {
    const open = over();
    const shown = open.length < 2 ? [] : [
      ...open.map((word) => radio(word, word === synthesis ? "The final answer" : `The answer of ${word}`)), radio("tie", "They are equally good")];
    if (shown.length === choices.children.length && shown.every((label, i) => label === choices.children[i])) return;
    for (const [, label] of radios) if (!shown.includes(label)) label.firstChild.checked = false;
    const held = document.activeElement; // a moved element loses the focus
    choices.replaceChildren(...shown);
    if (choices.contains(held)) held.focus({ preventScroll: true });
    hint.hidden = shown.length > 0;
  };
  const hint = el("p", { class: "hint" }, written
    ? "Open the answers that you want to compare with the final answer, such as the answer that was ranked first."
    : "Open the answers that you want to compare.");
  const button = el("button", { class: "primary" }, "Send");
  const form = el("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      trouble.replaceChildren();
      const preferred = choices.querySelector("input:checked")?.value;
      if (!preferred && !rating.value) {
        said.textContent = "Choose an answer or a rating first.";
        return;
      }
      button.disabled = true;
      said.textContent = "";
      try {
        await feedback(id, {
          ...(preferred ? { preferred, over: over() } : {}), ...(rating.value ? { rating: Number(rating.value) } : {}),
        });
        said.textContent = "Saved. You can change your choice and send it again.";
      } catch (error) {
        trouble.replaceChildren(problem(error));
      } finally {
        button.disabled = false;
      }
    },
  }, el("fieldset", {}, el("legend", {}, "Which of the answers that you opened do you prefer?"), hint, choices),
  el("div", { class: "row" }, el("label", { for: "rating" }, "The final answer is "), rating, button), said, trouble);
  draw();
  return { form, draw };
}
