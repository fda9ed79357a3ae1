// Cells of a 3D movie in xy, xz and yz, in a corner of each pane: a projection may hide them.

import { getBlob } from "./api.js";
import { pairAt } from "./pairs.js";
import { changed, state } from "./state.js";

const figures = [...document.querySelectorAll("#stage .sections")];
const wanted = figures.map(() => "");

/** Show the cells in question, and what is known of their slices. */
export function showSections() {
  const shown = state.movie?.ndim === 3 && state.loop === null ? (state.draft ?? state.question) : null;
  figures.forEach((figure, i) => {
    const [label] = shown ? [shown.sources, shown.targets][i] : [];
    const z = label === undefined ? undefined : sliceOf(i, label);
    figure.querySelector("figcaption").textContent = z === undefined ? "" : `cell ${label}, slice ${z}: xy, xz, yz`;
    show(figure, i, label);
  });
}

async function show(figure, i, label) {
  const t = state.frame + i;
  const address = label === undefined ? "" : `/api/movies/${state.movie.id}/sections/${t}.png?cell=${label}&v=${state.maskRevisions[t] ?? 0}`;
  if (wanted[i] === address) return;
  wanted[i] = address;
  figure.hidden = true;
  if (!address) return;
  const blob = await getBlob(address).catch(() => null); // masks were edited meanwhile: it is asked for again
  if (wanted[i] !== address) return;
  if (!blob) {
    wanted[i] = "";
    return;
  }
  const image = figure.querySelector("img");
  URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(blob);
  figure.hidden = false;
}

/** The slice in the middle of a cell. */
function sliceOf(i, label) {
  const cells = pairAt(state.frame)?.[i ? "b" : "a"] ?? [];
  const z = cells.find(({ id }) => id === label)?.z;
  return z === undefined ? undefined : Math.max(0, Math.min(state.movie.shape[0] - 1, Math.round(z)));
}

/** Show the slice of the cell in question in both panes, or all slices again. */
export function toggleSlice() {
  const shown = state.draft ?? state.question;
  const slice = shown?.sources.length ? sliceOf(0, shown.sources[0]) : sliceOf(1, shown?.targets[0]);
  state.slice = state.slice === slice || slice === undefined ? null : slice;
  changed();
}
