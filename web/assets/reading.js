// What a reader does with a session: be notified of its end, keep it. And what keeps the reader's place.

import { el, save } from "./dom.js";

// steady keeps the opened answer at its place on the screen when something above it grows. Not every browser does so by
// itself, and none does at the top of a page.
export function steady(section, signal) {
  let held = false, place = null;
  let at = 0; // where the place begins in the document, in pixels
  let owed = 0; // a part of a pixel: a browser scrolls by whole ones
  const top = () => place.getBoundingClientRect().top + scrollY + owed;
  const settle = () => {
    const grown = top() - at;
    at += grown;
    if (!held || grown === 0 || at - grown - scrollY > innerHeight) return;
    const before = scrollY;
    scrollBy({ top: owed + grown, behavior: "instant" });
    owed += grown - (scrollY - before);
    if (Math.abs(owed) > 1) owed = 0; // the page is too short to scroll so far
    place.style.top = `${-owed}px`;
  };
  const observer = new ResizeObserver(settle);
  const release = ({ target }) => {
    if (!place.closest("section").contains(target)) held = false;
    section.classList.toggle("held", held);
  };
  for (const event of ["pointerdown", "keydown"]) section.addEventListener(event, release, { signal });
  signal.addEventListener("abort", () => {
    observer.disconnect();
    section.classList.remove("held");
  });
  return {
    watch: (node) => {
      place = node;
      at = top();
      observer.observe(section.firstChild);
    },
    settle: () => { if (held) settle(); },
    hold: () => {
      held = true;
      section.classList.add("held");
      at = top();
    },
  };
}

// notifier returns a button that asks for the permission to notify the reader, and the function tell. That function
// notifies the reader that the answer is there, if the reader has allowed it and does not look at the page.
export function notifier(question, signal) {
  const able = "Notification" in globalThis && isSecureContext;
  const button = el("button", { type: "button", class: "quiet", onclick: async () => {
    const permission = await Notification.requestPermission();
    button.disabled = permission !== "default";
    button.textContent = { granted: "You will be notified", denied: "Notifications are blocked" }[permission] ?? "Notify me";
  } }, "Notify me");
  button.hidden = !able || Notification.permission !== "default";
  const tell = () => {
    if (signal.aborted || !able || Notification.permission !== "granted" || document.hasFocus()) return;
    try {
      const note = new Notification("The answer is there", { body: question().slice(0, 120), icon: "assets/icon.svg" });
      note.onclick = () => {
        focus();
        note.close();
      };
    } catch { /* a phone has notifications only for service workers */ }
  };
  return { button, tell };
}

// menu returns a button that shows others below it.
export function menu(label, buttons, signal) {
  const details = el("details", { class: "drop" }, el("summary", {}, label), el("div", {}, buttons));
  const close = (event) => { if (!details.contains(event.target)) details.open = false; };
  document.addEventListener("click", close, { signal });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    details.open = false;
    details.firstChild.focus();
  });
  for (const button of buttons) button.addEventListener("click", () => { details.open = false; });
  return details;
}

// download makes a button that saves a text as a file.
export function download(label, name, type, text) {
  return el("button", { type: "button", class: "plain", onclick: () => save(new Blob([text()], { type }), name) }, label);
}
