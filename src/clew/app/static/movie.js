// Opening a movie, and following what happens to it: replies to answers, and news from the server.

import { getJson, page, postJson, withToken } from "./api.js";
import { backTo, browseTo, dropQuestionsOf, fetchQuestions, resetQueue, takeQuestions } from "./asking.js";
import { forgetScale, showAll } from "./camera.js";
import { pairwise } from "./events.js";
import { settleEdit } from "./mending.js";
import { setRevision, whyGone } from "./outbox.js";
import { forget, release, setPair } from "./pairs.js";
import { changed, state } from "./state.js";
import { isFiltered } from "./steering.js";

let placed = ""; // the last place that the server was told

export async function openMovie(id) {
  const movie = state.movies[id];
  Object.assign(state, {
    movie, mode: "questions", question: null, draft: null, cell: null, frame: 0, slice: null, playing: false, gone: "",
    tool: null, chosen: null, link: null, stroke: null, maskRevisions: {},
  });
  document.title = `${movie.name} – clew`;
  localStorage.setItem("clew-movie", movie.name);
  resetQueue();
  forgetScale();
  showAll();
  const status = await fetchStatus();
  if (status?.place) state.frame = Math.max(0, Math.min(status.place.frame, movie.n_frames - 2));
  if (movie.n_frames < 2) browseTo(0);
  await fetchQuestions();
}

let [asked, taken] = [0, 0]; // requests for the status; the answer to an earlier one is older

/** What the server knows; null if it does not answer, which the page then says. */
export async function fetchStatus() {
  const movie = state.movie.id;
  const number = ++asked;
  try {
    const status = await getJson(`/api/movies/${movie}/status?page=${page}&target=${state.target}`);
    setRevision(movie, status.revision);
    if (movie === state.movie.id && number > taken) takeStatus(status);
    taken = Math.max(taken, number);
    state.gone = "";
    return status;
  } catch (error) {
    state.gone = whyGone(error);
    return null;
  } finally {
    changed();
  }
}

function takeStatus({ revision, annotated, can_undo, can_redo, learning, version, wrong, curve, outdated, worker, events, masks, edits, set_aside, tracked, pairs }) {
  Object.assign(state, { learning, version, wrong, curve, outdated, edits, setAside: set_aside, tracked, pairs });
  if (!state.switching) state.events = events; // else the server does not know yet what was clicked
  takeMasks(revision, masks);
  takeWorker(worker);
  const isOlder = revision < (replied.get(state.movie.store) ?? 0); // it was asked for before the last answer
  if (!state.waiting && !isOlder) Object.assign(state, { annotated, canUndo: can_undo, canRedo: can_redo });
}

let masksAt = { movie: null, revision: 0 }; // what is known of the masks; an answer that took longer may be older

function takeMasks(revision, masks) {
  const { id } = state.movie;
  if (masksAt.movie === id && revision < masksAt.revision) return;
  const edited = masksAt.movie === id ? Object.keys(masks).filter((t) => masks[t] !== state.maskRevisions[t]) : [];
  masksAt = { movie: id, revision };
  state.maskRevisions = masks;
  for (const t of edited) dropQuestionsOf(Number(t));
}

const replied = new Map(); // store of answers → the revision of the last reply
const learned = new Map(); // movie → the last revision that was learned from; the reply to its answer may come later

/** A request was confirmed (or refused: then there is no reply). */
export function takeReply(item, reply) {
  if (!reply) {
    if (item.kind === "answers") for (const { frame } of pairwise(item.body)) release(item.movie, frame);
    if (item.kind === "edits") settleEdit();
    fetchStatus();
    return;
  }
  for (const pair of reply.pairs) setPair(item.movie, pair);
  if (item.kind === "edits") settleEdit();
  replied.set(item.store, reply.revision);
  if (item.movie !== state.movie.id) return;
  if (reply.masks) takeMasks(reply.revision, reply.masks);
  state.learning = reply.revision > (learned.get(item.movie) ?? -1); // until the server says that it has new questions
  if (item.kind === "answers") {
    if (!isFiltered()) takeQuestions(reply.questions);
    state.annotated = reply.annotated; // counts what is saved
  } else {
    if (reply.changed?.edit) backToMasks(reply.changed);
    else if (reply.changed) backTo(reply.changed);
    Object.assign(state, { annotated: reply.annotated, canUndo: reply.can_undo, canRedo: reply.can_redo, outdated: reply.outdated ?? state.outdated });
    if (reply.questions && !isFiltered()) takeQuestions(reply.questions);
  }
  changed();
}

/** An edit was made, taken back or made again: its frame is to be seen. */
function backToMasks({ frame }) {
  if (frame !== state.frame && frame !== state.frame + 1) browseTo(frame, null);
}

/** News: answers from another page, new weights, new predictions. */
export function listenToServer() {
  const source = new EventSource(withToken("/api/events"));
  const on = (name, take) => source.addEventListener(name, ({ data }) => take(JSON.parse(data)));
  on("changed", ({ movie, revision, page: by }) => {
    if (by === page) return; // it comes with the reply
    setRevision(movie, revision);
    forget(movie);
    if (movie === state.movie.id) refresh();
  });
  on("learned", ({ movie }) => {
    if (movie !== state.movie.id) return;
    forget(movie, [state.frame]); // what is looked at does not wait for its turn
    fetchStatus();
  });
  on("predictions", ({ movie, version, frames }) => {
    forget(movie, frames);
    if (movie === state.movie.id) {
      state.version = version;
      changed();
      refresh(PIECES);
    }
  });
  on("questions", ({ movie, revision }) => {
    learned.set(movie, revision);
    if (movie === state.movie.id) refresh();
  });
  for (const anew of ["events", "began"]) on(anew, ({ movie }) => trackedAnew(movie)); // other kinds of events, other weights
  on("worker", takeWorker);
  on("problem", ({ problem }) => {
    trouble(`Learning failed: ${problem}.`);
    refresh();
  });
  source.onopen = () => {
    forget(state.movie.id); // whatever was told before the page listened, or by a server that was restarted
    refresh();
  };
  source.onerror = () => {
    setTimeout(fetchStatus, 300); // says so if the server is gone
    if (source.readyState === EventSource.CLOSED) setTimeout(listenToServer, RECONNECT); // else the browser connects again by itself
  };
}

/** Nothing that was predicted of a movie holds any longer. */
function trackedAnew(movie) {
  forget(movie);
  if (movie !== state.movie.id) return;
  resetQueue();
  refresh();
}

/** Whether there is a worker that learns; also told with the status, for a page that was opened later. */
function takeWorker({ alive, problem }) {
  trouble(!alive && problem ? `Learning has stopped: ${problem}. Answers are still saved.` : "");
}

function trouble(words) {
  if (state.trouble === words) return;
  state.trouble = words;
  changed();
}

const RECONNECT = 1000; // ms
const TOGETHER = 150; // ms within which news come together
const PIECES = 1000; // for what comes in many pieces: a long movie is predicted anew for seconds after each answer
let refreshing = 0;
let due = Infinity; // when it is asked next

/** Ask for status and questions, once for news that come together. */
function refresh(wait = TOGETHER) {
  const at = performance.now() + wait;
  if (at >= due) return;
  clearTimeout(refreshing);
  due = at;
  refreshing = setTimeout(() => {
    due = Infinity;
    fetchStatus();
    fetchQuestions();
  }, wait);
}

/** Tell the server where the person is, when the page has been still for a moment. */
export function rememberPlace() {
  if (!state.movie) return;
  const place = { frame: state.frame, ...(state.cell?.side === "a" ? { label: state.cell.label } : {}) };
  const key = `${state.movie.id}${JSON.stringify(place)}`;
  if (key === placed) return;
  placed = key;
  const { id } = state.movie;
  setTimeout(() => key === placed && postJson(`/api/movies/${id}/place`, place).catch(() => {}), 800);
}
