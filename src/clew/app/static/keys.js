// Keys and buttons: both do what the table of actions says.

import { ACTIONS } from "./actions.js";
import { state } from "./state.js";

const NAMES = { " ": "Space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };

/** A key as people read it: "Ctrl+Shift+Z". */
export const keyName = (key) => key.split(/\+(?=.)/).map((part) => NAMES[part] ?? (part.length === 1 ? part.toUpperCase() : part)).join("+");

const byKey = new Map(); // a key may do one thing where questions are answered and another where masks are mended
for (const action of Object.values(ACTIONS)) for (const key of action.keys) byKey.set(key.toLowerCase(), [...(byKey.get(key.toLowerCase()) ?? []), action]);

function pressed(event) {
  const shift = event.shiftKey && (event.ctrlKey || event.metaKey || event.key.startsWith("Arrow")) ? "shift+" : "";
  return (event.ctrlKey || event.metaKey ? "ctrl+" : "") + shift + event.key.toLowerCase();
}

/** Whether an action would do anything now; most need a movie. */
const isPossible = (action) => (state.movie !== null || Boolean(action.anytime)) && (action.can?.() ?? true);

/** Whether the element with the focus has its own use for this key. */
function takes(element, event) {
  if (element.closest("dialog")) return true;
  if (element.matches("select, input:not([type=range], [type=checkbox])")) return true;
  if (element.matches("input[type=range]")) return event.key.startsWith("Arrow") || ["Home", "End"].includes(event.key);
  return element.matches("button, a") && ["Enter", " "].includes(event.key);
}

/** The menu that is open, or null. While one is, keys belong to it: none answers the question beneath. */
const openMenu = () => document.querySelector(".popup:not([hidden])");

function closeMenu(menu) {
  document.querySelector(`[aria-controls=${menu.id}]`).click();
}

export function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    const menu = openMenu();
    if (menu) {
      if (event.key === "Escape") closeMenu(menu);
      return;
    }
    const found = byKey.get(pressed(event));
    const action = found?.find(isPossible) ?? found?.[0];
    if (!action || event.altKey || takes(event.target, event)) return;
    event.preventDefault();
    if (event.repeat && action.group === "Answer") return; // a key held down answers one question, not all of them
    run(action, event.key);
  });
}

function run(action, key) {
  if (isPossible(action)) action.run(key);
}

export function makeButtons() {
  for (const button of document.querySelectorAll("[data-action]")) {
    const action = ACTIONS[button.dataset.action];
    const [key] = action.keys;
    button.type = "button";
    button.append(action.text);
    if (!("bare" in button.dataset) && action.text.length > 1) {
      const hint = document.createElement("kbd");
      hint.textContent = keyName(key);
      button.append(hint);
    }
    if (action.text.length === 1) button.setAttribute("aria-label", action.title);
    button.title = `${action.title ?? action.text} (${action.keys.map(keyName).join(" or ")})`;
    button.addEventListener("click", (event) => {
      run(action, key);
      if (event.detail && !openMenu()) document.getElementById("stage").focus({ preventScroll: true }); // the mouse did it: Enter is free again
    });
  }
}

/** Buttons that can do nothing now are grey. */
export function showButtons() {
  for (const button of document.querySelectorAll("[data-action]")) {
    const action = ACTIONS[button.dataset.action];
    button.disabled = !isPossible(action);
    if (action.pressed) button.setAttribute("aria-pressed", String(action.pressed()));
  }
}
