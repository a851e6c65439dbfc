"""Keyboard, colours and themes."""

import pytest

from tests.browser.test_pages import PATHS, waiting_job

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
CONTRAST = """
() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = text;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), rgba("Canvas"));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!says || !element.checkVisibility({ visibilityProperty: true }) || element.closest(".visually-hidden, option, .skip-link")) continue;
    const style = getComputedStyle(element), under = behind(element);
    const [a, b] = [light(over(rgba(style.color), under)), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < least) poor.push(`${element.textContent.trim().slice(0, 40)} (${element.className}): ${ratio.toFixed(2)}`);
  }
  return poor;
}
"""


NAMELESS = """
() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href]")]
  .filter((e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute("aria-label") || e.title))
  .map((e) => e.outerHTML)
"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def test_on_every_page_all_text_can_be_read_in_both_themes_and_every_control_has_a_name(window, admin):
    job = waiting_job(admin)
    w = window(reduced_motion="reduce")  # so that colours change at once

    def look(path):
        backgrounds = []
        for scheme in ("light", "dark"):
            w.page.emulate_media(color_scheme=scheme)
            assert w.page.evaluate(CONTRAST) == [], (path, scheme)
            backgrounds.append(w.page.evaluate(BACKGROUND))
        assert len(set(backgrounds)) == 2, path
        assert w.page.evaluate(NAMELESS) == [], path

    w.open("/login/")
    look("/login/")
    w.sign_in(admin)
    for path in [*PATHS, f"/jobs/{job.id}/", "/no/such/page/"]:
        w.open(path)
        look(path)


def test_the_theme_follows_the_system_until_someone_chooses_and_is_then_remembered(window, admin):
    w = window(color_scheme="dark").sign_in(admin)
    w.open("/")
    dark = w.page.evaluate(BACKGROUND)
    switch = w.page.locator("[data-theme-switch]")
    switch.click()
    light = w.page.evaluate(BACKGROUND)
    assert light != dark
    w.open("/jobs/")
    assert w.page.evaluate(BACKGROUND) == light
    switch.click()
    assert w.page.evaluate(BACKGROUND) == dark
    assert "dark" in switch.get_attribute("aria-label")


def test_the_system_theme_needs_no_script(window, admin):
    plain = {scheme: window(color_scheme=scheme, java_script_enabled=False) for scheme in ("light", "dark")}
    for w in plain.values():
        w.open("/login/")
    assert len({w.page.locator("h1").evaluate("e => getComputedStyle(e).color") for w in plain.values()}) == 2


def test_the_main_menu_is_walked_with_the_keyboard(window, admin):
    w = window().sign_in(admin)
    w.open("/")
    w.page.keyboard.press("Tab")
    assert w.page.evaluate("document.activeElement.textContent") == "Skip to content"
    seen = []
    for _ in range(12):
        w.page.keyboard.press("Tab")
        text, outline = w.page.evaluate(
            "[document.activeElement.textContent.trim(), getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert outline != "none", text
        seen.append(text)
    assert seen[1:5] == ["Submit a job", "Overview", "Jobs", "Fleet"]
    w.page.get_by_role("link", name="Jobs", exact=True).focus()
    w.page.keyboard.press("Enter")
    w.page.wait_for_url(f"{w.address}/jobs/")
    assert w.page.locator("nav a[aria-current=page]").inner_text().strip() == "Jobs"


def test_the_skip_link_leads_past_the_menu(window, admin):
    w = window().sign_in(admin)
    w.open("/")
    w.page.keyboard.press("Tab")
    w.page.keyboard.press("Enter")
    w.page.keyboard.press("Tab")
    assert w.page.evaluate("document.activeElement.closest('main') !== null")


def test_the_menu_of_a_phone_opens_and_closes(window, admin):
    w = window(width=390, height=800).sign_in(admin)
    w.open("/")
    link = w.page.get_by_role("link", name="Fleet", exact=True)
    assert not link.is_visible()
    button = w.page.get_by_role("button", name="Menu")
    button.click()
    assert link.is_visible()
    assert button.get_attribute("aria-expanded") == "true"
    w.page.keyboard.press("Escape")
    assert not link.is_visible()


def test_the_menu_of_a_phone_is_there_without_script(window, admin):
    w = window(width=390, height=800, java_script_enabled=False).sign_in(admin)
    w.open("/")
    assert w.page.get_by_role("link", name="Fleet", exact=True).is_visible()
