// Progressive extras: the theme switch, the menu on phones, times in the reader's zone, live regions. No page needs them.
(() => {
  "use strict";
  const THEMES = ["system", "light", "dark"];
  const root = document.documentElement;

  // ── theme ────────────────────────────────────────────────────────────────────────────────────────────────
  const showTheme = (theme) => {
    if (theme === "system") {
      delete root.dataset.bsTheme;
      localStorage.removeItem("theme");
    } else {
      root.dataset.bsTheme = theme;
      localStorage.setItem("theme", theme);
    }
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      button.hidden = false;
      button.setAttribute("aria-label", `Colour theme: ${theme}. Change it.`);
      button.title = `Theme: ${theme}`;
      for (const icon of button.querySelectorAll("[data-theme-icon]")) icon.toggleAttribute("hidden", icon.dataset.themeIcon !== theme);
    }
  };
  let theme = localStorage.getItem("theme") ?? "system";
  if (!THEMES.includes(theme)) theme = "system";
  showTheme(theme);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-switch]")) return;
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    showTheme(theme);
  });

  // ── menu on narrow screens ───────────────────────────────────────────────────────────────────────────────
  const menuButton = document.querySelector("[data-menu-button]");
  if (menuButton) {
    const menu = document.getElementById(menuButton.getAttribute("aria-controls"));
    const open = (yes) => {
      menu.classList.toggle("is-open", yes);
      menuButton.setAttribute("aria-expanded", String(yes));
    };
    menuButton.hidden = false;
    menuButton.addEventListener("click", () => open(menuButton.getAttribute("aria-expanded") !== "true"));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && menuButton.getAttribute("aria-expanded") === "true") {
        open(false);
        menuButton.focus();
      }
    });
  }

  // ── a question before a change closes on Escape, which gives the focus back, and when someone turns elsewhere ──
  const closeQuestions = (but) => {
    for (const question of document.querySelectorAll("details.confirm[open]")) if (!question.contains(but)) question.open = false;
  };
  document.addEventListener("click", (event) => closeQuestions(event.target));
  document.addEventListener("keydown", (event) => {
    const question = event.key === "Escape" && document.activeElement.closest("details.confirm[open]");
    if (question) question.querySelector("summary").focus();
    if (event.key === "Escape") closeQuestions(null);
  });

  // ── times: the reader's zone, UTC on hover (the server writes UTC text and a title) ──────────────────────
  const sameYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const otherYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const precise = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const minute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
  const ago = (at) => {
    const seconds = Math.round((at - Date.now()) / 1000);
    const size = Math.abs(seconds);
    if (size < 60) return relative.format(seconds, "second");
    if (size < 3600) return relative.format(Math.round(seconds / 60), "minute");
    if (size < 86400) return relative.format(Math.round(seconds / 3600), "hour");
    return relative.format(Math.round(seconds / 86400), "day");
  };
  const localise = (within) => {
    for (const element of within.querySelectorAll("time[data-show]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const local = at.getFullYear() === new Date().getFullYear() ? sameYear : otherYear;
      const today = at.toDateString() === new Date().toDateString();
      const shown = { relative: () => ago(at), precise: () => precise.format(at), clock: () => (today ? minute : local).format(at) };
      const text = shown[element.dataset.show]?.() ?? local.format(at);
      if (element.textContent !== text) element.textContent = text;
    }
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    for (const element of within.querySelectorAll("[data-zone-name]")) element.textContent = zone;
    for (const element of within.querySelectorAll("[data-zone-hint]")) element.hidden = zone === "UTC";
  };
  localise(document);
  setInterval(() => localise(document), 15000);

  // ── live regions: ask only while someone looks; never replace what holds the focus ───────────────────────
  let pausedUntil = 0;
  document.addEventListener("htmx:before:request", (event) => {
    const region = event.target.closest?.("[data-live]");
    if (!region) return;
    const typing = region.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    if (document.hidden || typing || Date.now() < pausedUntil) event.preventDefault();
  });
  document.addEventListener("htmx:after:swap", () => localise(document));

  // ── a poll without an answer, or one that is refused, is said at once and no longer than it lasts ────────
  // After a refusal the polls pause: for as long as the server asks, else twice as long each time.
  const connection = document.querySelector("[data-connection]");
  const FIRST_PAUSE_MS = 5_000;
  const LONGEST_PAUSE_MS = 60_000;
  let refusals = 0;
  const isLive = (event) => event.target.closest?.("[data-live]") && connection;
  const say = (trouble) => {
    connection.hidden = !trouble;
    for (const text of connection.querySelectorAll("[data-trouble]")) text.hidden = text.dataset.trouble !== trouble;
  };
  const pauseAfter = (response) => {
    const asked = Number(response.headers.get("Retry-After")) * 1000;
    const own = FIRST_PAUSE_MS * 2 ** refusals * (0.75 + Math.random() / 2);
    refusals += 1;
    pausedUntil = Date.now() + Math.min(asked > 0 ? Math.max(asked, own) : own, LONGEST_PAUSE_MS);
  };
  document.addEventListener("htmx:error", (event) => { if (isLive(event)) say("lost"); });
  document.addEventListener("htmx:after:request", (event) => {
    if (!isLive(event)) return;
    const response = event.detail.ctx.response;
    if (response.status >= 400) {
      pauseAfter(response);
      say("refused");
    } else {
      refusals = pausedUntil = 0;
      say("");
    }
  });
  window.addEventListener("offline", () => { if (connection && document.querySelector("[data-live]")) say("lost"); });

  // ── small comforts ───────────────────────────────────────────────────────────────────────────────────────
  for (const control of document.querySelectorAll("[data-submit-on-change]")) {
    control.addEventListener("change", () => control.form.requestSubmit());
  }
  const offerCopies = () => {
    if (!navigator.clipboard) return;
    for (const button of document.querySelectorAll("[data-copy][hidden]")) button.hidden = false;
  };
  offerCopies();
  document.addEventListener("htmx:after:swap", offerCopies);
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent.trim());
    button.querySelector("[data-copy-label]").textContent = "Copied";
  });
  // A one-time link's secret stands behind the #, which no server is sent; from there it goes into the form, and out of sight.
  const secret = document.querySelector("[data-from-fragment]");
  if (secret && location.hash.length > 1) {
    secret.value = location.hash.slice(1);
    history.replaceState(null, "", location.pathname);
    secret.form.requestSubmit();
  }
  for (const link of document.querySelectorAll("[data-scroll-end]")) link.scrollTop = link.scrollHeight;
})();
