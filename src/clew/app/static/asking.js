// The queue of questions, and the one that is asked now. The next ones lie ready with their pictures, so that none is waited for.

import { getJson, page } from "./api.js";
import { exclude, keyOf } from "./events.js";
import { frameAt } from "./frames.js";
import { stopLoop } from "./loop.js";
import { undelivered } from "./outbox.js";
import { eventOf, isAnswered, isFresh, pairAt } from "./pairs.js";
import { changed, state, tell } from "./state.js";
import { filterQuery } from "./steering.js";

const AHEAD = 5; // questions whose pictures are fetched before they are asked
const MANY = 20; // so many are fetched
const FEW = 8; // with fewer in the queue, more are fetched
const STEADY = 2; // the next ones stay when a new list comes: their pictures are here

let queue = [];
let skipped = new Set();
let past = []; // questions that were answered here, for undo
let fetching = false;
let isOld = false; // the list under way, since there are newer predictions

export function resetQueue() {
  [queue, skipped, past] = [[], new Set(), []];
}

/** Cells of questions that were answered here but not yet confirmed by the server. */
function answered() {
  return new Set(undelivered(state.movie.id).flatMap(({ body }) => cellsOf(body)));
}

const cellsOf = ({ frame, sources, targets }) =>
  sources.length ? sources.map((s) => `${frame}a${s}`) : targets.map((t) => `${frame}b${t}`);

function worthAsking(question) {
  const done = answered();
  if (skipped.has(keyOf(question)) || cellsOf(question).some((cell) => done.has(cell))) return false;
  const pair = pairAt(question.frame);
  const same = (event) => keyOf({ frame: question.frame, ...event }) === keyOf(question);
  if (isFresh(question.frame) && !pair.events.some(same)) return false; // predicted otherwise by now
  return !isAnswered(question);
}

/** The masks of a frame changed: drop the questions that were about the old ones. */
export function dropQuestionsOf(frame) {
  const isOther = (question) => frame < question.frame || frame > question.frame + 1;
  queue = queue.filter(isOther);
  past = past.filter(isOther);
  if (state.mode === "questions" && state.question && !isOther(state.question)) replaceQuestion("The outlines in this question changed");
}

/** Take a new list from the server; the current question stays. */
export function takeQuestions(list) {
  const known = new Set([state.mode === "questions" && state.question ? keyOf(state.question) : ""]);
  queue = [...queue.slice(0, STEADY), ...list].filter((question) => {
    const fresh = !known.has(keyOf(question)) && worthAsking(question);
    known.add(keyOf(question));
    return fresh;
  });
  prepare();
  if (state.mode === "questions" && !state.question) nextQuestion();
}

export async function fetchQuestions() {
  isOld = fetching;
  if (fetching) return;
  fetching = true;
  const [movie, chosen, known] = [state.movie.id, filterQuery(), skipped.size];
  const asIs = () => movie === state.movie.id && chosen === filterQuery(); // not chosen otherwise meanwhile
  try {
    const { questions } = await getJson(`/api/movies/${movie}/questions?n=${MANY + skipped.size}&page=${page}${chosen}`);
    if (asIs()) takeQuestions(questions);
  } catch {
    // the outbox and the stream of events say when the server is gone
  } finally {
    fetching = false;
    if (isOld || !asIs() || (!state.question && skipped.size > known)) fetchQuestions(); // or all that came was skipped
    changed();
  }
}

function prepare() {
  for (const { frame } of queue.slice(0, AHEAD)) {
    pairAt(frame);
    frameAt(frame + 1);
    frameAt(frame);
  }
}

/** Whether the pictures and predictions of the next questions are here. */
export const isPrepared = () => queue.length > 0 && queue.slice(0, AHEAD).every(({ frame }) => pairAt(frame) && frameAt(frame) && frameAt(frame + 1));

export function nextQuestion() {
  queue = queue.filter(worthAsking);
  show(queue.shift() ?? null);
  prepare();
  if (queue.length < FEW && !fetching) fetchQuestions();
}

function show(question) {
  stopLoop();
  Object.assign(state, { mode: "questions", question, draft: null, playing: false });
  if (question) Object.assign(state, { frame: question.frame, framed: false });
  changed();
}

export function skipQuestion() {
  if (state.question) skipped.add(keyOf(state.question));
  nextQuestion();
}

/** Ask the skipped ones again. */
export function unskip() {
  skipped = new Set();
  nextQuestion();
}

/** Whether only those that were skipped are left to ask; unknown as long as others may be on their way. */
export const anySkipped = () => skipped.size > 0 && !fetching;

/** The question was answered: remember it for undo, and go on. */
export function answeredQuestion() {
  if (state.notice.endsWith(ANOTHER)) tell("");
  past.push(state.question);
  nextQuestion();
}

/** An answer was taken back, or given again: ask its question if it was one of the queue, else go where it was given. */
export function backTo({ frame, sources, targets, act }) {
  const last = past.at(-1);
  const common = (one) => one.frame === frame && exclude(one, { sources, targets });
  if (state.mode === "questions" && act === "undo" && last && common(last)) {
    past.pop();
    if (state.question) queue.unshift(state.question);
    show(last);
  } else {
    browseTo(frame, sources.length ? { side: "a", label: sources[0] } : { side: "b", label: targets[0] });
    state.framed = false;
  }
}

/** Leave the queue and look at a frame; `cell` {side, label} is selected: its event becomes the question. */
export function browseTo(frame, cell = null, mode = state.mode === "masks" ? "masks" : "browse") {
  if (state.mode === "questions" && state.question) queue.unshift(state.question);
  const t = Math.max(0, Math.min(frame, state.movie.n_frames - 2));
  if (t !== state.frame) stopLoop();
  Object.assign(state, { mode, frame: t, draft: null, question: null, cell });
  reselect();
  frameAt(t + 2);
  pairAt(t + 1);
  changed();
}

/** Follow the news. A question stays until it is answered, be it in another window. In browsing, the question is what is now
said of the selected cell. */
export function reselect() {
  if (state.mode === "questions" && state.question && isAnswered(state.question)) replaceQuestion("This was answered meanwhile");
  if (state.mode !== "browse" || state.draft) return;
  const event = state.cell && eventOf(pairAt(state.frame), state.cell.side, state.cell.label);
  const said = event && keyOf({ frame: state.frame, ...event });
  const { cell, frame } = seen;
  if (said && seen.said && said !== seen.said && !event.pinned && cell === state.cell && frame === state.frame) hold();
  seen = { cell: state.cell, frame: state.frame, said: said || (cell === state.cell && frame === state.frame ? seen.said : null) };
  state.question = event ? { frame: state.frame, ...event } : null;
}

let seen = {}; // what was said last of the cell that is selected in browsing

const LOOK = 700; // ms in which nobody can have read a question that changed by itself
const ANOTHER = ": here is another question.";
let readAt = 0;

/** Whether the question has been there for long enough to be answered, if it changed without the person's doing. */
export const isRead = () => performance.now() >= readAt;

function hold() {
  readAt = performance.now() + LOOK;
  setTimeout(changed, LOOK + 20); // buttons work again
}

function replaceQuestion(why) {
  hold();
  tell(why + ANOTHER);
  nextQuestion();
}
