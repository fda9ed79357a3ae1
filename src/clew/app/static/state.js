// What the page knows. Modules change `state` and call `changed`; those that show it are told once, before the next paint.

export const state = {
  movies: [],
  movie: null, // the one that is open: {id, name, n_frames, …}
  opening: null, // how far the movies are opened: {doing, done, total}
  mode: "questions", // or "browse", or "masks"
  frame: 0, // the left pane; the right one shows frame + 1
  slice: null, // of a 3D movie; null is the projection
  question: null, // {frame, event, sources, targets, reasons, pinned?}
  framed: true, // whether the view was centred on it
  cell: null, // the cell that is selected in browsing: {side: "a" | "b", label}
  draft: null, // the answer that is being put together: {event, sources, targets, loose}
  link: null, // tracks that are being re-linked: {first: {frame, label} | null}
  hover: null, // {side: "a" | "b", label}
  tool: null, // by which masks are mended: "merge", "cut", "delete" or "add"
  chosen: null, // the first of two cells that are to be merged: {side, label}
  stroke: null, // what is being drawn: {side, points: [[x, y], …], sent}
  maskRevisions: {}, // frame → the last revision that changed its masks
  edits: 0, // of masks that hold
  setAside: 0, // edits of other masks than these
  revision: 0,
  annotated: 0,
  canUndo: false,
  canRedo: false,
  learning: false,
  wrong: null, // {number, low, high, events, until, checked}: about how many events are wrong, answers until fewer than the target, and whether answers have checked it
  curve: [], // [[answers, number, low, high], …]
  target: Number(localStorage.getItem("clew-target")) || 10, // wrong events that the person would put up with
  tracked: 0, // frame pairs that were tracked so far, of `pairs`
  pairs: 0,
  outdated: 0, // answers whose cells were changed since
  waiting: 0, // answers on their way to the server
  gone: "", // why the server does not answer, in words; empty when it does
  trouble: "", // why nothing is learned, in words; empty when all is well
  refused: [], // answers that the server refused: [{item, why, replaceable}]
  stranded: [], // answers in this browser that belong to a movie that is not open
  notice: "", // what is being done, or went wrong, in words
  playing: false,
  loop: null, // the frame that the loop around a question shows now; null when there is none
  events: [], // the kinds of events that can happen in this movie
  switching: 0, // requests under way that switch some of them on or off
  filter: {}, // which questions are asked: {event, first, last, box, track}
  black: 0,
  white: 1,
  masks: 0.5,
};

/** Whether frame t, or the pair that begins there, is on the screen or about to be: only then its arrival changes anything. */
export const isNear = (t) => Math.abs(t - state.frame) <= 2;

const listeners = [];
let told = true;

export function onChange(listener) {
  listeners.push(listener);
}

export function changed() {
  if (!told) return;
  told = false;
  queueMicrotask(() => {
    told = true;
    for (const listener of listeners) listener();
  });
}

/** Say what is being done, or went wrong; nothing takes it back. */
export function tell(words) {
  state.notice = words;
  changed();
}
