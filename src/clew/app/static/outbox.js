// Answers on their way to the server. Each is kept in the browser until the server has confirmed it: none is ever lost.

import { author, getJson, page, postJson, Refused, saveFile } from "./api.js";
import { changed, state } from "./state.js";

const KEPT = "clew-outbox/"; // with the answer's own key behind: pages that are open side by side keep out of each other's way
const AGAIN = 1000; // ms until the next try when the server is gone

const items = []; // {kind: "answers" | "edits" | "undo" | "redo", movie, store, name, time, body: {key, …}}
const revisions = new Map(); // movie → the revision that the next request builds on
let hear = () => {};
let busy = false;
let idle = [];

/** Call `listener(item, reply)` for each confirmed request; take up those that an earlier page left behind.

An answer goes to the store of annotations that it was given for, which no other movie has, however alike they look. */
export function openOutbox(listener) {
  hear = listener;
  const left = Object.keys(localStorage).filter((name) => name.startsWith(KEPT)).map((name) => JSON.parse(localStorage.getItem(name)));
  for (const item of left.sort((a, b) => a.time - b.time)) {
    const movie = state.movies.find((one) => one.store === item.store);
    if (movie) items.push({ ...item, movie: movie.id });
    else if (item.kind === "answers" || item.kind === "edits") state.stranded.push(item);
    else localStorage.removeItem(KEPT + item.body.key); // to undo what is not here
  }
  flush();
}

/** Answers that could not be sent, or belong to a movie that is not open here, as a table that can be imported there. */
export function saveUnsent() {
  const unsent = [...items, ...state.stranded].filter(({ kind }) => kind === "answers");
  const row = ({ frame, event, sources, targets, happened }) => [frame, event, sources.join(" "), targets.join(" "), happened ? "yes" : "no"].join(",");
  const text = ["frame,event,sources,targets,happened", ...unsent.map(({ body }) => row(body))].join("\n");
  saveFile({ name: `${unsent[0].name.replace(/[^\w.-]+/g, "_")}.unsent.csv`, blob: new Blob([`${text}\n`], { type: "text/csv" }) });
}

/** Forget answers that belong to a movie that is not open here. */
export function dropStranded() {
  for (const { body } of state.stranded.splice(0)) localStorage.removeItem(KEPT + body.key);
  changed();
}

export function setRevision(movie, revision) {
  revisions.set(movie, Math.max(revision, revisions.get(movie) ?? 0));
}

/** Send a request as soon as those before it are through. */
export function send(kind, body = {}) {
  const { id, store, name } = state.movie;
  const item = { kind, movie: id, store, name, time: Date.now(), body: { key: newKey(), ...author(), ...body } };
  localStorage.setItem(KEPT + item.body.key, JSON.stringify(item));
  items.push(item);
  flush();
}

export const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Resolves when nothing is on its way. */
export const delivered = () => (items.length ? new Promise((resolve) => idle.push(resolve)) : Promise.resolve());

/** The answers of a movie that the server does not have yet. */
export const undelivered = (movie) => items.filter((item) => item.kind === "answers" && item.movie === movie);

/** Whether an edit of masks is on its way: the next one is made of what comes of it. */
export const isEditing = (movie) => items.some((item) => item.kind === "edits" && item.movie === movie);

async function flush() {
  state.waiting = items.length;
  changed();
  if (busy) return;
  busy = true;
  while (items.length) {
    try {
      await deliver(items[0]);
      state.gone = "";
    } catch (error) {
      state.gone = whyGone(error);
      setTimeout(flush, AGAIN);
      break;
    }
  }
  busy = false;
  changed();
  if (!items.length) idle.splice(0).forEach((resolve) => resolve());
}

/** One request; returns when it is settled, throws when it must be tried again later. */
async function deliver(item) {
  const path = `/api/movies/${item.movie}`;
  let revision = revisions.get(item.movie);
  try {
    revision ??= (await getJson(`${path}/status?page=${page}`)).revision;
    setRevision(item.movie, revision);
    const reply = await postJson(`${path}/${item.kind}`, { ...item.body, revision });
    settle(item, reply.revision);
    hear(item, reply);
  } catch (error) {
    if (!(error instanceof Refused) || error.status === 403 || error.status >= 500) throw error;
    const now = error.body?.kind === "stale" ? (await getJson(`${path}/status`)).revision : null;
    if ((item.kind === "answers" || item.kind === "edits") && now !== null && now !== revision) {
      // Someone else was faster: the same answer again, on top of theirs. What was sent counts, for a newer revision may
      // have been heard of meanwhile.
      revisions.set(item.movie, now);
    } else {
      settle(item, revisions.get(item.movie));
      state.refused.push({ item, why: error.message, replaceable: error.body?.kind === "contradiction" });
      hear(item, null);
    }
  }
}

function settle(item, revision) {
  items.splice(items.indexOf(item), 1);
  localStorage.removeItem(KEPT + item.body.key);
  revisions.set(item.movie, revision);
  state.waiting = items.length;
}

/** What to tell the person when the server cannot be reached. */
export function whyGone(error) {
  if (!(error instanceof Refused)) return "clew does not answer. You can continue: answers are kept in this browser and sent when it is back.";
  if (error.body?.kind === "opening") return "clew is opening the movie. Your answers are kept here and sent when it is ready.";
  if (error.status === 403) return "clew was restarted with another token. Open the address that it printed; your answers wait in this browser.";
  return `clew has a problem: ${error.message}. Your answers are kept here and sent again.`;
}
