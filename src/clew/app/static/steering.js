// Steering: which questions are asked, where to look, who answers, and files from elsewhere.

import { author, getJson, postFile, postJson } from "./api.js";
import { browseTo, fetchQuestions, resetQueue } from "./asking.js";
import { visibleBox } from "./camera.js";
import { delivered, newKey } from "./outbox.js";
import { followed } from "./tree.js";
import { changed, state, tell } from "./state.js";

const find = (id) => document.getElementById(id);

/** The filter as the server reads it; empty when anything may be asked. */
export function filterQuery() {
  const { event, first, last, box, track } = state.filter;
  const parts = { event, from: first, to: last, box: box?.map((side) => side.toFixed(1)).join(","), ...track };
  return Object.entries(parts).filter(([, value]) => value !== "" && value !== undefined).map(([name, value]) => `&${name}=${encodeURIComponent(value)}`).join("");
}

export function makeSteering() {
  const popup = find("steering");
  for (const name of ["event", "first", "last"]) find(`only-${name}`).addEventListener("change", refilter);
  for (const name of ["box", "track"]) find(`only-${name}`).addEventListener("change", refilter);
  for (const box of document.querySelectorAll("[data-event]")) box.addEventListener("change", switchEvents);
  find("only-none").addEventListener("click", () => {
    for (const name of ["event", "first", "last"]) find(`only-${name}`).value = "";
    for (const name of ["box", "track"]) find(`only-${name}`).checked = false;
    refilter();
  });
  document.addEventListener("pointerdown", (event) => popup.hidden || event.target.closest(".menu") || toggleSteering());
  find("name").value = localStorage.getItem("clew-name") ?? "";
  find("name").addEventListener("change", ({ target }) => localStorage.setItem("clew-name", target.value.trim().slice(0, 80)));
  find("goto").addEventListener("change", ({ target }) => goTo(target));
  find("import").addEventListener("change", ({ target }) => importFile(target));
  find("doubts").addEventListener("click", (event) => {
    const { left, width } = event.target.getBoundingClientRect();
    browseTo(Math.floor(((event.clientX - left) / width) * (state.movie.n_frames - 1)), null);
  });
}

/** Which track is or can be asked about, and which kinds of events can happen: perfect masks have no splits and merges. */
export function showSteering() {
  const cell = state.filter.track ?? followed();
  find("only-track").disabled = !cell;
  find("only-track-name").textContent = cell ? `of the track of cell ${cell.label} in frame ${cell.frame}` : "of the track of a cell";
  for (const box of document.querySelectorAll("[data-event]")) box.checked = state.events.includes(box.dataset.event);
}

let switches = 0;
let told = Promise.resolve(); // one request after the other

/** Boxes stay as they were clicked while the server is told; its answer to the last click settles it. */
async function switchEvents() {
  const mine = ++switches;
  const before = state.events;
  const chosen = [...document.querySelectorAll("[data-event]:checked")].map((box) => box.dataset.event);
  state.events = chosen;
  state.switching += 1;
  try {
    told = told.catch(() => {}).then(() => postJson(`/api/movies/${state.movie.id}/events`, { events: chosen }));
    const { events } = await told;
    if (mine === switches) state.events = events;
  } catch (error) {
    if (mine === switches) state.events = before;
    tell(`The kinds of events were not changed: ${error.message}.`);
  } finally {
    state.switching -= 1;
  }
  changed();
}

function refilter() {
  const event = find("only-event").value;
  const box = find("only-box").checked ? visibleBox() : undefined;
  const track = find("only-track").checked ? (state.filter.track ?? followed() ?? undefined) : undefined;
  state.filter = { event, first: find("only-first").value, last: find("only-last").value, box, track };
  resetQueue();
  state.question = null;
  state.mode = "questions";
  changed();
  fetchQuestions();
}

export const isFiltered = () => filterQuery() !== "";

export function toggleSteering() {
  const popup = find("steering");
  popup.hidden = !popup.hidden;
  document.querySelector("[data-action=steer]").setAttribute("aria-expanded", String(!popup.hidden));
  (popup.hidden ? find("stage") : find("only-event")).focus();
}

/** "12" is a frame, "12/5" cell 5 of it, "/5" cell 5 of the frame that is shown. */
function goTo(input) {
  const [, frame, label] = input.value.trim().match(/^(\d*)(?:\s*\/\s*(\d+))?$/) ?? [];
  input.value = "";
  find("stage").focus();
  if (frame === undefined || (!frame && !label)) return tell("Go to: a frame as in 12, or a cell of it as in 12/5.");
  const t = frame ? Number(frame) : state.frame;
  if (t >= state.movie.n_frames) return tell(`There is no frame ${t}; the last one is ${state.movie.n_frames - 1}.`);
  if (!label) return browseTo(t, null);
  return goToCell(t, Number(label));
}

async function goToCell(t, label) {
  const cells = await getJson(`/api/movies/${state.movie.id}/frames/${t}/cells`);
  if (!cells.some(({ id }) => id === label)) return tell(`There is no cell ${label} in frame ${t}.`);
  const last = t === state.movie.n_frames - 1;
  browseTo(last ? t - 1 : t, { side: last ? "b" : "a", label });
  state.framed = false;
  return changed();
}

export function focusGoTo() {
  find("goto").focus();
}

/** The track that the lineage panel shows is all right, or wrong from the cell on that is looked at; then its new fate is shown. */
export async function judgeTrack(right) {
  const cell = followed();
  if (!cell) return;
  await delivered();
  await keep("The track was not kept", () => postJson(`/api/movies/${state.movie.id}/track`, { key: newKey(), right, ...author(), ...cell }));
  if (!right) browseTo(cell.frame, { side: "a", label: cell.label }, "browse");
}

async function importFile(input) {
  const [file] = input.files;
  if (!file) return;
  const said = new URLSearchParams({ key: newKey(), file: file.name, ...author() });
  tell(`Reading ${file.name} …`);
  await delivered();
  await keep(`${file.name} was not imported`, () => postFile(`/api/movies/${state.movie.id}/import?${said}`, file));
  input.value = "";
}

/** Send several answers at once, and say how many of them were new. */
async function keep(problem, request) {
  try {
    const { given, new: kept, weights } = await request();
    if (weights) return tell(`The movie now begins with ${weights}; your answers are learned anew from there.`);
    tell(`${kept} new answers were kept${given > kept ? `; ${given - kept} held already, or contradict your answers` : ""}.`);
  } catch (error) {
    tell(`${problem}: ${error.message}.`);
  }
  return undefined;
}

let known = ""; // the state that the strip was drawn of

/** Where the movie is in doubt, as a strip above the time slider. */
export async function showDoubts() {
  const key = `${state.movie?.id}/${state.version}/${state.learning}/${state.annotated}`;
  if (!state.movie || key === known) return;
  known = key;
  const found = await getJson(`/api/movies/${state.movie.id}/doubts`).catch(() => null);
  if (!found) return void (known = ""); // what is shown stays, and is asked for again with the next change
  const { doubtful } = found;
  const canvas = find("doubts");
  canvas.width = Math.max(doubtful.length, 1);
  canvas.height = 8;
  const context = canvas.getContext("2d");
  const most = Math.max(1, ...doubtful.map((n) => n ?? 0));
  doubtful.forEach((n, t) => {
    context.fillStyle = n === null ? "rgb(128 128 128 / 25%)" : `rgb(224 130 20 / ${n ? 25 + (75 * n) / most : 6}%)`;
    context.fillRect(t, 0, 1, 8);
  });
  canvas.title = `Events in doubt along the movie: ${doubtful.reduce((sum, n) => sum + (n ?? 0), 0)}. Click to go there.`;
}
