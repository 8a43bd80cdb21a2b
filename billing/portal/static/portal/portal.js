// The month picker goes where it points without a second click. Without JavaScript its button does the same.
document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-submit-on-change]");
  if (form) form.requestSubmit();
});
document.documentElement.classList.add("js");
// On a narrow screen the menu is a strip: show where one is.
document.querySelector(".menu [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
