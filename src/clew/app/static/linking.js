// Two tracks re-linked by two clicks: a cell, and the one that it goes on as, in the next frame or in the one after that.

import { answer } from "./answering.js";
import { browseTo } from "./asking.js";
import { changed, state, tell } from "./state.js";

const SPANS = { 1: "move", 2: "gap" }; // frames from one to the other → what is said then

export const isLinking = () => state.link !== null;

/** Begin, or leave it. Questions wait meanwhile, and the person may go to other frames between the clicks. */
export function toggleLink() {
  state.link = isLinking() ? null : { first: null };
  if (isLinking()) browseTo(state.frame, null, "browse");
  changed();
}

export function linkHint() {
  if (!isLinking()) return "";
  const { first } = state.link;
  return first ? `Cell ${first.label} of frame ${first.frame} goes on as … click it, in frame ${first.frame + 1} or ${first.frame + 2}.` : "Re-link: click a cell, and then the one that it goes on as.";
}

/** A click on a cell. The earlier one of two goes on as the later, whichever was clicked first. */
export function linkCell({ side, label }) {
  const cell = { frame: state.frame + (side === "b" ? 1 : 0), label };
  const { first } = state.link;
  if (!first || first.frame === cell.frame) {
    state.link = { first: cell };
    return changed();
  }
  const [from, to] = first.frame < cell.frame ? [first, cell] : [cell, first];
  const event = SPANS[to.frame - from.frame];
  if (!event) return tell(`Cell ${from.label} of frame ${from.frame} and cell ${to.label} of frame ${to.frame} are ${to.frame - from.frame} frames apart; expected 1 or 2.`);
  state.link = null;
  browseTo(from.frame, { side: "a", label: from.label });
  return answer({ event, sources: [from.label], targets: [to.label] }, true, from.frame);
}
