// What is known of each two consecutive frames: cells, predicted events, annotated ones. Old news are shown until new ones come.

import { getJson } from "./api.js";
import { exclude, keyOf, pairwise } from "./events.js";
import { changed, isNear, state } from "./state.js";

const kept = new Map(); // "movie/frame" → {pair, stale, loading}

const entry = (t) => {
  const key = `${state.movie.id}/${t}`;
  if (!kept.has(key)) kept.set(key, { pair: null, stale: true, loading: false });
  return kept.get(key);
};

/** The pair from frame t to t + 1 as far as it is here; it is fetched if it is missing or stale. */
export function pairAt(t) {
  if (!state.movie || t < 0 || t >= state.movie.n_frames - 1) return null;
  const one = entry(t);
  if (one.stale && !one.loading) load(one, state.movie.id, t);
  return one.pair;
}

async function load(one, movie, t) {
  Object.assign(one, { loading: true, stale: false });
  try {
    const pair = await getJson(`/api/movies/${movie}/pair/${t}`);
    if (!one.held) one.pair = pair; // an answer given meanwhile is newer
    if (isNear(t)) changed();
  } catch {
    one.stale = true;
  } finally {
    one.loading = false;
  }
}

/** Whether the pair is here, and as new as the server's. */
export function isFresh(t) {
  const one = kept.get(`${state.movie.id}/${t}`);
  return Boolean(one?.pair && !one.stale && !one.loading);
}

/** Take a pair that came with another reply. */
export function setPair(movie, pair) {
  kept.set(`${movie}/${pair.frame}`, { pair, stale: false, loading: false });
  changed();
}

/** An answer shown here was refused: fetch what holds instead. */
export function release(movie, t) {
  kept.delete(`${movie}/${t}`);
  changed();
}

/** Predictions changed: of some frames, or of all. */
export function forget(movie, frames = "all") {
  for (const [key, one] of kept) {
    const [m, t] = key.split("/").map(Number);
    if (m === movie && (frames === "all" || frames.includes(t))) one.stale = true;
  }
  if (frames === "all" || frames.some(isNear)) changed(); // others are fetched when they are looked at
}

/** An answer is on its way: show it as such until the server has it, and drop the predictions that it rules out. */
export function pinHere(answer) {
  for (const part of pairwise(answer)) pinPart(part);
}

function pinPart(answer) {
  const one = entry(answer.frame);
  if (!one.pair) return;
  const { event, sources, targets } = answer;
  const same = (other) => keyOf({ frame: answer.frame, ...other }) === keyOf(answer);
  const pair = { ...one.pair };
  if (answer.happened) {
    pair.events = pair.events.filter((other) => !exclude(answer, other));
    pair.events.push({ event, sources, targets, confidence: null, certainty: "sure", pinned: true, pending: true });
    pair.denied = pair.denied.filter((other) => !same(other));
  } else {
    pair.events = pair.events.filter((other) => !same(other));
    pair.denied = [...pair.denied, { event, sources, targets }];
  }
  Object.assign(one, { pair, held: true });
}

/** The event that is now the fate of a cell of the left frame ("a"), or the history of one of the right frame ("b"). */
export function eventOf(pair, side, label) {
  return pair?.events.find((event) => (side === "a" ? event.sources : event.targets).includes(label)) ?? null;
}

/** Whether an answer says what happened to a cell in question, or that the event did not happen. */
export function isAnswered(question) {
  const { pair } = entry(question.frame);
  const same = (event) => keyOf({ frame: question.frame, ...event }) === keyOf(question);
  return Boolean(pair && (pair.events.some((event) => event.pinned && exclude(event, question)) || pair.denied.some(same)));
}

/** Whether an answer corrects one that was given before. */
export const corrects = (answer) => pairwise(answer).some(correctsPart);

function correctsPart(answer) {
  const pair = entry(answer.frame).pair;
  if (!pair) return false;
  const same = (other) => keyOf({ frame: answer.frame, ...other }) === keyOf(answer);
  if (!answer.happened) return pair.events.some((other) => other.pinned && same(other));
  return pair.events.some((other) => other.pinned && exclude(answer, other)) || pair.denied.some(same);
}
