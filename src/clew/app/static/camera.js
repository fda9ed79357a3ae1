// Which part of the frames is shown. Both panes share it: pan and zoom move them together.

import { frameAt } from "./frames.js";
import { pairAt } from "./pairs.js";
import { changed, state } from "./state.js";

export const camera = { x: 0, y: 0, scale: 1 }; // the image point in the middle of each pane, and screen pixels per image pixel
export const panes = [
  { side: "a", x: 0, y: 0, width: 1, height: 1 },
  { side: "b", x: 0, y: 0, width: 1, height: 1 },
];
const CELLS_ACROSS = 8; // so many cell diameters fit into a pane
const GREATEST = 40;
const MARGIN = 52; // pixels of a pane that may lie outside of the image: room for what the pane is called, and for the name of a cell at the edge

/** Whether a point of the screen is in a pane, or at most `beyond` pixels outside of it. */
export const isIn = (pane, [x, y], beyond = 0) => x > pane.x - beyond && y > pane.y - beyond && x < pane.x + pane.width + beyond && y < pane.y + pane.height + beyond;

export const paneAt = (x) => (x < panes[1].x ? panes[0] : panes[1]);

export function toScreen(pane, x, y) {
  return [pane.x + pane.width / 2 + (x - camera.x) * camera.scale, pane.y + pane.height / 2 + (y - camera.y) * camera.scale];
}

export function toImage(pane, x, y) {
  return [camera.x + (x - pane.x - pane.width / 2) / camera.scale, camera.y + (y - pane.y - pane.height / 2) / camera.scale];
}

const size = () => state.movie.shape.slice(-2).reverse(); // width, height

const whole = () => Math.min(panes[0].width / size()[0], panes[0].height / size()[1]);

function setScale(scale) {
  camera.scale = Math.max(whole(), Math.min(scale, GREATEST)); // a small picture is enlarged to fill its pane
}

export function zoomBy(factor, pane = panes[0], x = pane.x + pane.width / 2, y = pane.y + pane.height / 2) {
  const [ix, iy] = toImage(pane, x, y);
  setScale(camera.scale * factor);
  const [nx, ny] = toImage(pane, x, y);
  panBy((nx - ix) * camera.scale, (ny - iy) * camera.scale); // what was under the pointer stays there
}

/** Move the picture by so many screen pixels. */
export function panBy(dx, dy) {
  lookAt(camera.x - dx / camera.scale, camera.y - dy / camera.scale);
  changed();
}

/** Put an image point into the middle, as far as the picture still fills the panes but for a margin. */
function lookAt(x, y) {
  const [width, height] = size();
  camera.x = within(x, width, panes[0].width / camera.scale);
  camera.y = within(y, height, panes[0].height / camera.scale);
}

function within(middle, length, view) {
  const least = view / 2 - MARGIN / camera.scale;
  return 2 * least > length ? length / 2 : Math.max(least, Math.min(length - least, middle));
}

/** The part of the image that the panes show: [left, top, right, bottom]. */
export function visibleBox() {
  const { x, y, width, height } = panes[0];
  return [...toImage(panes[0], x, y), ...toImage(panes[0], x + width, y + height)];
}

export function showAll() {
  const [width, height] = size();
  setScale(whole());
  lookAt(width / 2, height / 2);
  changed();
}

/** Centre on a question's cells, so near that they and their neighbours are seen well. */
export function centreOn({ frame, sources, targets, centre }) {
  const pair = pairAt(frame);
  const cells = pair ? [...pair.a.filter((c) => sources.includes(c.id)), ...pair.b.filter((c) => targets.includes(c.id))] : [];
  const xs = cells.map((c) => c.x), ys = cells.map((c) => c.y);
  if (cells.length) centre = [(Math.min(...xs) + Math.max(...xs)) / 2, (Math.min(...ys) + Math.max(...ys)) / 2];
  if (!centre) return;
  const room = Math.min(panes[0].width, panes[0].height);
  const spread = cells.length ? Math.max(Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys)) : 0;
  setScale(room / Math.max(Math.max(diameter(frame), sizeOf(frame, sources, targets) / 1.5) * CELLS_ACROSS, 2 * spread));
  lookAt(...centre);
}

/** The size of the largest cell in question: a giant is to be seen whole. */
function sizeOf(t, sources, targets) {
  const boxes = [[t, sources], [t + 1, targets]].flatMap(([frame, labels]) => labels.map((label) => frameAt(frame)?.cells.get(label)?.box)).filter(Boolean);
  return Math.max(0, ...boxes.map((box) => Math.max(box[2] - box[0], box[3] - box[1])));
}

let typical = 0; // diameter of the cells of this movie, once known: the scale must not jump from question to question

export function forgetScale() {
  typical = 0;
}

function diameter(t) {
  const cells = typical ? null : frameAt(t)?.cells;
  if (cells?.size) {
    const widths = [...cells.values()].map(({ box }) => Math.max(box[2] - box[0], box[3] - box[1])).sort((a, b) => a - b);
    typical = widths[widths.length >> 1];
  }
  return typical || Math.max(...size()) / 20;
}

/** Follow the size of the stage; the panes lie side by side with a gap between them. */
export function layOut(width, height, gap = 2) {
  const half = (width - gap) / 2;
  Object.assign(panes[0], { x: 0, y: 0, width: half, height });
  Object.assign(panes[1], { x: half + gap, y: 0, width: half, height });
}
