// The question at the top: what is asked, and why.

import { hint, isSeen, PAUSE } from "./answering.js";
import { anySkipped, unskip } from "./asking.js";
import { asQuestion, asReason, asStatement, exclude, keyOf, whichCells } from "./events.js";
import { drawArrow, INK } from "./ink.js";
import { isMending } from "./mending.js";
import { pairAt } from "./pairs.js";
import { inkOf } from "./stage.js";
import { state } from "./state.js";
import { isFiltered } from "./steering.js";

const box = document.getElementById("question");
const [heading, reason] = [box.querySelector("h1"), box.querySelector("p")];
const [cells, why] = reason.children; // the cells are seen in the panes, and heard here
const sureness = document.getElementById("sureness");
const hintBox = document.getElementById("hint");

export function showQuestion() {
  const { question } = state;
  const [title, words] = question ? asked(question) : idle();
  setText(heading, title);
  setText(cells, question ? `${whichCells(question)}. ` : "");
  setText(why, words);
  box.dataset.key = question ? keyOf(question) : "";
  reason.classList.toggle("action", !question && state.mode === "questions" && !state.gone && anySkipped());
  showSureness(question);
  showHint();
}

/** Screen readers speak on every change of the text, so the same text is not set twice. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function asked(question) {
  if (!isSeen()) return [asQuestion(question), "Loading the pictures …"];
  if (question.pending) return [`${asStatement(question)}.`, "Your answer is being saved."];
  if (question.pinned) return [`${asStatement(question)}.`, "Your answer overrides the model. To change it, click the correct cell or another button."];
  if (question.reasons) return [asQuestion(question), `Asked because: ${reasonNow(question)}.`];
  const denied = pairAt(question.frame)?.denied.filter((event) => exclude(event, question)) ?? [];
  const said = denied.map((event) => ` You ruled out: ${asStatement(event).toLowerCase()}.`).join("");
  return [asQuestion(question), `This is the prediction.${said}`];
}

/** Why it is asked; the model may be surer by now than when the question was chosen. */
function reasonNow(question) {
  const { frame } = question;
  const now = pairAt(frame)?.events.find((one) => keyOf({ frame, ...one }) === keyOf(question));
  return asReason(question, now?.certainty);
}

function idle() {
  if (state.opening?.detection) return ["Are these the cells?", "This movie has no masks. Change the diameter (in pixels) and the sensitivity until the outlines fit. Cells that are not bright and roundish need another method: clew detect --method."];
  if (!state.movie && !state.gone) return ["Opening the movie …", state.opening?.doing ?? ""];
  if (isMending()) return ["Edit the outlines.", "Edits are stored beside the movie. Its own mask files do not change."];
  if (state.mode === "browse") return ["Click a cell to say what happens to it.", `Frame ${state.frame} → ${state.frame + 1}`];
  if (state.gone) return ["Waiting for clew …", "Questions continue when it answers again."];
  if (isFiltered()) return ["No more questions match your filter.", "Change the filter to continue."];
  if (anySkipped()) return ["No other questions.", "Ask the skipped questions again."];
  return ["Choosing a question …", "You can browse meanwhile: any cell can be annotated."];
}

reason.addEventListener("click", () => reason.classList.contains("action") && unskip());

/** The line style of the question's arrow with its meaning in words. */
function showSureness(question) {
  sureness.hidden = !question;
  if (!question) return;
  const known = pairAt(question.frame)?.events.find((event) => keyOf({ frame: question.frame, ...event }) === keyOf(question));
  if (known) question.certainty = known.certainty; // a proposed event that is not predicted has none
  const ink = INK[inkOf(question)];
  drawSample(sureness.querySelector("canvas"), ink);
  sureness.querySelector("span").textContent = ink.word;
}

/** A short arrow on a dark plate, as on the images. */
export function drawSample(canvas, ink) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  drawArrow(context, [8, height / 2], [width - 6, height / 2], ink, { bend: 0, head: 11 });
}

function showHint() {
  const words = hint();
  hintBox.hidden = !words;
  setText(hintBox.querySelector("span"), words);
  hintBox.classList.toggle("loose", Boolean(state.draft?.loose));
  hintBox.style.setProperty("--pause", `${PAUSE}ms`);
}
