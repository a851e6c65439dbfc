"""Images that nodes of a cluster should have, as its administrators use the page."""

import pytest

from clusters.models import Cluster
from federation.models import Prepull, PrepullPolicy
from foundation.clock import now
from tests.browser.reading import fits
from tests.builders import bind, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
IMAGE = "registry.example/a-team/with-a-long-name/train@sha256:" + "ab" * 32


def test_images_are_named_seen_retried_and_forgotten(window, admin):
    cluster = Cluster.objects.get(name="north")
    w = window().sign_in(admin)
    w.open(f"/clusters/{cluster.id}/")
    w.page.get_by_role("link", name="Images").click()
    w.page.get_by_text("No images are pulled ahead").wait_for()
    w.page.get_by_label("Name").fill("base")
    w.page.get_by_role("textbox", name="Images").fill("localhost/x:1")
    w.page.get_by_role("button", name="Pull ahead").click()
    w.page.locator("#e-images").wait_for()
    fits(w, w.page.get_by_role("button", name="Pull ahead"))
    w.page.get_by_role("textbox", name="Images").fill(IMAGE)
    w.page.get_by_role("button", name="Pull ahead").click()
    w.page.get_by_role("status").filter(has_text="Nodes pull the images of base").wait_for()
    policy = PrepullPolicy.objects.get()
    node = cluster.nodes.order_by("name").first()
    told = "ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image"
    Prepull.objects.create(
        policy=policy,
        cluster=cluster,
        image=IMAGE,
        node=node.name,
        outcome="failed",
        failures=6,
        ended_at=now(),
        message=told,
    )
    w.open(f"/clusters/{cluster.id}/images/")
    w.page.get_by_text("Stopped after 6 failures").wait_for()
    acts = ("Retry base", "Pause base")
    fits(w, w.page.get_by_text("Remove base"), *(w.page.get_by_role("button", name=name) for name in acts))
    w.page.get_by_role("button", name="Retry base").click()
    w.page.get_by_role("status").filter(has_text="pulls again").wait_for()
    w.page.get_by_role("button", name="Pause base").click()
    w.page.get_by_text("The policy is paused.").wait_for()
    w.page.get_by_role("button", name="Resume base").click()
    w.page.get_by_role("button", name="Pause base").wait_for()
    w.page.get_by_text("Remove base").click()
    fits(w, w.page.get_by_role("button", name="Remove policy"))
    w.page.get_by_role("button", name="Remove policy").click()
    w.page.get_by_role("status").filter(has_text="base is removed").wait_for()
    w.page.get_by_text("No images are pulled ahead").wait_for()


def test_who_may_not_manage_the_cluster_sees_no_form(window, admin):
    cluster = Cluster.objects.get(name="north")
    PrepullPolicy.objects.create(cluster=cluster, tenant=cluster.owner, name="base", images=[IMAGE], created_by="ada")
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    w = window().sign_in(viewer)
    w.open(f"/clusters/{cluster.id}/images/")
    w.page.get_by_text(IMAGE).first.wait_for()
    assert w.page.get_by_role("button", name="Pull ahead").count() == 0
    assert w.page.get_by_role("button", name="Pause").count() == 0
