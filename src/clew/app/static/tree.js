// The family of the selected cell: time from left to right, a line for each track, marked where it is not sure. A click goes
// to that frame; with the keyboard, Enter goes to the beginning of a track and the arrows to what is not sure of it.

import { getJson, Refused } from "./api.js";
import { browseTo } from "./asking.js";
import { surenessOf } from "./events.js";
import { shape } from "./svg.js";
import { state } from "./state.js";

const container = document.getElementById("tree");
const title = document.getElementById("lineage-of");
const [ROW, TOP, LEFT, RIGHT] = [18, 8, 8, 8];
const CLOSE = 5; // pixels from a step that is not sure within which a click goes to it
const PAUSE = 250; // ms that a cell is looked at before its family is asked for: a fast hand is on to the next one
let shown = ""; // whose family it is

/** The cell that the tree follows: that of the question, or the selected one. */
export function followed() {
  const { question, cell, frame } = state;
  if (question?.sources.length && cell?.side !== "b") return { frame, label: question.sources[0] };
  if (question?.targets.length) return { frame: frame + 1, label: state.mode === "browse" && cell ? cell.label : question.targets[0] };
  return null;
}

/** Draw the tree if it belongs to another cell, frame or state of the predictions than before. */
export async function showTree() {
  const cell = followed();
  // not for each frame pair that is predicted anew, but when all are; and when the movie is tracked for the first time
  const news = `${state.learning || state.version}/${state.tracked === state.pairs}`;
  const key = cell && `${state.movie.id}/${cell.frame}/${cell.label}/${news}/${container.clientWidth}`;
  if (key === shown) return;
  shown = key;
  title.textContent = cell ? `of cell ${cell.label}` : "";
  if (!cell) return empty("Select a cell to see its family.");
  await new Promise((resolve) => setTimeout(resolve, PAUSE));
  if (shown !== key) return;
  try {
    const tree = await getJson(`/api/movies/${state.movie.id}/tree?frame=${cell.frame}&label=${cell.label}`);
    if (shown !== key) return;
    if (tree.tracks.length) draw(tree, cell);
    else empty("Not tracked yet.");
    container.dataset.of = `${cell.frame}/${cell.label}`;
  } catch (error) {
    if (shown !== key) return;
    shown = ""; // asked for again with the next change
    empty(error instanceof Refused ? "Not tracked yet." : "Shown as soon as clew answers again.");
  }
}

function empty(words) {
  container.replaceChildren(Object.assign(document.createElement("p"), { textContent: words }));
}

/** The row of each track: leaves one below the other, a mother half way between her first and her last daughter. */
function rowsOf(tracks) {
  const daughters = new Map(tracks.map((track) => [track.id, []]));
  const roots = [];
  for (const track of tracks) (daughters.get(track.parent) ?? roots).push(track);
  const row = new Map();
  let leaves = 0;
  const place = (track) => {
    const below = daughters.get(track.id).map(place);
    row.set(track.id, below.length ? (below[0] + below.at(-1)) / 2 : leaves++);
    return row.get(track.id);
  };
  roots.forEach(place);
  return { row, leaves };
}

function draw({ tracks, selected }, cell) {
  const { row, leaves } = rowsOf(tracks);
  const begin = Math.min(...tracks.map((track) => track.begin));
  const end = Math.max(...tracks.map((track) => track.end), begin + 1);
  const width = container.clientWidth;
  const x = (t) => LEFT + ((width - LEFT - RIGHT) * (t - begin)) / (end - begin);
  const y = (id) => TOP + ROW * (row.get(id) + 0.5);
  const height = TOP + ROW * leaves + 18;
  const svg = shape("svg", { width, height, role: "group", "aria-label": "Family tree" });
  svg.append(shape("line", { x1: x(cell.frame), x2: x(cell.frame), y1: 0, y2: height - 16, class: "here" }));
  for (const track of tracks) {
    const mine = track.id === selected.track;
    const mother = tracks.find((other) => other.id === track.parent);
    if (mother) svg.append(shape("path", { d: `M${x(mother.end)},${y(mother.id)}H${(x(mother.end) + x(track.begin)) / 2}V${y(track.id)}H${x(track.begin)}`, class: "birth" }));
    svg.append(shape("line", { x1: x(track.begin), x2: Math.max(x(track.end), x(track.begin) + 1), y1: y(track.id), y2: y(track.id), class: mine ? "track mine" : "track" }));
    svg.append(...doubtsOf(track).map((cell) => doubt(track, cell, x, y)), hitArea(track, x, y));
  }
  svg.append(shape("circle", { cx: x(cell.frame), cy: y(selected.track), r: 4.5, class: "cell" }));
  svg.append(shape("text", { x: LEFT, y: height - 4 }, `frame ${begin}`));
  svg.append(shape("text", { x: width - RIGHT, y: height - 4, "text-anchor": "end" }, String(end)));
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.track : null;
  container.replaceChildren(svg);
  if (focused) svg.querySelector(`[data-track="${focused}"]`)?.focus(); // new predictions are not to take the focus away
  const middle = y(selected.track) - container.clientHeight / 2;
  container.scrollTop = Math.max(0, middle);
}

/** The cells of a track whose next step is not sure. */
const doubtsOf = (track) => track.cells.filter(([, , certainty]) => certainty !== null && surenessOf({ certainty }) !== "sure");

/** A step of a track that is not sure, in the style of its certainty; a click on the track there goes to it. */
function doubt(track, [t, , certainty], x, y) {
  const to = Math.max(Math.min(x(t + 1), x(track.end)), x(t) + 4);
  return shape("line", { x1: x(t), x2: to, y1: y(track.id), y2: y(track.id), class: `doubt ${surenessOf({ certainty })}` });
}

/** A wide invisible line over a track that takes clicks and keys: to the frame that was pointed at. */
function hitArea(track, x, y) {
  const doubts = doubtsOf(track).map(([t]) => t);
  const unsure = doubts.length ? `; not sure after frame${doubts.length > 1 ? "s" : ""} ${doubts.slice(0, 8).join(", ")}${doubts.length > 8 ? " …" : ""}` : "";
  const words = `Track ${track.id}, frames ${track.begin} to ${track.end}${unsure}`;
  const area = shape("line", { x1: x(track.begin) - 3, x2: x(track.end) + 3, y1: y(track.id), y2: y(track.id), class: "hit", tabindex: 0, role: "button", "aria-label": words, "data-track": track.id });
  area.append(shape("title", {}, words));
  const go = (t) => {
    const [frame, label] = track.cells.reduce((best, one) => (Math.abs(one[0] - t) < Math.abs(best[0] - t) ? one : best));
    const last = frame === state.movie.n_frames - 1;
    browseTo(last ? frame - 1 : frame, { side: last ? "b" : "a", label });
    state.framed = false;
  };
  area.addEventListener("click", (event) => {
    const at = event.clientX - area.ownerSVGElement.getBoundingClientRect().left;
    const t = track.begin + ((at - x(track.begin)) / Math.max(1, x(track.end) - x(track.begin))) * (track.end - track.begin);
    const near = doubts.filter((one) => Math.abs(x(one + 0.5) - at) < CLOSE); // what is not sure is easy to hit
    go(near.sort((p, q) => Math.abs(p - t) - Math.abs(q - t))[0] ?? t);
  });
  area.addEventListener("keydown", (event) => {
    const next = { ArrowRight: doubts.find((t) => t > state.frame), ArrowLeft: doubts.findLast((t) => t < state.frame) };
    const t = event.key in next ? next[event.key] : ["Enter", " "].includes(event.key) ? track.begin : undefined;
    if (t === undefined && !(event.key in next)) return;
    event.preventDefault();
    event.stopPropagation();
    if (t !== undefined) go(t);
  });
  return area;
}
