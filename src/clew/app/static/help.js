// The list of all keys.

const dialog = document.getElementById("help");
const ORDER = ["Answer", "Look around", "View", "Edit masks", "Page"]; // what is pressed most comes first

/** Fill the list from the table of actions. */
export function makeHelp(actions, keyName) {
  const groups = grouped(Object.values(actions));
  for (const [group, members] of groups) {
    const list = document.createElement("dl");
    list.setAttribute("aria-label", group);
    const rows = new Map(); // actions with the same words share a row
    for (const action of members) {
      const words = action.text.length > 1 ? action.text : action.title; // a sign alone says little
      rows.set(words, [...(rows.get(words) ?? []), ...action.keys]);
    }
    for (const [words, keys] of rows) {
      const term = document.createElement("dt");
      for (const key of keys) term.append(Object.assign(document.createElement("kbd"), { textContent: keyName(key) }));
      list.append(term, Object.assign(document.createElement("dd"), { textContent: words }));
    }
    const title = Object.assign(document.createElement("h3"), { textContent: group });
    const column = document.createElement("section");
    column.append(title, list);
    document.getElementById("keys").append(column);
  }
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}

function grouped(actions) {
  const groups = new Map();
  for (const action of actions) groups.set(action.group, [...(groups.get(action.group) ?? []), action]);
  return [...groups].sort(([one], [other]) => ORDER.indexOf(one) - ORDER.indexOf(other));
}

export function toggleHelp() {
  if (dialog.open) dialog.close();
  else dialog.showModal();
}
