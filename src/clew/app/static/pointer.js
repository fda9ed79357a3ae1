// Mouse and touch on the panes: click cells, drag to pan, wheel or pinch to zoom; a long press or the right button looks at a cell.

import { cancel, pick } from "./answering.js";
import { browseTo } from "./asking.js";
import { panBy, paneAt, panes, toImage, zoomBy } from "./camera.js";
import { labelAt } from "./frames.js";
import { isLinking, linkCell } from "./linking.js";
import { beginStroke, clickMask, draws, dropStroke, endStroke, goOn, isMending } from "./mending.js";
import { changed, state } from "./state.js";

const STILL = 4; // a pointer that moved by fewer pixels has clicked
const LONG = 550; // ms: a finger that rests so long looks at the cell instead of answering
const down = new Map(); // pointers that touch: id → {x, y}
let moved = 0;
let resting = 0; // the timer of a long press

function cellUnder(event) {
  const pane = paneAt(event.offsetX);
  const [x, y] = toImage(pane, event.offsetX, event.offsetY);
  return { side: pane.side, label: labelAt(state.frame + (pane.side === "b" ? 1 : 0), x, y) };
}

/** Where a pointer is in the picture of a pane. */
const pointUnder = (event, pane) => toImage(pane, event.offsetX, event.offsetY);

export function listenToPointer(overlay) {
  overlay.addEventListener("pointerdown", (event) => {
    if (!down.size) moved = 0;
    if (down.size) dropStroke(); // a second finger: it is a pinch
    else if (draws() && event.button === 0) beginStroke(paneAt(event.offsetX).side, pointUnder(event, paneAt(event.offsetX)));
    down.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    clearTimeout(resting);
    if (event.pointerType !== "mouse" && down.size === 1 && !draws()) resting = setTimeout(() => rest(event), LONG);
    overlay.setPointerCapture(event.pointerId);
  });
  overlay.addEventListener("pointermove", (event) => (down.has(event.pointerId) ? drag(event) : hover(event, overlay)));
  overlay.addEventListener("contextmenu", (event) => {
    event.preventDefault();
    if (event.button === 2 && event.pointerType === "mouse") lookAt(cellUnder(event));
  });
  overlay.addEventListener("pointerup", (event) => {
    clearTimeout(resting);
    if (!down.delete(event.pointerId) || down.size) return;
    if (state.stroke && !state.stroke.sent) endStroke(moved < STILL);
    else if (moved < STILL && event.button === 0) click(cellUnder(event));
  });
  overlay.addEventListener("pointercancel", (event) => {
    clearTimeout(resting);
    down.delete(event.pointerId);
    dropStroke();
  });
  overlay.addEventListener("pointerleave", () => setHover(null));
  overlay.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), paneAt(event.offsetX), event.offsetX, event.offsetY);
  }, { passive: false });
}

/** A finger rests on a cell: it is looked at, and lifting the finger says nothing. */
function rest(event) {
  if (moved >= STILL || down.size !== 1) return;
  moved = Infinity;
  lookAt(cellUnder(event));
}

/** Select a cell, whatever a click on it would say. */
function lookAt(cell) {
  if (cell.label && !isMending() && !isLinking()) browseTo(state.frame, cell, "browse");
}

function drag(event) {
  const last = down.get(event.pointerId);
  const now = { x: event.offsetX, y: event.offsetY };
  moved += Math.hypot(now.x - last.x, now.y - last.y);
  const other = [...down].find(([id]) => id !== event.pointerId)?.[1];
  if (other) zoomBy(distance(now, other) / distance(last, other), paneAt(other.x), other.x, other.y);
  else if (state.stroke && !state.stroke.sent) goOn(pointUnder(event, panes[state.stroke.side === "a" ? 0 : 1]));
  else if (moved >= STILL) panBy(now.x - last.x, now.y - last.y);
  down.set(event.pointerId, now);
}

const distance = (p, q) => Math.max(1, Math.hypot(p.x - q.x, p.y - q.y));

function hover(event, overlay) {
  const cell = cellUnder(event);
  overlay.style.cursor = draws() ? "crosshair" : cell.label ? "pointer" : "grab";
  setHover(cell.label ? cell : null);
}

function setHover(cell) {
  if (cell?.label === state.hover?.label && cell?.side === state.hover?.side) return;
  state.hover = cell;
  changed();
}

/** A cell that answers the question does; any other one is selected. The background takes a draft back. */
function click(cell) {
  if (isMending()) return clickMask(cell);
  if (isLinking()) return cell.label ? linkCell(cell) : undefined;
  if (!cell.label) return state.draft ? cancel() : undefined;
  if (pick(cell.side, cell.label)) return undefined;
  return browseTo(state.frame, cell);
}

