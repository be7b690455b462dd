// Light or dark: as the system says, unless the user chose.

import { $, mark, write } from "./dom.js";

const KEPT = "distlock-theme";
const NEXT = { auto: "dark", dark: "light", light: "auto" };

export function setUp() {
  let theme = NEXT[localStorage.getItem(KEPT)] ? localStorage.getItem(KEPT) : "auto";
  const show = () => {
    mark(document.documentElement, "data-theme", theme === "auto" ? null : theme);
    write($("theme-name"), theme);
    mark($("theme"), "aria-label", `Colours: ${theme}. Change`);
  };
  $("theme").addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem(KEPT, theme);
    show();
  });
  show();
}
