// Submit the month picker on a change, without a second click. Without JavaScript its button does the same.
document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-submit-on-change]");
  if (form) form.requestSubmit();
});
// Reload the page once an operation has finished, unless a form has input; then the operation's link reloads it.
const isTyped = (field) => {
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.type === "file") return field.files.length > 0;
  if (field.options) return field.selectedIndex !== Math.max(0, [...field.options].findIndex((one) => one.defaultSelected));
  return "defaultValue" in field && field.value !== field.defaultValue;
};
document.addEventListener("operation-finished", () => {
  if (![...document.forms].some((form) => [...form.elements].some(isTyped))) location.reload();
});
// Scroll a menu that does not fit to the current page. `scrollIntoView` would also move the start of the first Tab past the
// skip link.
const side = document.querySelector(".side");
const menu = document.querySelector(".side-menu");
const showCurrent = () => {
  const current = menu?.querySelector("[aria-current]");
  if (!current) return;
  for (const box of [menu, side]) {
    box.scrollTop += Math.max(0, current.getBoundingClientRect().bottom - box.getBoundingClientRect().bottom);
  }
};
showCurrent();
// Open the menu of a narrow screen by its button, over the page, so that nothing moves. Without JavaScript it is open.
const menuButton = document.querySelector(".menu-button");
const menuIsOpen = () => menuButton?.getAttribute("aria-expanded") === "true";
const openMenu = (open) => {
  menuButton.setAttribute("aria-expanded", String(open));
  if (open) showCurrent();
};
menuButton?.addEventListener("click", () => openMenu(!menuIsOpen()));
for (const left of ["focusin", "pointerdown"]) {
  document.addEventListener(left, (event) => { if (menuIsOpen() && !side.contains(event.target)) openMenu(false); });
}
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !menuIsOpen()) return;
  openMenu(false);
  menuButton.focus();
});
// Ctrl-K (Cmd-K) and the button "Search" open the search over everything. Arrows walk through the hits, Enter opens the
// first; a text without a hit is submitted to the page that searches documents.
const palette = document.querySelector("dialog.palette");
if (palette) {
  const words = palette.querySelector("input[type=search]");
  const found = palette.querySelector("#found");
  const links = () => [...found.querySelectorAll("a")];
  const isCurrent = () => found.firstElementChild.dataset.for === words.value.trim();
  let goes = false;
  const go = () => (links().length ? links()[0].click() : words.form.submit());
  const open = () => {
    if (!palette.open) palette.showModal();
    words.focus();
    words.select();
  };
  document.querySelector(".search-button").addEventListener("click", open);
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    open();
  });
  palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
  words.addEventListener("input", () => { goes = false; });
  words.form.addEventListener("submit", (event) => {
    event.preventDefault();
    goes = !isCurrent();
    if (!goes) go();
  });
  palette.addEventListener("htmx:afterSwap", () => { if (goes && isCurrent()) go(); });
  palette.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const stops = [words, ...links()];
    if (!step) return;
    event.preventDefault();
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length].focus();
  });
}
// Print in light colours and unfold folded parts without a form. Charts are drawn again after this, in these colours.
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("on-paper");
  document.querySelectorAll("details:not([open])").forEach((part) => {
    if (part.querySelector("form")) return;
    part.open = true;
    part.dataset.folded = "";
  });
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("on-paper");
  document.querySelectorAll("details[data-folded]").forEach((part) => {
    part.open = false;
    delete part.dataset.folded;
  });
});
// Add an emptied copy of the last row to a table of inputs. Without JavaScript there are blank rows, and more after saving.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-add-row]");
  if (!button) return;
  const body = button.closest("section").querySelector("table.inputs tbody");
  const row = body.rows[body.rows.length - 1].cloneNode(true);
  row.classList.remove("bad");
  row.querySelectorAll(".wrong").forEach((text) => text.remove());
  row.querySelectorAll("input, select").forEach((field) => {
    if (field.tagName === "INPUT") field.value = "";
    field.removeAttribute("aria-invalid");
    field.setAttribute("aria-label", field.getAttribute("aria-label").replace(/\d+$/, String(body.rows.length + 1)));
  });
  body.append(row);
  row.querySelector("input").focus();
});
// Copy the text that a button names; if the browser has no clipboard (plain HTTP), select the text instead.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copies]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copies);
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = button.dataset.copied;
  } catch {
    getSelection().selectAllChildren(text);
  }
});
