"""The pages of limits: what is borrowed, lent and kept is shown, set and refused there."""

import pytest

from quotas.engine.holds import Borrowing
from quotas.models import QuotaLimit
from quotas.operations import put_limit, take_holds
from tenancy.queries import SYSTEM
from tests.builders import bind, hold_request, make_tenant, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client):
    user = make_user()
    bind(user, "acme", "admin")
    client.force_login(user)

    def call(path="/quotas/", **typed):
        answer = client.post(path, typed, follow=True) if typed else client.get(path)
        return answer.status_code, " ".join(answer.content.decode().split())

    return call


def put(path, gpus, **bounds):
    make_tenant(path)
    return put_limit(SYSTEM, path, "gpu", nominal=gpus * 1000, borrowing=Borrowing(**bounds))[0]


def test_the_tree_shows_what_is_borrowed_lent_and_guaranteed(page):
    put("acme", 8)
    put("acme/a", 4, borrowing_limit=3000)
    put("acme/b", 4, lending_limit=3000)
    take_holds([hold_request("acme/a", {"gpu": 6000})])
    status, text = page()
    assert status == 200
    for words in ("6 GPUs of 4 GPUs", "2 GPUs borrowed", "2 GPUs lent", "1 GPU guaranteed and unused"):
        assert words in text
    assert "over the limit" not in text


def test_the_editor_sets_both_bounds_and_shows_them_again(page):
    put("acme", 8)
    make_tenant("acme/a")
    typed = {"tenant": "acme/a", "resource": "gpu", "nominal": "4", "borrowing_limit": "all", "lending_limit": "1.5"}
    assert "is set" in page("/quotas/set/", **typed)[1]
    limit = QuotaLimit.objects.get(tenant__path="acme/a")
    assert (limit.borrowing_limit, limit.lending_limit) == (None, 1500)
    text = page(f"/quotas/set/?limit={limit.id}")[1]
    assert 'value="all"' in text
    assert 'value="1.5"' in text
    assert not limit.reclaims
    page("/quotas/set/", **typed | {"borrowing_limit": "", "lending_limit": " ", "reclaims": "yes"})
    limit.refresh_from_db()
    assert (limit.borrowing_limit, limit.lending_limit, limit.reclaims) == (0, None, True)
    assert 'value="yes" selected' in page(f"/quotas/set/?limit={limit.id}")[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"borrowing_limit": "<b>"}, 'id="e-borrowing_limit"'),
        ({"lending_limit": "-1"}, "write gpu as a quantity"),
        ({"nominal": "9", "lending_limit": "0"}, "would guarantee 9 of its 8 gpu"),
        ({"nominal": "4", "lending_limit": "0"}, "other tenants hold all but 2"),
    ],
)
def test_the_editor_says_why_a_bound_is_refused(page, changes, words):
    put("acme", 8)
    take_holds([hold_request("acme/b", {"gpu": 6000})])
    make_tenant("acme/a")
    status, text = page("/quotas/set/", **{"tenant": "acme/a", "resource": "gpu", "nominal": "4"} | changes)
    assert status in (409, 422)
    assert words in text
    assert "<b>" not in text
    assert QuotaLimit.objects.count() == 1


def test_the_editor_sets_a_delay_and_says_what_follows(page):
    put("acme", 8)
    make_tenant("acme/a")
    take_holds([hold_request("acme/a", {"gpu": 6000})])
    typed = {"tenant": "acme", "resource": "gpu", "nominal": "4"}
    assert "2 more is held; it falls as jobs end" in page("/quotas/set/", **typed)[1]
    assert "2 GPUs over the limit; falls as jobs end" in page()[1]
    status, text = page("/quotas/set/", **typed, reclaim_after="3600")
    assert "2 more is held; from 20" in text
    assert "2 GPUs over the limit; taken back from" in page()[1]
    limit = QuotaLimit.objects.get()
    assert limit.reclaim_after == 3600
    assert 'value="3600"' in page(f"/quotas/set/?limit={limit.id}")[1]
    for wrong in ("-1", "1.5", "2592001", "9" * 40, "٣", "soon"):
        status, text = page("/quotas/set/", **typed, reclaim_after=wrong)
        assert (status, "seconds from 0 to 2592000, or none" in text) == (422, True), wrong
    page("/quotas/set/", **typed, reclaim_after="")
    limit.refresh_from_db()
    assert (limit.reclaim_after, limit.reclaim_at) == (None, None)
