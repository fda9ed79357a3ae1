// All that a person can do, once: name, keys, and what it does. Buttons, keys and the list of keys are made from this table.

import { cancel, confirm, deny, isSeen, pick, say, sayFalse } from "./answering.js";
import { browseTo, isRead, nextQuestion, skipQuestion } from "./asking.js";
import { camera, panBy, showAll, zoomBy } from "./camera.js";
import { toggleExports } from "./exports.js";
import { toggleHelp } from "./help.js";
import { toggleLoop } from "./loop.js";
import { isMending, stepBack, toggleMending, use } from "./mending.js";
import { isLinking, toggleLink } from "./linking.js";
import { send } from "./outbox.js";
import { toggleOverview } from "./overview.js";
import { pairAt } from "./pairs.js";
import { candidates } from "./picking.js";
import { toggleSlice } from "./sections.js";
import { changed, state, tell } from "./state.js";
import { focusGoTo, judgeTrack, isFiltered, toggleSteering } from "./steering.js";
import { followed } from "./tree.js";
import { toggleTheme } from "./theme.js";

const asked = () => state.question !== null && isSeen() && isRead();
const open = () => asked() && !state.draft?.loose;
const turn = (frames) => () => browseTo(state.frame + frames, null);
const pan = (dx, dy) => () => panBy(dx * 60, dy * 60);

/** name → {text, keys: [as KeyboardEvent.key, with Ctrl+ or Shift+ before], run, can?, group, title?, anytime? (also without a movie)} */
export const ACTIONS = {
  "mask-merge": tool("merge", "Merge", "m", "Join two outlines of one cell"),
  "mask-cut": tool("cut", "Cut", "c", "Cut a cell in two by a stroke"),
  "mask-delete": tool("delete", "Delete", "d", "Remove an outline that is not a cell"),
  "mask-add": tool("add", "Add", "a", "Add a cell by a click or an outline"),
  mended: { group: "Edit masks", text: "Done", keys: ["Escape"], run: stepBack, can: isMending, title: "Back to browsing" },
  yes: { group: "Answer", text: "Yes", keys: ["Enter", "y"], run: confirm, can: () => asked() && (!state.question.pinned || Boolean(state.draft)) && (!state.draft || state.draft.loose), title: "Correct as drawn" },
  no: { group: "Answer", text: "No", keys: ["n"], run: deny, can: () => asked() && !state.draft, title: "It did not happen" },
  skip: { group: "Answer", text: "Skip", keys: [" "], run: skipQuestion, can: () => state.question !== null && state.mode === "questions", title: "Another question" },
  divide: { group: "Answer", text: "Divides", keys: ["v"], run: () => say("divide"), can: open, title: "A mother and two daughters: click both, or this and the missing one" },
  disappear: { group: "Answer", text: "Disappears", keys: ["d"], run: () => say("disappear"), can: open, title: "The cell is not in the next frame" },
  appear: { group: "Answer", text: "Appears", keys: ["a"], run: () => say("appear"), can: open, title: "The cell on the right is new" },
  split: { group: "Answer", text: "Splits", keys: ["s"], run: () => say("split"), can: open, title: "One outline becomes two without a division" },
  merge: { group: "Answer", text: "Merges", keys: ["m"], run: () => say("merge"), can: open, title: "Two outlines become one" },
  "not-a-cell": { group: "Answer", text: "Not a cell", keys: ["c"], run: () => sayFalse(cellInQuestion()), can: () => asked() && !state.draft && !isMending(), title: "The outline in question is no cell; if there are several, click it" },
  pick: { group: "Answer", text: "Choose a numbered cell", keys: ["1", "2", "3", "4", "5", "6"], run: pickNumber, can: asked },
  cancel: { group: "Answer", text: "Cancel", keys: ["Escape"], run: escape, title: "Discard an incomplete answer" },
  undo: { group: "Answer", text: "Undo", keys: ["Ctrl+z"], run: () => travel("undo"), can: () => state.canUndo },
  redo: { group: "Answer", text: "Redo", keys: ["Ctrl+Shift+z", "Ctrl+y"], run: () => travel("redo"), can: () => state.canRedo },
  questions: { group: "Look around", text: "Questions", keys: ["q"], run: nextQuestion, pressed: () => state.mode === "questions" },
  browse: { group: "Look around", text: "Browse", keys: ["b"], run: () => browseTo(state.frame, cellInQuestion(), "browse"), pressed: () => state.mode === "browse" },
  mend: { group: "Look around", text: "Masks", keys: ["x"], run: toggleMending, title: "Edit the outlines of cells", pressed: isMending },
  back: { group: "Look around", text: "‹", keys: ["ArrowLeft"], run: turn(-1), can: () => state.frame > 0, title: "One frame back" },
  forward: { group: "Look around", text: "›", keys: ["ArrowRight"], run: turn(1), can: () => state.frame < (state.movie?.n_frames ?? 0) - 2, title: "One frame on" },
  first: { group: "Look around", text: "First frame", keys: ["Home"], run: () => browseTo(0) },
  last: { group: "Look around", text: "Last frame", keys: ["End"], run: () => browseTo(state.movie.n_frames) },
  play: { group: "Look around", text: "▶", keys: ["p"], run: togglePlay, title: "Play", pressed: () => state.playing },
  "previous-cell": { group: "Look around", text: "Previous cell", keys: ["["], run: () => step(-1) },
  "next-cell": { group: "Look around", text: "Next cell", keys: ["]"], run: () => step(1) },
  "zoom-in": { group: "View", text: "+", keys: ["+", "="], run: () => zoomBy(1.25), title: "Zoom in" },
  "zoom-out": { group: "View", text: "−", keys: ["-"], run: () => zoomBy(0.8), title: "Zoom out" },
  fit: { group: "View", text: "⤢", keys: ["0"], run: fit, title: "Whole frame, or back to the cell" },
  slice: { group: "View", text: "Slice of the cell", keys: ["z"], run: toggleSlice, can: () => state.movie?.ndim === 3 },
  masks: { group: "View", text: "Hide and show the masks", keys: ["h"], run: toggleMasks },
  left: { group: "View", text: "Move the picture", keys: ["Shift+ArrowLeft"], run: pan(1, 0) },
  right: { group: "View", text: "Move the picture", keys: ["Shift+ArrowRight"], run: pan(-1, 0) },
  up: { group: "View", text: "Move the picture", keys: ["Shift+ArrowUp"], run: pan(0, 1) },
  down: { group: "View", text: "Move the picture", keys: ["Shift+ArrowDown"], run: pan(0, -1) },
  loop: { group: "Look around", text: "↻", keys: ["l"], run: toggleLoop, title: "Loop over the frames around the question", pressed: () => state.loop !== null },
  steer: { group: "Look around", text: "Filter", keys: ["f"], run: toggleSteering, title: "Which questions are asked", pressed: isFiltered },
  goto: { group: "Look around", text: "Go to a frame or cell", keys: ["g"], run: focusGoTo },
  track: { group: "Answer", text: "Track is right", keys: ["r"], run: () => judgeTrack(true), can: () => followed() !== null, title: "Confirm all events of this track" },
  "wrong-from": { group: "Answer", text: "Wrong from here", keys: ["w"], run: () => judgeTrack(false), can: goesOn, title: "Confirm the track up to this cell, and reject what follows" },
  link: { group: "Answer", text: "Re-link two tracks", keys: ["k"], run: toggleLink, can: () => (state.movie?.n_frames ?? 0) > 1, title: "Click a cell, then the cell that it becomes later", pressed: isLinking },
  overview: { group: "Page", text: "All movies", keys: ["o"], run: toggleOverview, can: () => state.movies.length > 1, title: "Estimated errors of each movie; apply the learned weights to others" },
  export: { group: "Page", text: "Export", keys: ["e"], run: toggleExports },
  theme: { group: "Page", text: "◐", keys: ["t"], run: toggleTheme, anytime: true, title: "Light or dark" },
  help: { group: "Page", text: "?", keys: ["?"], run: toggleHelp, anytime: true, title: "All keys" },
};

/** Whether the cell that the tree follows has a next frame, and nobody said yet what happens to it. */
function goesOn() {
  const cell = followed();
  return cell !== null && cell.frame < state.movie.n_frames - 1 && !(state.question?.pinned && cell.frame === state.frame);
}

/** A tool by which masks are mended. */
function tool(name, text, key, title) {
  return { group: "Edit masks", text, keys: [key], run: () => use(name), can: isMending, title, pressed: () => state.tool === name };
}

/** Undo or redo; the way back is open at once. */
function travel(kind) {
  send(kind);
  tell(""); // a notice about what is taken back must not stay
  state[kind === "undo" ? "canRedo" : "canUndo"] = true;
  changed();
}

function pickNumber(key) {
  const cell = candidates().find(({ number }) => number === Number(key));
  if (cell) pick(cell.side, cell.id);
}

function escape() {
  if (isLinking()) return toggleLink();
  if (state.draft || state.mode === "questions") return cancel();
  return browseTo(state.frame, null);
}

function togglePlay() {
  state.playing = !state.playing;
  if (state.playing && state.mode === "questions") browseTo(state.frame, null);
  changed();
}

const cellInQuestion = () => {
  const { sources, targets } = state.question ?? { sources: [], targets: [] };
  if (state.mode === "browse") return state.cell;
  return sources.length ? { side: "a", label: sources[0] } : targets.length ? { side: "b", label: targets[0] } : null;
};

/** Select the next cell of the left frame, in the order of reading. */
function step(by) {
  const pair = pairAt(state.frame);
  if (!pair?.a.length) return;
  const band = 40;
  const cells = [...pair.a].sort((p, q) => Math.floor(p.y / band) - Math.floor(q.y / band) || p.x - q.x);
  const now = cells.findIndex((cell) => cell.id === cellInQuestion()?.label);
  const next = cells[(now + by + cells.length) % cells.length];
  browseTo(state.frame, { side: "a", label: next.id });
  state.framed = false;
}

let wasWhole = false;

function fit() {
  const before = camera.scale;
  if (!wasWhole || !state.question) showAll();
  else state.framed = false;
  wasWhole = !wasWhole && before !== camera.scale;
  changed();
}

let masksBefore = 0.5;

function toggleMasks() {
  if (state.masks) masksBefore = state.masks;
  state.masks = state.masks ? 0 : masksBefore;
  changed();
}
