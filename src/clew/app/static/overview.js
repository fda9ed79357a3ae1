// All movies in a table: about how many events are wrong in each, and what was learned of this one for the others.

import { getJson, postJson } from "./api.js";
import { openMovie } from "./movie.js";
import { delivered } from "./outbox.js";
import { state } from "./state.js";

const dialog = document.getElementById("overview");
const rows = dialog.querySelector("tbody");
const apply = document.getElementById("apply");
const said = document.getElementById("applied"); // what came of it
const AGAIN = 1000; // ms until the table is asked for again, as long as it is open

export function makeOverview() {
  apply.addEventListener("click", applyToOthers);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}

export function toggleOverview() {
  if (dialog.open) return dialog.close();
  apply.textContent = `Begin all others with what was learned of ${state.movie.name}`;
  said.textContent = "";
  dialog.showModal();
  return refresh();
}

async function refresh() {
  while (dialog.open) {
    const movies = await getJson("/api/overview").catch(() => null);
    if (movies) show(movies);
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
  }
}

/** Only what changed is set anew, so that the focus stays where it is. */
function show(movies) {
  dialog.querySelector("table").classList.toggle("no-before", !movies.some((movie) => movie.before)); // a column of nothing
  while (rows.children.length < movies.length) rows.append(row(movies[rows.children.length].id));
  movies.forEach((movie, i) => {
    const [name, ...cells] = rows.children[i].children;
    name.firstChild.textContent = movie.name;
    rows.children[i].ariaCurrent = movie.id === state.movie.id ? "true" : null;
    const words = [movie.annotated, movie.weights ?? "generic", found(movie), movie.before ? interval(movie.before) : ""];
    cells.forEach((cell, k) => cell.textContent === String(words[k]) || (cell.textContent = words[k]));
  });
}

const interval = ({ number, low, high, checked }) => `≈ ${Math.round(number)} (${low}–${high}${checked ? "" : ", a guess"})`;

/** About how many events are wrong, or how far tracking is. */
const found = ({ wrong, tracked, pairs }) => (wrong ? `${interval(wrong)} of ${wrong.events.toLocaleString("en")}` : `tracking, ${tracked} of ${pairs}`);

function row(id) {
  const line = document.createElement("tr");
  const head = Object.assign(document.createElement("th"), { scope: "row" });
  const open = Object.assign(document.createElement("button"), { type: "button" });
  open.addEventListener("click", () => {
    dialog.close();
    document.getElementById("movie").value = id;
    openMovie(id);
  });
  head.append(open);
  line.append(head, ...Array.from({ length: 4 }, () => document.createElement("td")));
  return line;
}

/** The others go on from the weights of this movie; what was answered about them is learned anew from there. */
async function applyToOthers() {
  apply.disabled = true;
  try {
    await delivered();
    said.textContent = "Learning from your last answers …";
    const { applied, problems } = await postJson(`/api/movies/${state.movie.id}/apply`, {});
    const kept = problems.map(({ movie, problem }) => `${state.movies[movie].name} was not changed: ${problem}.`);
    said.textContent = [`${applied} of the others ${applied === 1 ? "is" : "are"} tracked again.`, ...kept].join(" ");
  } catch (error) {
    said.textContent = `Nothing was applied: ${error.message}.`;
  } finally {
    apply.disabled = false;
  }
}
