// Which cells can be named by a number key: those nearest to where the answer is open.

import { about, missing } from "./answering.js";
import { isIn, panes, toScreen } from "./camera.js";
import { pairAt } from "./pairs.js";
import { state } from "./state.js";

const MOST = 6;

/** Up to six cells {side, id, x, y, number} that can be seen, nearest first. One that belongs to the answer already has no
number; the others keep theirs, which may have been read before. */
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
  const seen = here.filter(({ x, y }) => isIn(pane, toScreen(pane, x, y)));
  const chosen = (side === "b" ? draft?.targets : draft?.sources) ?? [];
  const nearest = seen.sort((p, q) => away(p) - away(q)).slice(0, MOST);
  return nearest.map((cell, i) => ({ ...cell, side, number: i + 1 })).filter(({ id }) => !chosen.includes(id));
}

/** The frame in which the next cell is to be named. */
function openSide(draft) {
  if (draft && !draft.loose) return missing(draft)[0] > 0 ? "a" : "b";
  return about() === "a" ? "b" : "a";
}
