// The six events, in figures and in words.

export const ARITY = { move: [1, 1], divide: [1, 2], appear: [0, 1], disappear: [1, 0], split: [1, 2], merge: [2, 1] };

const both = (cells) => cells.join(" and ");

const ASKED = {
  move: (s, t) => `Is cell ${s[0]} the same cell as ${t[0]}?`,
  divide: (s, t) => `Does cell ${s[0]} divide into ${both(t)}?`,
  appear: (s, t) => `Does cell ${t[0]} appear out of nothing?`,
  disappear: (s) => `Does cell ${s[0]} disappear?`,
  split: (s, t) => `Does ${s[0]} fall apart into ${both(t)}, without a division?`,
  merge: (s, t) => `Do cells ${both(s)} merge into ${t[0]}?`,
};

const SAID = {
  move: (s, t) => `Cell ${s[0]} is the same cell as ${t[0]}`,
  divide: (s, t) => `Cell ${s[0]} divides into ${both(t)}`,
  appear: (s, t) => `Cell ${t[0]} appears out of nothing`,
  disappear: (s) => `Cell ${s[0]} disappears`,
  split: (s, t) => `${s[0]} falls apart into ${both(t)}, without a division`,
  merge: (s, t) => `Cells ${both(s)} merge into ${t[0]}`,
};

export const asQuestion = ({ event, sources, targets }) => ASKED[event](sources, targets);

export const asStatement = ({ event, sources, targets }) => SAID[event](sources, targets);

/** The same for the same event, whatever the order of its cells. */
export const keyOf = ({ frame, event, sources, targets }) =>
  [frame, event, sorted(sources).join("+"), sorted(targets).join("+")].join(":");

export const sorted = (labels) => [...labels].sort((a, b) => a - b);

/** Whether two events of the same pair of frames cannot both happen: each cell has one fate and one history. */
export const exclude = (one, other) =>
  one.sources.some((s) => other.sources.includes(s)) || one.targets.some((t) => other.targets.includes(t));

/** How sure the tracking is of an event, as a name; each name has a colour, a line style and a word of its own. */
export function surenessOf({ pinned, confidence, certainty }) {
  if (pinned) return "pinned";
  if (certainty === undefined || certainty === null) return confidence === null ? "sure" : "unsure";
  return certainty < 0.1 ? "unsure" : certainty < 0.4 ? "fair" : "sure";
}
