// Apply the theme that the reader chose, light or dark, or that of the system; this browser stores it. Runs before the first
// paint. The dark colours are one rule of the style sheet: a choice changes when it applies.
(() => {
  const KEY = "suanpan-theme";
  const SYSTEM = "screen and (prefers-color-scheme: dark)";
  const APPLIES = { system: SYSTEM, dark: "screen", light: "not all" };
  const sheet = document.querySelector("link[data-themed]").sheet;
  const dark = [...sheet.cssRules].find((rule) => rule.media?.mediaText === SYSTEM);

  const apply = (theme) => {
    dark.media.mediaText = APPLIES[theme];
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new Event("themechange"));
  };
  const remembered = () => {
    const theme = localStorage.getItem(KEY);
    return theme in APPLIES ? theme : "system";
  };

  apply(remembered());
  addEventListener("storage", (event) => { if (event.key === KEY) apply(remembered()); });
  document.addEventListener("DOMContentLoaded", () => {
    const choice = document.querySelector("[data-theme-choice]");
    if (choice) choice.value = remembered();
  });
  document.addEventListener("change", (event) => {
    if (!event.target.matches("[data-theme-choice]")) return;
    localStorage.setItem(KEY, event.target.value);
    apply(event.target.value);
  });
})();
