"""Reserving nodes by hand: the form, the list, the reservation's page, and the job that runs in it."""

from datetime import timedelta

import pytest
from playwright.sync_api import expect

from federation.models import Reservation
from foundation.clock import now
from tests.browser.test_pages import reserve
from tests.builders import actor_for, make_spec, submit

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def local(minutes):
    """What a date and time control holds."""
    return f"{now() + timedelta(minutes=minutes):%Y-%m-%dT%H:%M}"


def test_nodes_are_reserved_shortened_and_given_back(window, admin):
    w = window().sign_in(admin)
    w.open("/")
    page = w.page
    page.get_by_role("link", name="Reservations", exact=True).click()
    page.get_by_role("link", name="Reserve nodes").click()
    page.get_by_label("Name").fill("eval-week")
    page.get_by_label("Tenant").select_option("acme/research")
    page.get_by_label("From (UTC)").fill(local(60))
    page.get_by_label("Until (UTC)").fill(local(240))
    page.get_by_label("GPU models").fill("H100-80GB")
    page.get_by_role("button", name="Reserve").click()
    page.get_by_role("status").get_by_text("eval-week is reserved on north.", exact=True).wait_for()
    row = Reservation.objects.get()
    expect(page.get_by_role("table", name="Nodes").get_by_text(row.reserved_nodes.get().node)).to_be_visible()
    page.get_by_label("New end (UTC)").fill(local(400))
    page.get_by_role("button", name="Shorten").click()
    expect(page.locator("#e-ends_at")).to_contain_text("a reservation can only be shortened")
    page.get_by_label("New end (UTC)").fill(local(120))
    page.get_by_role("button", name="Shorten").click()
    expect(page.get_by_text("Requested end")).to_be_visible()
    page.get_by_text("Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the reservation").click()
    expect(page.locator(".state").first).to_have_text("cancelled")
    page.get_by_role("link", name="Reservations", exact=True).first.click()
    expect(page.get_by_text("No reservations")).to_be_visible()


def test_what_cannot_be_reserved_is_told_beside_the_form(window, admin):
    reserve(admin)
    w = window().sign_in(admin)
    w.open("/reservations/new/")
    page = w.page
    page.get_by_label("Name").fill("ÜBER")
    page.get_by_label("Until (UTC)").fill(local(-5))
    page.get_by_role("button", name="Reserve").click()
    expect(page.locator("#e-name")).to_be_visible()
    expect(page.locator("#e-ends_at")).to_be_visible()
    page.get_by_label("Name").fill("second")
    page.get_by_label("Until (UTC)").fill(local(60))
    page.get_by_role("button", name="Reserve").click()
    expect(page.get_by_role("alert")).to_contain_text("No cluster has enough free nodes in that period.")
    expect(page.get_by_role("alert")).to_contain_text("reservation eval of acme holds 1 node")


def test_a_job_shows_its_reservation(window, admin):
    reserved = reserve(admin)
    spec = make_spec(deadline_seconds=600, constraints={"reservation": "eval"})
    job = submit(actor_for(admin), {"tenant": "acme/research", **spec})
    w = window().sign_in(admin)
    w.open(f"/jobs/{job.id}/")
    w.page.get_by_role("link", name="eval", exact=True).click()
    w.page.wait_for_url(f"**/reservations/{reserved}/")


def test_the_form_submits_into_a_reservation(window, admin):
    reserved = reserve(admin)
    w = window().sign_in(admin)
    w.open("/jobs/new/?tenant=acme/research")
    w.page.get_by_label("Name").fill("inside")
    w.page.get_by_label("Image").fill("registry.example/train:1")
    w.page.get_by_label("Reservation", exact=True).fill("eval")
    w.page.get_by_label("Deadline, minutes").fill("10")
    w.page.get_by_role("button", name="Submit the job").click()
    w.page.get_by_role("link", name="eval", exact=True).click()
    w.page.wait_for_url(f"**/reservations/{reserved}/")
