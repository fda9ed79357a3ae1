// How the estimate of wrong events went down with the answers: a line, and the interval as a band.

import { shape } from "./svg.js";

const [HEIGHT, LEFT, BOTTOM, TOP] = [74, 26, 15, 6];
let drawn = "";

/** `points` are [answers, number, low, high]; nothing is drawn of fewer than two. */
export function drawCurve(box, points) {
  const width = box.clientWidth;
  const key = JSON.stringify([width, points]);
  if (key === drawn) return;
  drawn = key;
  if (points.length < 2) return box.replaceChildren();
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const most = Math.max(1, ...points.map(([, , , high]) => high));
  const x = (answers) => LEFT + ((width - LEFT - 6) * (answers - first)) / Math.max(1, last - first);
  const y = (wrong) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - wrong / most);
  const way = (column, list = points) => list.map((point) => `${x(point[0]).toFixed(1)},${y(point[column]).toFixed(1)}`).join("L");
  const [, number, low, high] = points.at(-1);
  const words = `Wrong events after ${last} answers: about ${Math.round(number)}, ${low} to ${high}; after ${first}: about ${Math.round(points[0][1])}`;
  const svg = shape("svg", { width, height: HEIGHT, role: "img", "aria-label": words });
  svg.append(
    shape("title", {}, words),
    shape("line", { x1: LEFT, x2: width - 6, y1: y(0), y2: y(0), class: "grid" }),
    shape("path", { d: `M${way(3)}L${way(2, [...points].reverse())}Z`, class: "band" }),
    shape("path", { d: `M${way(1)}`, class: "line" }),
    shape("circle", { cx: x(last), cy: y(number), r: 3.5, class: "now" }),
    shape("text", { x: LEFT - 4, y: y(most) + 8, "text-anchor": "end" }, String(Math.round(most))),
    shape("text", { x: LEFT - 4, y: y(0), "text-anchor": "end" }, "0"),
    shape("text", { x: LEFT, y: HEIGHT - 2 }, `${first} answers`),
    shape("text", { x: width - 6, y: HEIGHT - 2, "text-anchor": "end" }, String(last)),
  );
  return box.replaceChildren(svg);
}
