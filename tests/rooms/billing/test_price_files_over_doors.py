"""Price book files over HTTP, on the page and at the operators' command line: the same plan everywhere."""

import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from billing.models import Price
from foundation.clock import database_now
from foundation.plain_json import instant
from tests.builders import bearer, bind, make_user

from .ledgers import SEPTEMBER, priced_cluster

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/price-book"


@pytest.fixture
def finance():
    user = make_user()
    bind(user, "acme", "finance")
    return user


@pytest.fixture
def text():
    """The file of a cluster with one price, and another price that is announced."""
    priced_cluster()
    later = instant(database_now() + timedelta(days=40))
    one = "{cluster: north, flavor: h100, capacity_type: on_demand, currency: USD, "
    return (
        "apiVersion: switchyard/v1\nkind: PriceBook\nprices:\n"
        f'  - {one}from: "{instant(SEPTEMBER)}", unit_price: 2.5}}\n  - {one}from: "{later}", unit_price: 3}}\n'
    )


def post(client, user, path, **body):
    return client.post(f"{ADDRESS}/{path}", json.dumps(body), content_type="application/json", headers=bearer(user))


def test_plan_apply_and_export_over_http(client, finance, text):
    planned = post(client, finance, "plan", file=text).json()
    [change] = planned["changes"]
    assert (planned["can_apply"], change["action"], change["line"], change["column"]) == (True, "create", 5, 5)
    assert (change["before"], change["after"]["unit_price"], planned["effects"]) == (None, "3", [])
    other = post(client, finance, "apply", file=text, expect="0" * 64)
    assert (other.status_code, other.json()["code"]) == (409, "prices_changed")
    applied = post(client, finance, "apply", file=text, expect=planned["hash"])
    assert (applied.status_code, applied.json()) == (200, planned)
    assert post(client, finance, "apply", file=text).json()["changes"] == []

    exported = client.get(ADDRESS, {"cluster": "north"}, headers=bearer(finance)).json()["file"]
    assert post(client, finance, "plan", file=exported, prune=True).json()["changes"] == []
    assert client.get(ADDRESS, {"cluster": "none"}, headers=bearer(finance)).status_code == 404


def test_a_wrong_file_is_422_with_each_place_and_a_refused_one_409(client, finance, text):
    for path in ("plan", "apply"):
        wrong = post(client, finance, path, file=text.replace("2.5", "NaN").replace("unit_price: 3", "price: 3"))
        assert wrong.status_code == 422
        told = {error["field"]: error["detail"] for error in wrong.json()["errors"]}
        assert set(told) == {"prices[0].unit_price", "prices[1].price", "prices[1].unit_price"}
        assert all(detail.startswith(("line 4, column ", "line 5, column ")) for detail in told.values())
    refused = post(client, finance, "apply", file=text.replace("h100", "none"))
    assert (refused.status_code, refused.json()["code"]) == (409, "plan_refused")
    assert post(client, finance, "plan", file=text, prune="yes").status_code == 422
    assert post(client, make_user(), "plan", file=text).status_code == 422
    bind(viewer := make_user(), "acme", "viewer")
    assert post(client, viewer, "plan", file=text).status_code == 403
    assert Price.objects.count() == 1


def test_the_page_shows_a_plan_and_applies_only_that(client, finance, text):
    client.force_login(finance)
    first = client.get("/prices/file/").content.decode()
    assert "flavor: h100" in first
    assert "As a file" in client.get("/prices/").content.decode()
    planned = client.post("/prices/file/", {"file": text, "unnamed": "keep", "what": "plan"}).content.decode()
    expect = planned.partition('name="expect" value="')[2].partition('"')[0]
    assert "Apply 1 change<" in planned
    assert Price.objects.count() == 1
    for wrong in ({}, {"expect": ""}, {"expect": expect, "file": text.replace(": 3}", ": 4}")}):
        answer = client.post("/prices/file/", {"file": text, "unnamed": "keep", "what": "apply"} | wrong)
        assert answer.status_code == 409
    done = client.post("/prices/file/", {"file": text, "unnamed": "keep", "what": "apply", "expect": expect})
    assert (done.status_code, done["Location"], Price.objects.count()) == (302, "/prices/", 2)
    again = client.post("/prices/file/", {"file": text, "what": "plan"}).content.decode()
    assert "The prices are what the file says" in again
    wrong = client.post("/prices/file/", {"file": "prices: <script>", "what": "plan"})
    assert wrong.status_code == 422
    assert "<script>" not in wrong.content.decode().partition('id="file"')[2].partition("</form>")[0]

    bind(viewer := make_user(), "acme", "viewer")
    client.force_login(viewer)
    assert client.get("/prices/file/").status_code == 403


def test_the_command_is_the_api(client, finance, text, tmp_path, capsys):
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    call_command("prices", "plan", str(file), "--json")
    planned = json.loads(capsys.readouterr().out)
    assert planned == post(client, finance, "plan", file=text).json()
    call_command("prices", "apply", str(file), "--expect", planned["hash"])
    assert "+ create north h100 on_demand from" in capsys.readouterr().out
    call_command("prices", "export")
    exported = capsys.readouterr().out
    assert exported == client.get(ADDRESS, headers=bearer(finance)).json()["file"]
    file.write_text(exported)
    call_command("prices", "plan", str(file), "--prune")
    assert capsys.readouterr().out.startswith("0 changes; plan ")
    file.write_text(text.replace("h100", "none"))
    with pytest.raises(CommandError, match="2 of 2 changes would be refused"):
        call_command("prices", "plan", str(file))
    assert "line 4, column 5: unknown_flavor" in capsys.readouterr().out
    for wrong, told in (("prices: [", "this is not YAML"), (text.replace("2.5", "x"), "line 4, column")):
        file.write_text(wrong)
        with pytest.raises(CommandError, match=told):
            call_command("prices", "apply", str(file))
    with pytest.raises(CommandError, match="No such file"):
        call_command("prices", "apply", str(tmp_path / "none"))
