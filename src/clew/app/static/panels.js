// What surrounds the images: progress, notices, the legend, and the sliders of the view.

import { settleRefused } from "./answering.js";
import { asStatement } from "./events.js";
import { drawCurve, percent } from "./curve.js";
import { INK } from "./ink.js";
import { changed, state } from "./state.js";
import { drawSample } from "./words.js";

const find = (id) => document.getElementById(id);
let drawn = null; // the curve that is shown

export function showProgress() {
  find("annotated").textContent = state.annotated;
  find("learning").textContent = state.learning ? "learning" : "";
  find("saved").textContent = state.waiting ? "saving …" : state.annotated ? "all answers saved" : "";
  const last = state.curve.at(-1);
  find("error").textContent = last ? percent(last.error) : "–";
  find("error").title = last ? `${percent(last.error)} ± ${percent(last.se)} after ${last.answers} answers` : "Known after a few answers";
  if (drawn === state.curve) return;
  drawn = state.curve;
  drawCurve(find("curve"), state.curve);
}

export function showNotices() {
  const banner = find("banner");
  const words = state.gone ? state.gone + (state.waiting ? ` ${state.waiting} waiting.` : "") : state.trouble;
  banner.hidden = !words;
  if (banner.textContent !== words) banner.textContent = words;
  const [entry] = state.refused;
  const box = find("refused");
  box.hidden = !entry;
  if (!entry || box.entry === entry) return;
  box.entry = entry;
  box.replaceChildren(text("p", inWords(entry)), ...choices(entry));
}

const inWords = ({ item, why }) =>
  item.kind === "answers" ? `“${asStatement(item.body)}” was not taken: ${why}.` : `${item.kind} was not done: ${why}.`;

function choices(entry) {
  const drop = button("Leave it", () => settleRefused(entry, false));
  return entry.replaceable ? [button("Replace the earlier answer", () => settleRefused(entry, true)), drop] : [drop];
}

const text = (tag, words) => Object.assign(document.createElement(tag), { textContent: words });

function button(words, run) {
  const element = Object.assign(text("button", words), { type: "button" });
  element.addEventListener("click", run);
  return element;
}

export function makeLegend() {
  for (const name of ["sure", "fair", "unsure", "pinned"]) {
    const canvas = Object.assign(document.createElement("canvas"), { width: 88, height: 22 });
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
