// The month picker goes where it points without a second click. Without JavaScript its button does the same.
document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-submit-on-change]");
  if (form) form.requestSubmit();
});
// A menu that does not fit shows where one is. `scrollIntoView` would also move the place where the first Tab starts, past the
// skip link.
const current = document.querySelector(".menu [aria-current]");
if (current) {
  for (const box of [current.closest("nav"), current.closest(".side")]) {
    const [link, frame] = [current.getBoundingClientRect(), box.getBoundingClientRect()];
    box.scrollLeft += Math.max(0, link.right - frame.right);
    box.scrollTop += Math.max(0, link.bottom - frame.bottom);
  }
}
// Paper is light, and what is folded away on the screen is on it. Charts are drawn again after this, in these colours.
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
// A table of inputs grows by a copy of its last row, emptied. Without JavaScript there are blank rows, and more after saving.
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
