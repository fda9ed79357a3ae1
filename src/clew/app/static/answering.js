// From keys and clicks to an answer. An answer that needs more cells than are named so far is a draft until they are clicked.

import { answeredQuestion, isRead, reselect } from "./asking.js";
import { ARITY, asStatement, falseCell, sorted } from "./events.js";
import { linkHint } from "./linking.js";
import { send } from "./outbox.js";
import { frameAt } from "./frames.js";
import { corrects, pairAt, pinHere } from "./pairs.js";
import { changed, state } from "./state.js";

export const PAUSE = 900; // ms after the click on one target until it counts as a move; a second click makes it a division
let timer = 0;

/** Whether the pictures of the question are there: nobody is to answer what they cannot see. */
export const isSeen = () => Boolean(state.question && state.framed && frameAt(state.frame) && frameAt(state.frame + 1) && pairAt(state.frame));

/** Yes: what is proposed, or what the draft says so far. */
export function confirm() {
  if (state.draft?.loose) answer(state.draft);
  else if (state.question && !state.draft && !state.question.pinned) answer(state.question);
}

export function deny() {
  if (state.question && !state.draft) answer(state.question, false);
}

export function cancel() {
  clearTimeout(timer);
  state.draft = null;
  reselect();
  changed();
}

/** "It divides", "it appears", …: at once if the cells are clear from the question, else the missing ones are to be clicked. */
export function say(event) {
  if (!state.question) return;
  clearTimeout(timer);
  const [nSources, nTargets] = ARITY[event];
  const { sources, targets } = { ...state.question, ...(state.draft?.among && { sources: state.draft.among, targets: state.draft.targets }) };
  state.draft = { event, loose: false, sources: kept(sources, nSources), targets: kept(targets, nTargets) };
  finishIfComplete();
}

/** "Not a cell": at once if one cell is in question, else a click says which. */
export function sayFalse(cell) {
  const { sources, targets } = state.question;
  if (sources.length + targets.length === 1) return answer(falseCell(cell));
  state.draft = { event: "false_end", loose: false, sources: [], targets: [] };
  return changed();
}

/** The cells of the question, unless there are more than the event has: then it is not clear which of them. */
const kept = (labels, most) => (labels.length <= most ? [...labels] : []);

/** A click on a cell, or its number: the cell belongs to the answer. Returns false if a click there means nothing. */
export function pick(side, label) {
  if (!isRead()) return true;
  const names = side === "a" ? "sources" : "targets";
  const draft = state.draft;
  if (draft?.event === "false_end") {
    answer(falseCell({ side, label }));
    return true;
  }
  if (draft && !draft.loose) {
    if (draft[names].includes(label)) draft[names] = draft[names].filter((other) => other !== label);
    else if (missing(draft)[side === "a" ? 0 : 1] > 0) draft[names].push(label);
    finishIfComplete();
    return true;
  }
  if (draft) return pickMore(draft, side, names, label);
  return state.question ? pickFirst(state.question, side, label) : false;
}

/** What a question is about: the fate of a cell of the left frame ("a"), or the history of one of the right frame ("b"). */
export function about() {
  if (state.mode === "browse" && state.cell) return state.cell.side;
  return state.question.sources.length ? "a" : "b";
}

/** The first click: where the cell went, or where it came from. */
function pickFirst(question, side, label) {
  if (side === about()) return false;
  const here = state.mode === "browse" && side === "a" ? [state.cell.label] : question.targets;
  const draft = side === "b" ? { sources: question.sources, targets: [label] } : { sources: [label], targets: here };
  if (draft.sources.length === 2) {
    // two cells cannot both move there: one of them did, and it is to be clicked
    state.draft = { event: "move", loose: false, sources: [], targets: [label], among: draft.sources };
    changed();
    return true;
  }
  state.draft = { event: "move", loose: true, ...draft };
  waitForMore();
  return true;
}

/** A second click: on the same cell it says "that is all", on another one it makes a division (or a merge). */
function pickMore(draft, side, names, label) {
  if (side === about()) return false;
  const event = draft[names].includes(label) ? draft.event : side === "a" ? "merge" : "divide";
  answer({ ...draft, event, [names]: [...new Set([...draft[names], label])] });
  return true;
}

function waitForMore() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const { draft, hover } = state;
    const thinking = hover && hover.label && ![...draft.sources, ...draft.targets].includes(hover.label);
    if (thinking) waitForMore(); // the pointer is on another cell: perhaps the other daughter
    else answer(draft);
  }, PAUSE);
  changed();
}

function finishIfComplete() {
  const [sources, targets] = missing(state.draft);
  if (!sources && !targets) answer(state.draft);
  else changed();
}

/** How many sources and targets a draft still lacks. */
export function missing({ event, sources, targets }) {
  return [ARITY[event][0] - sources.length, ARITY[event][1] - targets.length];
}

/** What the person is to do next, in words. */
export function hint() {
  const { draft, frame } = state;
  if (!draft) return linkHint();
  if (draft.event === "false_end") return "Click the outline that is not a cell.";
  if (draft.among) return `Which of ${draft.among.join(" and ")} moves to ${draft.targets[0]}? Click it. If both do, press M.`;
  if (draft.loose) return `${asStatement(draft)}. If it ${about() === "a" ? "divides, click the other daughter" : "merges, click the other cell"}.`;
  const part = (lacking, all, t) => lacking && `${lacking === 2 ? "two cells" : all === 2 ? "the other cell" : "the cell"} in frame ${t}`;
  const [sources, targets] = missing(draft);
  const [allSources, allTargets] = ARITY[draft.event];
  const parts = [part(sources, allSources, frame), part(targets, allTargets, frame + 1)].filter(Boolean);
  return `It ${WORDS[draft.event]}: click ${parts.join(" and ")}.`;
}

const WORDS = { divide: "divides", split: "splits", merge: "merges", appear: "appears", disappear: "disappears", move: "moves" };

const cellsOf = ({ event, sources, targets }) => ({ event, sources, targets });

/** Keep an answer about the frames that are shown, or from another frame on. */
export function answer({ event, sources, targets }, happened = true, frame = state.frame) {
  clearTimeout(timer);
  const body = { frame, event, sources: sorted(sources), targets: sorted(targets), happened };
  body.replace = corrects(body);
  if (state.mode === "questions" && frame === state.question?.frame) body.asked = cellsOf(state.question);
  const shown = [frameAt(frame), frameAt(frame + 1)];
  if (shown.every(Boolean)) body.masks = shown.map(({ version }) => version); // an answer is about the outlines that were seen
  state.draft = null;
  send("answers", body);
  pinHere(body);
  Object.assign(state, { canUndo: true, canRedo: false });
  if (state.mode === "questions") answeredQuestion();
  else reselect();
  changed();
}

/** Send a refused answer again, now in place of what it contradicts; or drop it. */
export function settleRefused(entry, replace) {
  state.refused = state.refused.filter((other) => other !== entry);
  if (replace) {
    const { key: _, ...body } = entry.item.body;
    send("answers", { ...body, replace: true });
  }
  changed();
}
