// The export menu. Answers that are still on their way are waited for, so that a file holds all of them.

import { getFile, saveFile } from "./api.js";
import { delivered } from "./outbox.js";
import { state, tell } from "./state.js";

const SLOW = 2000; // ms after which the page says that the file is being written

const KINDS = [
  ["Tracks", [["ctc", "Cell Tracking Challenge"], ["geff", "GEFF"], ["csv", "CSV tables"], ["napari", "napari"]]],
  ["Annotations", [["annotations.csv", "CSV"], ["annotations.geff", "GEFF"]]],
  ["Masks", [["masks", "TIFF, with your edits"]]],
  ["Learned weights", [["weights", "For clew track"]]],
];
const menu = document.getElementById("exports");
const button = document.querySelector("[data-action=export]");

export function makeExports() {
  const imports = menu.firstElementChild; // they come last
  for (const [title, kinds] of KINDS) {
    imports.before(Object.assign(document.createElement("h3"), { textContent: title }));
    for (const [kind, text] of kinds) {
      const item = Object.assign(document.createElement("button"), { type: "button", textContent: text });
      item.dataset.export = kind;
      item.addEventListener("click", () => download(kind));
      imports.before(item);
    }
  }
  document.addEventListener("pointerdown", (event) => menu.hidden || event.target.closest(".menu") || toggleExports());
  menu.addEventListener("keydown", move);
}

function move(event) {
  const items = [...menu.querySelectorAll("button")];
  const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (way) items[(items.indexOf(document.activeElement) + way + items.length) % items.length].focus();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

export function toggleExports() {
  menu.hidden = !menu.hidden;
  button.setAttribute("aria-expanded", String(!menu.hidden));
  if (menu.hidden) button.focus();
  else menu.querySelector("button").focus();
}

/** Fetch the file and keep it; as long as that takes, and if it fails, the page says so. */
async function download(kind) {
  const { id } = state.movie;
  const [, name] = KINDS.flatMap(([, kinds]) => kinds).find(([one]) => one === kind);
  toggleExports();
  tell(`Preparing “${name}” …`);
  const slow = setTimeout(() => tell(`Preparing “${name}”: writing the file …`), SLOW);
  try {
    await delivered();
    const file = await getFile(`/api/movies/${id}/export/${kind}`);
    saveFile(file);
    tell(file.isLearned ? "" : `“${name}” was saved before clew had learned from all answers. Export it again later to include them.`);
  } catch (error) {
    tell(`“${name}” could not be exported: ${error.message}.`);
  } finally {
    clearTimeout(slow);
  }
}
