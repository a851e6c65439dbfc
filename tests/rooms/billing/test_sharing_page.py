"""The page of sharing policies: what is set is shown, and a preview is what the report says once it is set."""

import pytest

from billing.models import SharingPolicy
from tenancy.models import AuditEntry
from tests.builders import make_tenant

from .ledgers import priced_cluster
from .test_idle import close, offered, policy, used

pytestmark = pytest.mark.django_db
PAGE = "/idle/policies/"
WANTED = {
    "organisation": "acme", "effective_from": "2026-10", "idle": "proportional", "platform": "fixed", "platform_cost": "90",
    "platform_currency": "usd", "platform_weights": "acme/one 2\r\nacme/two 1\r\n",
}  # fmt: skip


@pytest.fixture
def north():
    cluster = priced_cluster()
    offered(cluster)
    used(cluster, one=4, two=2)
    return cluster


def cells(text):
    """The preview's rows: tenant, as it is, by this policy, difference."""
    part = text.split('id="preview"', 1)[1].split("</section>", 1)[0].replace("&nbsp;", " ").replace("\xa0", " ")
    rows = [row.split("</tr>")[0] for row in part.split("<tbody>")[1].split("<tr>")[1:]]
    return [[cell.split(">", 1)[1].split("</td>")[0].split(" USD")[0] for cell in row.split("<td")[2:]] for row in rows]


def test_a_preview_writes_nothing_and_is_what_the_report_says_afterwards(north, as_):
    client = as_()
    shown = client.post(PAGE, {**WANTED, "what": "preview"})
    assert (shown.status_code, SharingPolicy.objects.count()) == (200, 0)
    previewed = cells(shown.content.decode())
    assert len(previewed) == 2
    assert not AuditEntry.objects.filter(action="sharing_policy.set").exists()
    assert client.post(PAGE, {**WANTED, "what": "set"}).status_code == 302
    row = SharingPolicy.objects.get()
    assert (row.idle, row.platform, row.platform_cost, row.platform_currency) == ("proportional", "fixed", 90, "USD")
    assert sorted(row.platform_weights.values()) == [1, 2]
    assert AuditEntry.objects.filter(action="sharing_policy.set").count() == 1
    report = client.get("/idle/?month=2026-10&organisation=acme").content.decode().replace("\xa0", " ")
    for _, after, _ in previewed:
        assert f"{after} USD" in report
    # Once it is set, the same policy changes nothing.
    again = cells(client.post(PAGE, {**WANTED, "what": "preview"}).content.decode())
    assert [(before, change) for before, _, change in again] == [(after, "0.00") for _, after, _ in previewed]
    page = client.get(PAGE).content.decode()
    for words in ("October 2026", "By fixed weights", "acme/one", "90.00"):
        assert words in page


def test_a_preview_of_a_closed_month_is_possible_and_setting_it_is_not(north, as_):
    policy()
    assert close()
    client = as_()
    assert "Preview of October 2026" in client.post(PAGE, {**WANTED, "what": "preview"}).content.decode()
    refused = client.post(PAGE, {**WANTED, "what": "set"})
    assert (refused.status_code, SharingPolicy.objects.count()) == (409, 1)
    assert "closed or closing" in refused.content.decode()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"effective_from": "soon"}, "choose a month"),
        ({"effective_from": ""}, "choose a month"),
        ({"idle": "mine"}, "choose one"),
        ({"platform": ""}, "choose one"),
        ({"platform_cost": "-1"}, "up to 6 decimals"),
        ({"platform_cost": "1e30"}, "up to 6 decimals"),
        ({"platform_cost": "NaN"}, "up to 6 decimals"),
        ({"platform_currency": "XAU"}, "three letters such as USD"),
        ({"platform_weights": "acme/one"}, "one tenant and its weight"),
        ({"platform_weights": "acme/one 0"}, "one tenant and its weight"),
        ({"platform_weights": "acme/one 1\nacme/one 2"}, "one tenant and its weight"),
        ({"platform_weights": "acme/one 9999999999999"}, "one tenant and its weight"),
        ({"platform_weights": ""}, "give them exactly if the platform is fixed"),
        ({"platform_weights": "other/team 1"}, "there is no tenant other/team here"),
    ],
)
def test_a_mistake_is_named_at_its_field(as_, changes, words):
    for path in ("acme/one", "acme/two", "other/team"):
        make_tenant(path)
    client = as_()
    for what in ("preview", "set"):
        refused = client.post(PAGE, {**WANTED, **changes, "what": what})
        assert (refused.status_code, SharingPolicy.objects.count()) == (422, 0)
        assert words in refused.content.decode()


def test_others_see_no_form_and_change_nothing(north, as_):
    client = as_("viewer")
    assert 'value="set"' not in client.get(PAGE).content.decode()
    for what in ("preview", "set"):
        assert client.post(PAGE, {**WANTED, "what": what}).status_code == 403
    team = as_("finance", "acme/one")
    assert "October" not in team.get(PAGE).content.decode()
    assert team.post(PAGE, {**WANTED, "what": "set"}).status_code in {403, 404}
    assert team.post(PAGE, {**WANTED, "organisation": "nowhere\x00", "what": "preview"}).status_code == 404
    assert team.get(f"{PAGE}?organisation=%00").status_code == 200
    assert SharingPolicy.objects.count() == 0


@pytest.mark.parametrize("month", ["0001-01", "1969-12", "9999-12", "2026-13", "2026-10\x00", " 2026-10 "])
def test_months_of_long_ago_and_far_away_break_nothing(as_, month):
    make_tenant("acme/one")
    make_tenant("acme/two")
    client = as_()
    for what in ("preview", "set", "", "other"):
        assert client.post(PAGE, {**WANTED, "effective_from": month, "what": what}).status_code in {200, 302, 422}
    assert client.get(PAGE).status_code == 200
    assert client.get("/idle/?month=2026-10").status_code == 200
