// The two panes: raw images below, cells and events above them.

import { about } from "./answering.js";
import { camera, centreOn, isIn, layOut, panes, toScreen } from "./camera.js";
import { surenessOf } from "./events.js";
import { frameAt, outlineOf } from "./frames.js";
import { shownFrame } from "./loop.js";
import { drawArrow, drawKey, drawSign, drawTag, INK, strokeInk } from "./ink.js";
import { pairAt } from "./pairs.js";
import { changed, state } from "./state.js";
import { placeHint, tagBoxes } from "./tags.js";

const stage = document.getElementById("stage");
const images = [...stage.querySelectorAll("canvas.image")];
const overlay = stage.querySelector("canvas.overlay");
const chips = [...stage.querySelectorAll(".chip")];
const TOP = 90; // pixels: arrows that near to the upper edge bend down, away from what the pane is called
let due = false;

/** Draw before the next paint. */
export function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    draw();
  });
}

export function watchSize() {
  new ResizeObserver(() => {
    const { clientWidth, clientHeight } = stage;
    layOut(clientWidth, clientHeight);
    fitCanvas(overlay, 0, clientWidth, clientHeight);
    images.forEach((canvas, i) => fitCanvas(canvas, panes[i].x, panes[i].width, clientHeight));
    chips[1].style.left = `${panes[1].x + 12}px`;
    if (state.question) state.framed = false;
    draw();
    changed(); // what is as wide as its panel is drawn anew
  }).observe(stage);
}

function fitCanvas(canvas, left, width, height) {
  canvas.width = Math.round(width * devicePixelRatio);
  canvas.height = Math.round(height * devicePixelRatio);
  Object.assign(canvas.style, { left: `${left}px`, width: `${width}px`, height: `${height}px` });
}

function draw() {
  if (!state.movie) return;
  const pair = pairAt(state.frame);
  const frames = [frameAt(shownFrame()), frameAt(state.frame + 1)];
  if (!state.framed && state.question) {
    centreOn(state.question);
    state.framed = Boolean(pair && frames[0]);
    if (state.framed) changed(); // from now on the question can be answered, which buttons and words show
  }
  const shown = state.draft ?? state.question;
  frames.forEach((frame, i) => drawImage(images[i], panes[i], frame));
  chips.forEach((chip, i) => (chip.textContent = describe(i, shown)));

  const context = overlay.getContext("2d");
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, overlay.width, overlay.height);
  const looping = state.loop !== null;
  frames.forEach((frame, i) => frame && inPane(context, panes[i], () => drawCells(context, panes[i], frame, looping && !i && state.loop !== state.frame ? null : shown)));
  drawStroke(context);
  if (!pair) return;
  inPane(context, panes[1], () => drawWays(context, pair, shown));
  if (looping) return;
  inPane(context, panes[0], () => drawFates(context, pair, shown?.sources ?? []));
  if (shown) {
    inPane(context, panes[1], () => frames[0] && drawGhosts(context, panes[1], frames[0], shown.sources));
    if (!shown.sources.length && frames[1]) inPane(context, panes[0], () => drawGhosts(context, panes[0], frames[1], shown.targets));
    const tags = tagBoxes();
    drawEvent(context, pair, shown, tags.names);
    drawKeys(context, tags.keys);
    placeHint(tags);
  }
}

/** The line that is being drawn to cut a cell, or around one. */
function drawStroke(context) {
  const { stroke } = state;
  if (!stroke || stroke.points.length < 2) return;
  const pane = panes[stroke.side === "a" ? 0 : 1];
  const line = new Path2D();
  for (const [x, y] of stroke.points) line.lineTo(...toScreen(pane, x, y));
  if (state.tool === "add") line.closePath();
  inPane(context, pane, () => strokeInk(context, line, stroke.sent ? INK.pending : INK.draft));
}

/** The frame of a pane, the cells in question, and what a click there would say. */
function describe(i, shown) {
  if (state.loop !== null && i === 0) return `Loop · frame ${state.loop}`;
  const labels = shown ? [shown.sources, shown.targets][i] : [];
  const cells = labels.length ? ` · cell${labels.length > 1 ? "s" : ""} ${labels.join(" and ")}` : "";
  const open = state.question && !state.draft && panes[i].side !== about(); // both would be too long for a narrow pane
  return `Frame ${state.frame + i}${open ? ` · wrong? click where it ${i ? "went" : "came from"}` : cells}`;
}

function drawImage(canvas, pane, frame) {
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (!frame) return;
  const [x, y] = toScreen(pane, 0, 0);
  const scale = camera.scale * devicePixelRatio;
  context.setTransform(scale, 0, 0, scale, (x - pane.x) * devicePixelRatio, (y - pane.y) * devicePixelRatio);
  context.imageSmoothingEnabled = camera.scale < 6;
  context.drawImage(frame.image, 0, 0);
  // levels black … white as a filter: contrast then shifts, brightness scales; exact in between
  const { black, white } = state;
  const contrast = 1 + (2 * black) / (white - black);
  canvas.style.filter = black || white < 1 ? `brightness(${1 / (white + black)}) contrast(${contrast})` : "";
}

function inPane(context, pane, paint) {
  context.save();
  context.beginPath();
  context.rect(pane.x, pane.y, pane.width, pane.height);
  context.clip();
  paint();
  context.restore();
}

/** Run `paint` in image coordinates, so that outlines are drawn as they were traced. */
function inImage(context, pane, paint) {
  const [x, y] = toScreen(pane, 0, 0);
  context.save();
  context.transform(camera.scale, 0, 0, camera.scale, x, y);
  paint(1 / camera.scale);
  context.restore();
}

function visible(pane, [x0, y0, x1, y1]) {
  const [left, top] = toScreen(pane, x0, y0);
  const [right, bottom] = toScreen(pane, x1, y1);
  return right > pane.x && bottom > pane.y && left < pane.x + pane.width && top < pane.y + pane.height;
}

const BEYOND = 40; // pixels around a pane: an arrow or sign that is farther out cannot be seen in it

/** Whether a cell is the first of two that are to be merged, or whose tracks are to be re-linked. */
function isChosen(side, label) {
  const { chosen, link, frame } = state;
  return (chosen?.side === side && chosen.label === label) || (link?.first?.label === label && link.first.frame === frame + (side === "b" ? 1 : 0));
}

function drawCells(context, pane, frame, shown) {
  const mine = shown ? (pane.side === "a" ? shown.sources : shown.targets) : [];
  const colour = shown ? INK[inkOf(shown)].colour : INK.draft.colour;
  inImage(context, pane, (pixel) => {
    for (const [label, cell] of frame.cells) {
      if (!visible(pane, cell.box)) continue;
      const chosen = mine.includes(label) || isChosen(pane.side, label);
      const hovered = state.hover?.side === pane.side && state.hover.label === label;
      context.globalAlpha = chosen ? 0.24 : (hovered ? 0.5 : 0.28) * state.masks;
      context.fillStyle = chosen ? colour : "#9fb6cc";
      context.fill(outlineOf(cell));
      context.globalAlpha = chosen || hovered ? 1 : 1.2 * Math.min(state.masks, 0.75);
      context.strokeStyle = chosen ? colour : hovered ? "#ffffff" : "#a9bccd";
      context.lineWidth = pixel * (chosen ? 2.5 : hovered ? 2 : state.mode === "masks" ? 1.5 : 1);
      context.stroke(outlineOf(cell));
    }
  });
}

export const inkOf = (shown) => (shown === state.draft ? "draft" : surenessOf(shown));

/** Where each cell of the right frame came from, as a thin line in its own degree of certainty. */
function drawWays(context, pair, shown) {
  const before = new Map(pair.a.map((cell) => [cell.id, cell]));
  const after = new Map(pair.b.map((cell) => [cell.id, cell]));
  context.globalAlpha = shown ? 0.4 : 0.8; // beside a question, the neighbours' moves are faint
  for (const event of pair.events) {
    if (shown && event.targets.some((t) => shown.targets.includes(t))) continue;
    const ink = INK[surenessOf(event)];
    for (const target of event.targets.map((t) => after.get(t))) {
      const there = toScreen(panes[1], target.x, target.y);
      for (const source of event.sources.map((s) => before.get(s))) {
        const here = toScreen(panes[1], source.x, source.y);
        if (isIn(panes[1], here, BEYOND) || isIn(panes[1], there, BEYOND)) drawArrow(context, here, there, ink, { bend: 0, head: 6, thin: 0.45 });
      }
      if (!event.sources.length && isIn(panes[1], there, BEYOND)) drawSign(context, ...there, event.event === "appear" ? "appear" : "disappear", { ...ink, width: 2 }, 4);
    }
  }
}

/** In the left frame: cells that disappear, and those whose fate was annotated; but for those whose event is drawn large. */
function drawFates(context, pair, large) {
  const fate = new Map(pair.events.flatMap((event) => event.sources.map((s) => [s, event])));
  for (const cell of pair.a) {
    const event = fate.get(cell.id);
    if (!event || large.includes(cell.id)) continue;
    const [x, y] = toScreen(panes[0], cell.x, cell.y);
    if (!isIn(panes[0], [x, y], BEYOND)) continue;
    const ink = INK[surenessOf(event)];
    if (!event.targets.length) drawSign(context, x, y, "disappear", { ...ink, width: 2 }, 4);
    if (event.pinned) drawTag(context, event.pending ? "…" : "✓", x, y - (event.targets.length ? 0 : 16), ink.colour, 10);
  }
}

/** Outlines of cells of the other frame, so that the way they went can be judged. */
function drawGhosts(context, pane, frame, labels) {
  inImage(context, pane, (pixel) => {
    context.setLineDash([4 * pixel, 4 * pixel]);
    context.lineWidth = 1.25 * pixel;
    context.strokeStyle = "#ffffff";
    context.globalAlpha = 0.55;
    for (const label of labels) if (frame.cells.has(label)) context.stroke(outlineOf(frame.cells.get(label)));
  });
}

/** The event in question: arrows from the left pane to the right one, or a sign where there is only one side. */
function drawEvent(context, pair, shown, names) {
  const ink = INK[inkOf(shown)];
  const place = (cells, labels, i) => cells.filter(({ id }) => labels.includes(id)).map((cell) => [cell, toScreen(panes[i], cell.x, cell.y), i]);
  const sources = place(pair.a, shown.sources, 0);
  const targets = place(pair.b, shown.targets, 1);
  const bend = Math.min(...[...sources, ...targets].map(([, [, y]]) => y)) < TOP ? -0.1 : 0.1;
  for (const [, from] of sources) for (const [, to] of targets) drawArrow(context, from, to, ink, { bend, head: 14 });
  if (!sources.length && shown.event === "appear") for (const [, at] of targets) drawSign(context, ...at, "appear", ink, 10);
  if (["disappear", "false_end", "false_begin"].includes(shown.event)) for (const [, at] of [...sources, ...targets]) drawSign(context, ...at, "disappear", ink, 10);
  for (const [left, top, right, bottom, i, label] of names) inPane(context, panes[i], () => drawTag(context, label, (left + right) / 2, (top + bottom) / 2, ink.colour));
}

/** Cells that can be named by a number key carry it. */
function drawKeys(context, keys) {
  for (const [left, top, right, bottom, i, number] of keys) inPane(context, panes[i], () => drawKey(context, String(number), (left + right) / 2, (top + bottom) / 2));
}
