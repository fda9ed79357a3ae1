// The events, in figures and in words. A gap is a move over a frame in which the cell is missing: it is said by re-linking.

export const ARITY = { move: [1, 1], divide: [1, 2], appear: [0, 1], disappear: [1, 0], split: [1, 2], merge: [2, 1], gap: [1, 1], false_end: [1, 0], false_begin: [0, 1] };

const both = (cells) => cells.join(" and ");

const ASKED = {
  move: "Is this the same cell?",
  divide: "Does this cell divide?",
  appear: "Is this cell new in this frame?",
  disappear: "Does this cell disappear?",
  split: "Does this outline split in two?",
  merge: "Do these two merge into one outline?",
  gap: "Is this the same cell, missing in between?",
  false_end: "Is this outline not a cell?",
  false_begin: "Is this outline not a cell?",
};

const SAID = {
  move: (s, t) => `Cell ${s[0]} is cell ${t[0]} of the next frame`,
  divide: (s, t) => `Cell ${s[0]} divides into ${both(t)}`,
  appear: (s, t) => `Cell ${t[0]} is new: it was not there before`,
  disappear: (s) => `Cell ${s[0]} disappears`,
  split: (s, t) => `Outline ${s[0]} splits into ${both(t)}, without a division`,
  merge: (s, t) => `Cells ${both(s)} merge into ${t[0]}`,
  gap: (s, t) => `Cell ${s[0]} is cell ${t[0]} two frames later`,
  false_end: (s) => `Outline ${s[0]} is not a cell`,
  false_begin: (_, t) => `Outline ${t[0]} is not a cell`,
};

export const asQuestion = ({ event }) => ASKED[event];

const cellsIn = (labels, frame) => labels.length && `cell${labels.length > 1 ? "s" : ""} ${both(labels)} in frame ${frame}`;

/** Which cells an event concerns: "Cell 4 in frame 10 → cells 5 and 6 in frame 11". */
export function whichCells({ frame, sources, targets }) {
  const words = [cellsIn(sources, frame), cellsIn(targets, frame + 1)].filter(Boolean).join(" → ");
  return words[0].toUpperCase() + words.slice(1);
}

export const asStatement = ({ event, sources, targets }) => SAID[event](sources, targets);

/** What was answered: that it happened, or that it did not. */
export const asAnswer = (body) => (body.happened === false ? `It is not so that ${lower(asStatement(body))}` : asStatement(body));

const lower = (words) => words[0].toLowerCase() + words.slice(1);

/** The same for the same event, whatever the order of its cells. */
export const keyOf = ({ frame, event, sources, targets }) =>
  [frame, event, sorted(sources).join("+"), sorted(targets).join("+")].join(":");

export const sorted = (labels) => [...labels].sort((a, b) => a - b);

/** Whether two events of the same pair of frames cannot both happen: each cell has one fate and one history. */
export const exclude = (one, other) =>
  one.sources.some((s) => other.sources.includes(s)) || one.targets.some((t) => other.targets.includes(t));

/** That an outline is not a cell, as an event of a pair of frames: nothing becomes of it, or nothing becomes it. */
export const falseCell = ({ side, label }) => (side === "a" ? { event: "false_end", sources: [label], targets: [] } : { event: "false_begin", sources: [], targets: [label] });

/** An answer as pairs of frames see it: of a gap, that the cell disappears before it and appears after it; of an outline that is not a cell, both. */
export function pairwise(answer) {
  if (answer.happened && answer.event === "false_end") return [answer, { ...answer, ...falseCell({ side: "b", label: answer.sources[0] }), frame: answer.frame - 1 }];
  if (answer.happened && answer.event === "false_begin") return [answer, { ...answer, ...falseCell({ side: "a", label: answer.targets[0] }), frame: answer.frame + 1 }];
  if (answer.event !== "gap") return [answer];
  return [{ ...answer, event: "disappear", targets: [] }, { ...answer, frame: answer.frame + 1, event: "appear", sources: [] }];
}

/** The name of the line style of an event: its class of certainty, which the server decides, or that it was answered. */
export function surenessOf({ pinned, pending, certainty = "unsure" }) {
  if (pinned) return pending ? "pending" : "pinned";
  return certainty;
}

const NOUNS = { move: "move", divide: "division", appear: "appearance", disappear: "disappearance", split: "split", merge: "merger", gap: "gap", false_end: "false detection", false_begin: "false detection" };

/** The words for each code of a reason that the server sends. */
const REASONS = {
  "first-of-kind": (event) => `no ${NOUNS[event]} has been annotated yet`,
  "rare-kind": (event) => `${NOUNS[event]}s are rare`,
  tie: () => "two explanations almost tie",
  "close-call": () => "another explanation is not much worse",
  informative: () => "the answer would teach much",
  "changed-cell": () => "the outline of this cell changed after you answered",
  random: () => "drawn at random",
};
const DOUBTS = ["tie", "close-call"];

/** Why a question is asked, in words. If the model has become sure since, its doubts are no longer a reason. */
export function asReason({ reasons, event }, certainty) {
  const left = certainty === "sure" ? reasons.filter((code) => !DOUBTS.includes(code)) : reasons;
  return left.map((code) => REASONS[code](event)).join("; ") || "the model was unsure before";
}
