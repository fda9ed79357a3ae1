// Which cells can be named by a number key: those nearest to where the answer is open.

import { about, missing } from "./answering.js";
import { panes } from "./camera.js";
import { pairAt } from "./pairs.js";
import { state } from "./state.js";

const MOST = 6;

/** Up to six cells {side, id, x, y, pane}, nearest first. */
export function candidates() {
  const { question, draft } = state;
  const pair = question && pairAt(state.frame);
  if (!pair) return [];
  const side = openSide(draft);
  const [here, there] = side === "b" ? [pair.b, pair.a] : [pair.a, pair.b];
  const given = side === "b" ? question.sources : question.targets;
  const ownSide = side === "b" ? question.targets : question.sources;
  const from = there.find((cell) => given.includes(cell.id)) ?? here.find((cell) => ownSide.includes(cell.id));
  if (!from) return [];
  const away = (cell) => (cell.x - from.x) ** 2 + (cell.y - from.y) ** 2;
  const pane = panes[side === "a" ? 0 : 1];
  return [...here].sort((p, q) => away(p) - away(q)).slice(0, MOST).map((cell) => ({ ...cell, side, pane }));
}

/** The frame in which the next cell is to be named. */
function openSide(draft) {
  if (draft && !draft.loose) return missing(draft)[0] > 0 ? "a" : "b";
  return about() === "a" ? "b" : "a";
}
