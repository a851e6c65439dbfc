"""Keyboard, colours and themes."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.reading import BACKGROUND, look

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_on_pages_that_anyone_can_meet_all_text_can_be_read_in_both_themes_and_every_control_has_a_name(window, admin):
    """`test_pages.py` has all others."""
    w = window(reduced_motion="reduce")
    w.open("/login/")
    look(w, "/login/")
    w.sign_in(admin)
    w.open("/no/such/page/")
    look(w, "/no/such/page/")


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
    expect(w.page).to_have_url(re.compile("#"))
    w.page.keyboard.press("Tab")
    assert w.page.evaluate("document.activeElement.closest('main') !== null")


def test_the_menu_of_a_phone_opens_and_closes(window, admin):
    w = window(width=390, height=800).sign_in(admin)
    w.open("/")
    link = w.page.get_by_role("link", name="Fleet", exact=True)
    assert not link.is_visible()
    button = w.page.get_by_role("button", name="Menu")
    button.click()
    expect(link).to_be_visible()
    expect(button).to_have_attribute("aria-expanded", "true")
    w.page.keyboard.press("Escape")
    expect(link).to_be_hidden()


def test_the_menu_of_a_phone_is_there_without_script(window, admin):
    w = window(width=390, height=800, java_script_enabled=False).sign_in(admin)
    w.open("/")
    assert w.page.get_by_role("link", name="Fleet", exact=True).is_visible()
