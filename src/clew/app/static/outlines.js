// Outlines of the cells of a label image: closed lines around each label, through the middles of pixel edges.

/**
 * labels: Uint32Array (height × width). Returns a map from label to {box: [x0, y0, x1, y1], loops: [Float32Array of x, y, …]}.
 *
 * Each pixel edge between a label and anything else is walked once, with the label on the right-hand side. The line goes
 * through the middles of the edges, which rounds the steps off.
 */
export function traceOutlines(labels, width, height) {
  const at = (x, y) => (x < 0 || y < 0 || x >= width || y >= height ? 0 : labels[y * width + x]);
  const seen = new Uint8Array(width * height); // pixels whose upper edge was walked
  const cells = new Map();
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const label = labels[y * width + x];
      if (!label || at(x, y - 1) === label || seen[y * width + x]) continue;
      const loop = walk(at, label, x, y, seen, width);
      const cell = cells.get(label) ?? { box: [Infinity, Infinity, -Infinity, -Infinity], loops: [] };
      for (let i = 0; i < loop.length; i += 2) {
        cell.box = [
          Math.min(cell.box[0], loop[i]), Math.min(cell.box[1], loop[i + 1]),
          Math.max(cell.box[2], loop[i]), Math.max(cell.box[3], loop[i + 1]),
        ];
      }
      cell.loops.push(loop);
      cells.set(label, cell);
    }
  }
  return cells;
}

const STEP = [[1, 0], [0, 1], [-1, 0], [0, -1]]; // along the upper edge to the right, then clockwise
const RIGHT_AHEAD = [[0, 0], [-1, 0], [-1, -1], [0, -1]]; // from a corner, the pixel ahead on the right-hand side
const LEFT_AHEAD = [[0, -1], [0, 0], [-1, 0], [-1, -1]]; // and on the left-hand side

function walk(at, label, startX, startY, seen, width) {
  const points = [];
  let x = startX, y = startY, way = 0;
  let straight = -1; // the direction of the line so far, to leave out points on it
  do {
    if (way === 0) seen[y * width + x] = 1;
    const [dx, dy] = STEP[way];
    if (straight === way) points.length -= 2;
    points.push(x + dx / 2, y + dy / 2);
    x += dx;
    y += dy;
    const ahead = (corner) => at(x + corner[way][0], y + corner[way][1]) === label;
    const before = way;
    if (!ahead(RIGHT_AHEAD)) way = (way + 1) % 4;
    else if (ahead(LEFT_AHEAD)) way = (way + 3) % 4;
    straight = before === way && points.length > 4 && sameWay(points, way) ? way : -1;
  } while (x !== startX || y !== startY || way !== 0);
  return Float32Array.from(points);
}

/** Whether the last two points already lie on a straight line in this direction. */
function sameWay(points, way) {
  const n = points.length;
  const [dx, dy] = STEP[way];
  const [ux, uy] = [points[n - 2] - points[n - 4], points[n - 1] - points[n - 3]];
  return dx ? uy === 0 && ux * dx > 0 : ux === 0 && uy * dy > 0;
}
