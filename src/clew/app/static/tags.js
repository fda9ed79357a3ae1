// Where the names of cells, the number keys and the hint go on the panes: seen at the right cell, and in nobody's way.

import { isIn, panes, toScreen } from "./camera.js";
import { frameAt } from "./frames.js";
import { candidates } from "./picking.js";
import { state } from "./state.js";

const stage = document.getElementById("stage");
const chips = [...stage.querySelectorAll(".chip")];
const sections = [...stage.querySelectorAll(".sections")];
const hint = document.getElementById("hint");
const TAG = 17; // the size of a tag on the screen
const FARTHER = 150; // what it costs to put a tag one size farther out, in pixels of other cells that it would cover
const ON_TOP = 200; // what it costs to put a tag onto its own cell

/** Boxes [left, top, right, bottom, pane, …] on the screen: `names` of the cells in question (text) and `keys` of those that
can be named by a number (number, label). They cover neither each other, nor `cells`, those in question, nor what the
panes are called; and other cells as little as can be. `open` are the cells that have a number. */
export function tagBoxes() {
  const shown = state.draft ?? state.question;
  const mine = [shown.sources, shown.targets];
  const boxes = panes.map((pane, i) => boxesIn(pane, frameAt(state.frame + i)));
  const inQuestion = mine.flatMap((labels, i) => labels.filter((label) => boxes[i].has(label)).map((label) => ({ label, i })));
  const cells = inQuestion.map(({ label, i }) => boxes[i].get(label));
  const taken = [...cells, ...[...chips, ...sections.filter(({ hidden }) => !hidden)].map(place)];
  const put = ({ label, i }, half, below) => {
    const others = [...boxes[i]].filter(([other]) => other !== label && !mine[i].includes(other)).map(([, box]) => box);
    const outline = supports(frameAt(state.frame + i).cells.get(label)).map(([x, y]) => toScreen(panes[i], x, y));
    const spot = freeSpot(boxes[i].get(label), outline, taken, others, panes[i], half, below);
    taken.push(spot);
    return spot;
  };
  const names = inQuestion.map((cell) => [...put(cell, 5 + 4 * String(cell.label).length, true), cell.i, String(cell.label)]);
  const numbered = candidates().map(({ side, id, number }) => ({ label: id, i: side === "a" ? 0 : 1, number })).filter(({ label, i }) => boxes[i].has(label));
  const keys = numbered.map((cell) => [...put(cell, TAG / 2, false), cell.i, cell.number, cell.label]);
  return { names, keys, cells, open: numbered.map(({ label, i }) => boxes[i].get(label)) };
}

/** label → box on the screen, of all cells that can be seen in a pane. */
function boxesIn(pane, frame) {
  const found = new Map();
  for (const [label, { box }] of frame?.cells ?? []) {
    const [left, top, right, bottom] = [...toScreen(pane, box[0], box[1]), ...toScreen(pane, box[2], box[3])];
    if (right > pane.x && bottom > pane.y && left < pane.x + pane.width && top < pane.y + pane.height) found.set(label, [left, top, right, bottom]);
  }
  return found;
}

const place = ({ offsetLeft: x, offsetTop: y, offsetWidth: width, offsetHeight: height }) => [x, y, x + width, y + height];

const around = (x, y, rx, ry) => [x - rx, y - ry, x + rx, y + ry];

/** How many pixels two boxes share. */
const shared = (p, q) => Math.max(0, Math.min(p[2], q[2]) - Math.max(p[0], q[0])) * Math.max(0, Math.min(p[3], q[3]) - Math.max(p[1], q[1]));

const SIDES = [[0, -1], [0, 1], [1, 0], [-1, 0], [1, -1], [-1, -1], [1, 1], [-1, 1]]; // above, below, right, left, and between

/** The point of a cell's outline that is farthest in each direction of SIDES. */
function supports(cell) {
  cell.supports ??= SIDES.map(([ux, uy]) => {
    let best = [0, 0], most = -Infinity;
    for (const loop of cell.loops) {
      for (let i = 0; i < loop.length; i += 2) {
        const along = ux * loop[i] + uy * loop[i + 1];
        if (along > most) [best, most] = [[loop[i], loop[i + 1]], along];
      }
    }
    return best;
  });
  return cell.supports;
}

/** A box for a tag at the outline of a cell: above it (or below first), or else on another side, farther out, or on the cell itself. */
function freeSpot([left, top, right, bottom], outline, taken, others, pane, half, below) {
  const [x, y, ry] = [(left + right) / 2, (top + bottom) / 2, TAG / 2 + 1];
  const spots = [0, 1, 2, 3].flatMap((far) => {
    const sides = SIDES.map(([ux, uy], side) => [outline[side][0] + ux * (half + far * TAG), outline[side][1] + uy * (ry + far * TAG)]);
    if (below) [sides[0], sides[1]] = [sides[1], sides[0]];
    return sides.map((at) => ({ at, far, cost: far * FARTHER }));
  });
  let best = { box: around(x, y, half, ry), cost: Infinity };
  for (const { at, far, cost: least } of [...spots, { at: [x, y], far: 0, cost: ON_TOP }]) {
    const box = around(...at, half, ry);
    const inside = isIn(pane, [box[0], box[1]]) && isIn(pane, [box[2], box[3]]);
    if (!inside || least >= best.cost || taken.some((other) => shared(box, other))) continue;
    const reach = around(...at, half + far * TAG, ry + far * TAG); // what is in it is as near as the tag's own cell
    const cost = least + others.reduce((sum, other) => sum + shared(reach, other), 0);
    if (cost < best.cost) best = { box, cost };
  }
  return best.box;
}

const [LOW, HIGH] = [14, 40]; // pixels between the hint and the lower edge, and between it and the upper one: as in style.css

/** The hint goes to the top where it would cover more at the bottom: of the cells in question, and then of those that may be clicked. */
export function placeHint({ cells, open, names, keys }) {
  const [left, , right] = place(hint);
  const height = hint.offsetHeight;
  const covered = (top) => [...cells, ...names, ...open, ...keys].reduce((sum, box, n) => sum + (shared([left, top, right, top + height], box) ? (n < cells.length ? 100 : 1) : 0), 0);
  hint.classList.toggle("high", covered(HIGH) < covered(stage.clientHeight - LOW - height));
}
