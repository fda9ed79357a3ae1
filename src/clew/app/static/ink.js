// How events are drawn. Each degree of certainty has its own colour, width and dashes, so that colour never speaks alone.

export const INK = {
  unsure: { colour: "#f0a030", width: 2.5, dash: [3, 5], word: "not sure" },
  fair: { colour: "#f2e37a", width: 3, dash: [12, 6], word: "fairly sure" },
  sure: { colour: "#6cbcf0", width: 3.5, dash: [], word: "sure" },
  pinned: { colour: "#3ddcae", width: 3.5, dash: [], word: "your answer", double: true },
  draft: { colour: "#ffffff", width: 3, dash: [], word: "your answer so far" },
  pending: { colour: "#ffffff", width: 3, dash: [1, 6], word: "your answer, being saved" },
};
const CASING = "rgba(4, 7, 10, 0.75)";
const KEY_FONT = '600 11px ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace';

/** An arrow from one point to another, slightly bent, with a dark edge so that it is seen on any image. */
export function drawArrow(context, [x0, y0], [x1, y1], ink, { bend = 0.08, head = 11, thin = 1 } = {}) {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const length = Math.hypot(dx, dy);
  if (length < head) {
    dot(context, x1, y1, ink.colour, head / 3);
    return;
  }
  const [cx, cy] = [(x0 + x1) / 2 + dy * bend, (y0 + y1) / 2 - dx * bend];
  const angle = Math.atan2(y1 - cy, x1 - cx);
  const stop = Math.min(head * 0.8, length / 2);
  const line = new Path2D();
  line.moveTo(x0, y0);
  line.quadraticCurveTo(cx, cy, x1 - stop * Math.cos(angle), y1 - stop * Math.sin(angle));
  const tip = new Path2D();
  if (head) {
    const corner = (turn, far) => [x1 - far * Math.cos(angle + turn), y1 - far * Math.sin(angle + turn)];
    tip.moveTo(x1, y1);
    tip.lineTo(...corner(0.42, head));
    tip.lineTo(...corner(-0.42, head));
    tip.closePath();
  }
  strokeInk(context, line, ink, thin);
  context.save();
  Object.assign(context, { strokeStyle: CASING, lineWidth: 3, lineJoin: "round", fillStyle: ink.colour });
  context.stroke(tip);
  context.fill(tip);
  context.restore();
}

function dot(context, x, y, colour, radius) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

export function strokeInk(context, path, ink, thin = 1) {
  context.save();
  context.lineCap = "round";
  context.strokeStyle = CASING;
  context.lineWidth = ink.width * thin + 3;
  context.stroke(path);
  context.strokeStyle = ink.colour;
  context.setLineDash(ink.dash);
  context.lineWidth = ink.width * thin;
  if (ink.double) context.lineWidth += 2;
  context.stroke(path);
  if (ink.double) {
    context.strokeStyle = CASING;
    context.lineWidth = ink.width * thin * 0.4;
    context.stroke(path);
  }
  context.restore();
}

/** Dark text on a small plate of the given colour, its middle at (x, y). */
export function drawTag(context, text, x, y, colour, size = 12, ink = "#0b0f13") {
  context.save();
  context.font = `600 ${size}px -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const width = Math.max(context.measureText(text).width + size * 0.7, size * 1.5);
  context.fillStyle = colour;
  context.beginPath();
  context.roundRect(x - width / 2, y - size * 0.75, width, size * 1.5, size * 0.4);
  context.fill();
  context.fillStyle = ink;
  context.fillText(text, x, y + 0.5);
  context.restore();
}

/** A key as on a keyboard, its middle at (x, y): a cell's number on the keyboard is not to look like its name. */
export function drawKey(context, text, x, y) {
  context.save();
  Object.assign(context, { font: KEY_FONT, textAlign: "center", textBaseline: "middle", lineWidth: 1, strokeStyle: "#c3ccd4" });
  for (const [fill, height] of [["#8a97a3", 17], ["#141a20", 14.5]]) { // the key's edge, and its top
    context.fillStyle = fill;
    context.beginPath();
    context.roundRect(x - 7.5, y - 8, 15, height, 3.5);
    context.fill();
  }
  context.stroke();
  context.fillStyle = "#f2f5f7";
  context.fillText(text, x, y - 0.25);
  context.restore();
}

/** A mark for an event with one side only: a plus where a cell appears, a cross where one disappears. */
export function drawSign(context, x, y, kind, ink, size = 8) {
  const path = new Path2D();
  const reach = kind === "appear" ? [[-size, 0, size, 0], [0, -size, 0, size]] : [[-size, -size, size, size], [-size, size, size, -size]];
  for (const [x0, y0, x1, y1] of reach) {
    path.moveTo(x + x0, y + y0);
    path.lineTo(x + x1, y + y1);
  }
  strokeInk(context, path, { ...ink, dash: [] });
}
