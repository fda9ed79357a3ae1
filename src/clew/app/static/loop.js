// A short loop of the frames around a question, in the left pane: how the cell came here, and how it goes on.

import { frameAt } from "./frames.js";
import { changed, state } from "./state.js";

const [BEFORE, AFTER] = [2, 3]; // frames before the question's first one, and after it
const BEAT = 260; // ms for a frame
let timer = 0;

/** The frames of the loop: t − 2 … t + 3, as far as the movie goes. */
function frames() {
  const from = Math.max(0, state.frame - BEFORE), to = Math.min(state.movie.n_frames - 1, state.frame + AFTER);
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

/** The frame that the left pane shows. */
export const shownFrame = () => state.loop ?? state.frame;

export function toggleLoop() {
  if (state.loop !== null) return stopLoop();
  for (const t of frames()) frameAt(t);
  state.loop = frames()[0];
  timer = setInterval(beat, BEAT);
  return changed();
}

export function stopLoop() {
  clearInterval(timer);
  if (state.loop === null) return;
  state.loop = null;
  changed();
}

/** The next frame whose picture is here. */
function beat() {
  const all = frames();
  if (!state.movie || !all.includes(state.loop)) return stopLoop(); // the person is elsewhere by now
  const next = all[(all.indexOf(state.loop) + 1) % all.length];
  if (frameAt(next)) state.loop = next;
  return changed();
}
