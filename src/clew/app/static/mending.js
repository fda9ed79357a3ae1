// Editing masks by hand: merge two cells, cut one by a stroke, delete one, add one by a click or an outline.

import { browseTo } from "./asking.js";
import { frameAt } from "./frames.js";
import { isEditing, send } from "./outbox.js";
import { changed, state, tell } from "./state.js";

const tools = document.getElementById("tools");
const advice = document.getElementById("tool-hint");
const answers = document.getElementById("answers");

const HINTS = {
  merge: "Click two outlines of one frame that belong to one cell.",
  cut: "Draw a line across an outline that contains two cells.",
  delete: "Click an outline that is not a cell.",
  add: "Click a cell without an outline, or draw around it.",
};
const DRAWN = ["cut", "add"]; // tools that take a stroke

export const isMending = () => state.mode === "masks";

/** Show the tools instead of the answers, or go back. */
export function toggleMending() {
  if (isMending()) return leave();
  browseTo(state.frame, null, "masks");
  return use("cut");
}

export function use(tool) {
  Object.assign(state, { tool, chosen: null, stroke: null });
  changed();
}

/** Take back what is half done; then put the tool away. */
export function stepBack() {
  if (state.chosen || state.stroke) use(state.tool);
  else leave();
}

function leave() {
  Object.assign(state, { tool: null, chosen: null, stroke: null });
  browseTo(state.frame, null, "browse");
}

export function showTools() {
  tools.hidden = !isMending();
  answers.hidden = isMending() || Boolean(state.opening?.detection);
  if (advice.textContent !== hint()) advice.textContent = hint();
}

/** What the person is to do next, in words. */
function hint() {
  if (!isMending() || !state.tool) return "";
  if (state.stroke?.sent) return "Measuring and tracking the changed cells …";
  if (state.tool === "merge" && state.chosen) return `Click the other part of cell ${state.chosen.label} in frame ${frameOf(state.chosen.side)}.`;
  return HINTS[state.tool];
}

const frameOf = (side) => state.frame + (side === "b" ? 1 : 0);

/** Whether a pointer that goes down now draws, instead of moving the picture. */
export const draws = () => isMending() && DRAWN.includes(state.tool) && !state.stroke?.sent;

export function beginStroke(side, point) {
  state.stroke = { side, points: [point] };
}

/** The stroke goes on; it is drawn at once. */
export function goOn(point) {
  state.stroke?.points.push(point);
  changed();
}

export function dropStroke() {
  if (!state.stroke?.sent) state.stroke = null;
}

/** The pointer went up: a stroke that did not move is a click. */
export function endStroke(still) {
  const { stroke, tool } = state;
  if (!stroke || stroke.sent) return;
  if (still && tool === "cut") {
    state.stroke = null;
    return changed();
  }
  const points = (still ? stroke.points.slice(0, 1) : thinned(stroke.points)).map(([x, y]) => [round(x), round(y)]);
  return edit(tool, stroke.side, { points });
}

const round = (value) => Math.round(100 * value) / 100;

/** As many points as a line needs that is drawn by hand. */
function thinned(points) {
  const step = Math.ceil(points.length / 1000);
  return points.filter((_, i) => i % step === 0 || i === points.length - 1);
}

/** A click on a cell, or beside all. */
export function clickMask({ side, label }) {
  if (!label || state.stroke?.sent) return changed();
  if (state.tool === "delete") return edit("delete", side, { cells: [label] });
  if (state.tool !== "merge") return undefined;
  const { chosen } = state;
  if (!chosen || chosen.side !== side) state.chosen = { side, label };
  else if (chosen.label === label) state.chosen = null;
  else return edit("merge", side, { cells: [chosen.label, label] });
  return changed();
}

/** Send an edit; the frame as it was seen goes with it, so that nothing is done to masks that someone else changed. */
function edit(kind, side, what) {
  const frame = frameOf(side);
  if (isEditing(state.movie.id)) return tell("The last edit is still being saved.");
  state.stroke = { ...(state.stroke ?? { side, points: [] }), sent: true };
  state.chosen = null;
  send("edits", { frame, kind, z: state.slice, masks: frameAt(frame)?.version ?? 0, ...what });
  Object.assign(state, { canUndo: true, canRedo: false });
  return changed();
}

/** An edit was kept or refused: the stroke goes. */
export function settleEdit() {
  state.stroke = null;
}
