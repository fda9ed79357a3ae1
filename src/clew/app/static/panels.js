// What surrounds the images: progress, notices, the legend, and the sliders of the view.

import { settleRefused } from "./answering.js";
import { browseTo } from "./asking.js";
import { asAnswer } from "./events.js";
import { INK } from "./ink.js";
import { dropStranded, saveUnsent } from "./outbox.js";
import { drawCurve } from "./curve.js";
import { fetchStatus } from "./movie.js";
import { changed, state, tell } from "./state.js";
import { drawSample } from "./words.js";

const find = (id) => document.getElementById(id);

export function showProgress() {
  find("annotated").textContent = state.annotated;
  find("learning").textContent = state.learning && !state.gone ? "learning" : ""; // nobody knows what clew does while it is gone
  find("saved").textContent = state.waiting ? (state.gone ? "kept in this browser" : "saving …") : state.annotated ? "all answers saved" : "";
  showEstimate();
  showTracking();
  const asked = state.outdated ? `${count(state.outdated, "answer is", "answers are")} about cells that changed later, and will be asked again.` : "";
  const aside = state.setAside ? `${count(state.setAside, "edit belongs", "edits belong")} to other masks and ${state.setAside === 1 ? "is" : "are"} not applied.` : "";
  find("outdated").hidden = !asked && !aside;
  find("outdated").textContent = [asked, aside].filter(Boolean).join(" ");
}

const HOW = "Estimated from the probability of each event, and from how often your answers showed that a prediction was wrong.";

/** About how many events are wrong now, how sure that is, and what it takes to have fewer. */
function showEstimate() {
  const { wrong, target } = state;
  find("wrong").textContent = wrong ? `≈ ${Math.round(wrong.number)}` : "–";
  find("wrong-of").textContent = wrong ? `wrong (${wrong.low}–${wrong.high}) of ${wrong.events.toLocaleString("en")}${wrong.checked ? "" : ", a guess"}` : "errors: known when all is tracked";
  find("wrong").title = !wrong ? "" : wrong.checked ? `90 % interval: ${wrong.low} to ${wrong.high}. ${HOW}` : `A guess from other movies, until you have answered about 25 questions. ${HOW}`;
  find("until").parentElement.hidden = !wrong;
  const enough = wrong && wrong.number < target;
  find("until").textContent = !wrong ? "" : enough ? "likely now." : `after about ${count(wrong.until, "more answer", "more answers")}.`;
  drawCurve(find("curve"), state.curve);
}

/** How far the first tracking of the movie is. */
function showTracking() {
  const { tracked, pairs } = state;
  find("tracking").hidden = tracked >= pairs;
  find("tracking").querySelector("progress").value = pairs ? tracked / pairs : 0;
  find("tracking").querySelector("span").textContent = `Tracking: ${tracked} of ${pairs} frame pairs`;
}

const count = (n, one, many) => `${n} ${n === 1 ? one : many}`;

/** What is wrong, above everything; what is being done, or was refused, between the pictures and the answers. */
export function showNotices() {
  const { gone, waiting, stranded, trouble, notice } = state;
  const [words, buttons] = gone
    ? [gone + (waiting ? ` ${waiting} waiting.` : ""), waiting ? [["Save them to a file", saveUnsent]] : []]
    : stranded.length
      ? [`${count(stranded.length, "answer or edit belongs", "answers or edits belong")} to ${stranded[0].name}, which is not open here, and never sent.`, [["Save to a file", saveUnsent], ["Drop", dropStranded]]]
      : [trouble, []];
  fill(find("banner"), words, words, buttons);
  const [entry] = state.refused;
  fill(find("refused"), entry ?? notice, entry ? inWords(entry) : notice, entry ? choices(entry) : [["Close", () => tell("")]]);
}

/** Show words with buttons behind them, unless they are there already; `what` is what they are about. */
function fill(box, what, words, buttons) {
  box.hidden = !words;
  if (box.what === what) return;
  box.what = what;
  box.replaceChildren(text("span", words), ...buttons.map(([name, run]) => button(name, run)));
}

const inWords = ({ item, why }) =>
  item.kind === "edits" ? `The masks were not changed: ${why}.` : item.kind === "answers" ? `“${asAnswer(item.body)}” was not taken: ${why}.` : `${item.kind} was not done: ${why}.`;

function choices(entry) {
  const { body, kind } = entry.item;
  const drop = ["Leave it", () => settleRefused(entry, false)];
  if (kind !== "answers") return [drop];
  const cell = body.sources.length ? { side: "a", label: body.sources[0] } : { side: "b", label: body.targets[0] };
  const show = ["Show me", () => { browseTo(body.frame, cell); state.framed = false; }];
  return entry.replaceable ? [["Replace the earlier answer", () => settleRefused(entry, true)], show, drop] : [show, drop];
}

const text = (tag, words) => Object.assign(document.createElement(tag), { textContent: words });

function button(words, run) {
  const element = Object.assign(text("button", words), { type: "button" });
  element.addEventListener("click", run);
  return element;
}

export function makeLegend() {
  for (const name of ["sure", "fair", "unsure", "pinned"]) {
    const canvas = Object.assign(document.createElement("canvas"), { width: 52, height: 22 });
    canvas.setAttribute("aria-hidden", "true"); // the word beside it says the same
    drawSample(canvas, INK[name]);
    const row = document.createElement("div");
    row.append(canvas, text("span", INK[name].word));
    find("legend").append(row);
  }
}

export function makeSliders() {
  for (const name of ["black", "white", "masks"]) {
    find(name).addEventListener("input", ({ target }) => {
      state[name] = target.valueAsNumber;
      if (name === "black") state.white = Math.max(state.white, state.black + 0.05);
      if (name === "white") state.black = Math.min(state.black, state.white - 0.05);
      changed();
    });
  }
  find("target").value = state.target;
  find("target").addEventListener("change", ({ target }) => {
    state.target = Math.max(1, Math.round(target.valueAsNumber) || 10);
    target.value = state.target;
    localStorage.setItem("clew-target", state.target);
    fetchStatus();
  });
  find("slice").addEventListener("input", ({ target }) => {
    state.slice = target.valueAsNumber < 0 ? null : target.valueAsNumber;
    changed();
  });
}

export function showSliders() {
  for (const name of ["black", "white", "masks"]) find(name).valueAsNumber = state[name];
  const solid = state.movie?.ndim === 3;
  find("depth").hidden = !solid;
  if (!solid) return;
  find("slice").max = state.movie.shape[0] - 1;
  find("slice").valueAsNumber = state.slice ?? -1;
  find("slice-name").textContent = state.slice ?? "all";
}
