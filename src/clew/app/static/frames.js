// Pictures of frames, kept near: the raw image, and the label under each pixel with the cells' outlines.

import { getBlob } from "./api.js";
import { changed, isNear, state } from "./state.js";

const MOST = 48; // frames that are kept, if they are small
const MOST_PIXELS = 120e6; // of all that are kept, at 8 bytes each
const FEWEST = 14; // frames that are kept however large: those of the next questions
const kept = new Map(); // address → {ready, version, image, width, height, labels, cells}; the last one used is last
const worker = new Worker(new URL("outline-worker.js", import.meta.url), { type: "module" });
const waiting = new Map();
let sent = 0;

worker.onmessage = ({ data }) => {
  waiting.get(data.id)(data);
  waiting.delete(data.id);
};

function traced(blob) {
  return new Promise((resolve) => {
    waiting.set(++sent, resolve);
    worker.postMessage({ id: sent, blob });
  });
}

/** The frame if it is here; otherwise null, and it is fetched: `changed` tells when one that is shown came. */
export function frameAt(t) {
  if (!state.movie || t < 0 || t >= state.movie.n_frames) return null;
  const key = `${state.movie.id}/${state.slice ?? ""}/${t}`;
  const version = state.maskRevisions[t] ?? 0;
  let frame = kept.get(key);
  const before = frame?.ready ? frame : frame?.before; // shown until the new one is here
  kept.delete(key);
  if (frame?.version !== version) {
    frame = { ready: false, version, before };
    load(frame, state.movie.id, t, state.slice).catch(() => kept.delete(key)); // asked for again when it is drawn again
  }
  kept.set(key, frame);
  const most = Math.max(FEWEST, Math.min(MOST, Math.floor(MOST_PIXELS / pixels())));
  while (kept.size > most) kept.delete(kept.keys().next().value);
  return frame.ready ? frame : (frame.before ?? null);
}

/** Of one frame. */
function pixels() {
  const [height, width] = state.movie.shape.slice(-2);
  return height * width;
}

async function load(frame, movie, t, slice) {
  const z = slice === null ? "" : `&z=${slice}`;
  const same = state.movie.has_images && frame.before; // only the masks changed
  const [image, labels] = await Promise.all([
    same ? same.image : getBlob(`/api/movies/${movie}/image/${t}.png?v=${state.movie.has_images ? 0 : frame.version}${z}`).then((blob) => createImageBitmap(blob)),
    getBlob(`/api/movies/${movie}/labels/${t}.png?v=${frame.version}${z}`).then(traced),
  ]);
  Object.assign(frame, labels, { image, ready: true, before: null });
  if (isNear(t)) changed();
}

/** A cell's outline; most cells are never drawn, so that it is made when it is asked for. */
export function outlineOf(cell) {
  cell.path ??= pathOf(cell.loops);
  return cell.path;
}

function pathOf(loops) {
  const path = new Path2D();
  for (const loop of loops) {
    path.moveTo(loop[0], loop[1]);
    for (let i = 2; i < loop.length; i += 2) path.lineTo(loop[i], loop[i + 1]);
    path.closePath();
  }
  return path;
}

/** The label under a point of a frame, 0 for none. */
export function labelAt(t, x, y) {
  const frame = frameAt(t);
  const inside = frame && x >= 0 && y >= 0 && x < frame.width && y < frame.height;
  return inside ? frame.labels[Math.floor(y) * frame.width + Math.floor(x)] : 0;
}
