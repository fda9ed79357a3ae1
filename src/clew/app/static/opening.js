// While movies are opened: how far that is, their frames, and, for a movie without masks, how its cells are detected.

import { getBlob, getJson, postJson } from "./api.js";
import { changed, state, tell } from "./state.js";

const AGAIN = 300; // ms until the page asks again how far the opening is
const bar = document.getElementById("opening");
const picture = document.querySelector("#preview img");
const form = document.getElementById("detection");
const { frame, diameter, sensitivity, use } = form.elements;
let shown = "";

/** The movies, as soon as they are open; until then the page shows what is being done. */
export async function openedMovies() {
  for (;;) {
    try {
      const movies = await getJson("/api/movies");
      state.opening = null;
      return movies;
    } catch (error) {
      if (error.body?.kind !== "opening") throw error;
      state.opening = error.body;
      changed();
      await showPicture();
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }
}

/** How far the opening is; a bar without an end where nobody knows. */
export function showOpening() {
  const { opening } = state;
  const detection = opening?.detection;
  bar.hidden = !opening || Boolean(detection);
  if (opening?.total) bar.value = opening.done / opening.total;
  else bar.removeAttribute("value");
  picture.parentElement.hidden = !opening || !shown;
  if (detection && form.hidden) {
    frame.max = detection.frames - 1;
    diameter.value = detection.diameter;
    sensitivity.value = detection.sensitivity;
  }
  form.hidden = !detection;
  const found = detection?.cells;
  form.querySelector("output").textContent = found === null || found === undefined ? "" : `${found} ${found === 1 ? "cell" : "cells"} in frame ${frame.value}`;
}

/** The frame that is being measured, or the cells that the chosen settings find in a frame. */
async function showPicture() {
  const { done, frames, detection } = state.opening;
  showOpening();
  if (!detection && !frames) return;
  const address = detection
    ? `/api/opening/${frame.value}.png?diameter=${diameter.value}&sensitivity=${sensitivity.value}`
    : `/api/opening/${Math.min(done, frames - 1)}.png`;
  if (address === shown || !form.checkValidity()) return;
  const blob = await getBlob(address).catch((error) => void (detection && tell(error.message)));
  if (!blob) return;
  if (detection && state.notice) tell("");
  shown = address;
  URL.revokeObjectURL(picture.src);
  picture.src = URL.createObjectURL(blob);
}

export function makeOpening() {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    use.disabled = true;
    await postJson("/api/detection", { diameter: diameter.valueAsNumber, sensitivity: sensitivity.valueAsNumber }).catch((error) => tell(error.message));
    use.disabled = false;
  });
}
