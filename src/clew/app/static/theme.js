// Light or dark: as the system says, until the person says otherwise.

const KEPT = "clew-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

const now = () => localStorage.getItem(KEPT) ?? (dark.matches ? "dark" : "light");

export function showTheme() {
  document.documentElement.dataset.theme = now();
}

export function toggleTheme() {
  localStorage.setItem(KEPT, now() === "dark" ? "light" : "dark");
  showTheme();
}

dark.addEventListener("change", showTheme);
showTheme();
