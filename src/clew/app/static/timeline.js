// The time slider, and playing.

import { browseTo } from "./asking.js";
import { frameAt } from "./frames.js";
import { changed, state } from "./state.js";

const BEAT = 140; // ms for a frame
const slider = document.getElementById("time");
const place = document.getElementById("goto");
const when = document.getElementById("when");
const play = document.querySelector("[data-action=play]");
let timer = 0;

export function listenToTime() {
  slider.addEventListener("input", () => browseTo(slider.valueAsNumber, null));
}

export function showTime() {
  slider.disabled = place.disabled = !state.movie;
  if (!state.movie) return;
  slider.max = Math.max(0, state.movie.n_frames - 2);
  slider.valueAsNumber = state.frame;
  slider.setAttribute("aria-valuetext", `frames ${state.frame} and ${state.frame + 1}`);
  when.textContent = `${state.frame} → ${state.frame + 1} of ${state.movie.n_frames - 1}`;
  play.textContent = state.playing ? "❚❚" : "▶";
  if (state.playing && !timer) timer = setInterval(beat, BEAT);
  if (!state.playing) timer = void clearInterval(timer) ?? 0;
}

/** One frame on, as soon as its picture is here. */
function beat() {
  if (state.frame >= state.movie.n_frames - 2) {
    state.playing = false;
    changed();
  } else if (frameAt(state.frame + 2)) {
    browseTo(state.frame + 1, null);
    for (const ahead of [3, 4, 5]) frameAt(state.frame + ahead);
  }
}
