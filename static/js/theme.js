// Loaded before the first paint: the theme someone chose here; without a choice the stylesheet follows the system.
(() => {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.bsTheme = chosen;
  document.documentElement.classList.add("has-js");
})();
