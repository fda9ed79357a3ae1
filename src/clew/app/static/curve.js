// The estimated error over the number of answers, with a band of one standard error on each side.

const SVG = "http://www.w3.org/2000/svg";

export function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

export const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [272, 104, 34, 18, 8];

/** points: [{answers, error, se}] in the order of answers. */
export function drawCurve(container, points) {
  if (!points.length) {
    const words = "The estimate begins after a dozen answers.";
    container.replaceChildren(Object.assign(document.createElement("p"), { textContent: words }));
    return;
  }
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": inWords(points) });
  const most = niceAbove(Math.max(...points.map((p) => p.error + p.se)));
  const last = points.at(-1).answers;
  const x = (n) => LEFT + ((WIDTH - LEFT - 6) * n) / last;
  const y = (e) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.max(0, Math.min(e, most)) / most);
  for (const value of [0, most / 2, most]) {
    svg.append(shape("line", { x1: LEFT, x2: WIDTH - 6, y1: y(value), y2: y(value), class: "grid" }));
    svg.append(shape("text", { x: LEFT - 6, y: y(value) + 3.5, "text-anchor": "end" }, `${+(100 * value).toFixed(1)}%`));
  }
  const upper = points.map((p) => `${x(p.answers)},${y(p.error + p.se)}`);
  const lower = points.map((p) => `${x(p.answers)},${y(p.error - p.se)}`).reverse();
  svg.append(shape("polygon", { points: [...upper, ...lower].join(" "), class: "band" }));
  svg.append(shape("polyline", { points: points.map((p) => `${x(p.answers)},${y(p.error)}`).join(" "), class: "line" }));
  const { error, se } = points.at(-1);
  svg.append(shape("line", { x1: x(last), x2: x(last), y1: y(error - se), y2: y(error + se), class: "line" }));
  svg.append(shape("circle", { cx: x(last), cy: y(error), r: 3.5, class: "now" }));
  svg.append(shape("text", { x: LEFT, y: HEIGHT - 4 }, "0 answers"));
  svg.append(shape("text", { x: WIDTH - 6, y: HEIGHT - 4, "text-anchor": "end" }, String(last)));
  container.replaceChildren(svg);
}

const inWords = (points) => `Estimated error from ${percent(points[0].error)} to ${percent(points.at(-1).error)}`;

function niceAbove(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 0.001)));
  return [1, 2, 4, 5, 10].map((step) => step * power).find((step) => step >= value);
}
