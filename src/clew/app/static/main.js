// Puts the page together: what is shown follows `state`, and every change of it ends up here.

import { ACTIONS } from "./actions.js";
import { reselect } from "./asking.js";
import { makeExports } from "./exports.js";
import { makeHelp } from "./help.js";
import { keyName, listenToKeys, makeButtons, showButtons } from "./keys.js";
import { listenToServer, openMovie, rememberPlace, takeReply } from "./movie.js";
import { showTools } from "./mending.js";
import { makeOpening, openedMovies, showOpening } from "./opening.js";
import { openOutbox, whyGone } from "./outbox.js";
import { showSections } from "./sections.js";
import { makeLegend, makeSliders, showNotices, showProgress, showSliders } from "./panels.js";
import { makeOverview } from "./overview.js";
import { listenToPointer } from "./pointer.js";
import { redraw, watchSize } from "./stage.js";
import { changed, onChange, state } from "./state.js";
import { makeSteering, showDoubts, showSteering } from "./steering.js";
import { listenToTime, showTime } from "./timeline.js";
import { showTree } from "./tree.js";
import { showQuestion } from "./words.js";

const switcher = document.getElementById("movie");

function render() {
  reselect();
  showQuestion();
  showButtons();
  showTools();
  showTime();
  showProgress();
  showNotices();
  showDoubts();
  showSteering();
  showSliders();
  showSections();
  showOpening();
  if (state.movie) showTree();
  redraw();
  rememberPlace();
}

function makeSwitcher() {
  for (const movie of state.movies) switcher.append(new Option(movie.name, movie.id));
  switcher.parentElement.hidden = false;
  switcher.disabled = state.movies.length < 2;
  document.querySelector("[data-action=overview]").hidden = state.movies.length < 2;
  switcher.addEventListener("change", () => openMovie(Number(switcher.value)));
}

async function start() {
  makeButtons();
  makeHelp(ACTIONS, keyName);
  makeExports();
  makeLegend();
  makeOverview();
  makeSteering();
  makeSliders();
  makeOpening();
  listenToKeys();
  listenToTime();
  listenToPointer(document.querySelector("canvas.overlay"));
  watchSize();
  onChange(render);
  changed();
  try {
    state.movies = await openedMovies();
  } catch (error) {
    state.gone = whyGone(error);
    changed();
    setTimeout(() => location.reload(), 3000);
    return;
  }
  makeSwitcher();
  const last = state.movies.find((movie) => movie.name === localStorage.getItem("clew-movie")) ?? state.movies[0];
  switcher.value = last.id;
  await openMovie(last.id);
  openOutbox(takeReply);
  listenToServer();
}

start();
