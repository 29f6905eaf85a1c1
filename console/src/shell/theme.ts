/** Dark or light: as the system has it, or as the person has chosen. */
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];
const STORAGE_NAME = "holodeck.theme";

const stored = localStorage.getItem(STORAGE_NAME);
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

effect(() => {
  const root = document.documentElement;
  if (theme.value === "system") {
    delete root.dataset["theme"];
    localStorage.removeItem(STORAGE_NAME);
  } else {
    root.dataset["theme"] = theme.value;
    localStorage.setItem(STORAGE_NAME, theme.value);
  }
});
