from dataclasses import dataclass

import pytest
from django.http import HttpResponse

from foundation import pages
from foundation.pages import Form, show, typed
from foundation.problems import FieldError, Invalid


@dataclass(frozen=True)
class Shown:
    text: str


@pytest.fixture(autouse=True)
def _plain_templates(monkeypatch):
    monkeypatch.setattr(
        pages,
        "render",
        lambda request, name, context, status=200: HttpResponse(f"whole {context['page'].text}", status=status),
    )
    monkeypatch.setattr(pages, "render_to_string", lambda name, context, request: f"part {context['page'].text}")


def poll(rf, **headers):
    return rf.get("/x", headers={"HX-Request": "true", **headers})


def test_a_visit_gets_the_whole_page_and_a_poll_only_its_live_part(rf):
    assert show(rf.get("/x"), "page", Shown("a"), live="part").content == b"whole a"
    assert show(poll(rf), "page", Shown("a"), live="part").content == b"part a"


def test_a_poll_that_knows_the_part_already_is_answered_304(rf):
    first = show(poll(rf), "page", Shown("a"), live="part")
    again = show(poll(rf, **{"HX-PTag": first["HX-PTag"]}), "page", Shown("a"), live="part")
    assert (again.status_code, again.content) == (304, b"")
    by_etag = show(poll(rf, **{"If-None-Match": first["ETag"]}), "page", Shown("a"), live="part")
    assert by_etag.status_code == 304
    changed = show(poll(rf, **{"HX-PTag": first["HX-PTag"]}), "page", Shown("b"), live="part")
    assert changed.content == b"part b"


def test_no_page_is_kept_by_a_shared_cache(rf):
    assert show(rf.get("/x"), "page", Shown("a"))["Cache-Control"] == "no-store"
    assert show(poll(rf), "page", Shown("a"), live="part")["Cache-Control"] == "no-store"
    assert "Cookie" in show(rf.get("/x"), "page", Shown("a"))["Vary"]


def test_each_fault_goes_to_its_control_or_is_told_above_the_form():
    problem = Invalid(
        errors=[
            FieldError("name", "bad", "not a name"),
            FieldError("pod_sets[0].cpu", "bad", "not a quantity"),
            FieldError("labels.x/y", "bad", "not a label"),
            FieldError("topology", "bad", "not a level"),
        ]
    )
    fields = {"name": "name", "pod_sets[0].cpu": "cpu", "labels": "labels"}
    form = Form.refused({"name": "X"}, problem, fields)
    assert form.errors == {"name": ["not a name"], "cpu": ["not a quantity"], "labels": ["labels.x/y: not a label"]}
    assert form.loose == (("topology", "not a level"),)
    assert form.problem == problem.detail
    assert form.values == {"name": "X"}


def test_a_form_whose_faults_are_all_marked_says_so():
    form = Form.refused({}, Invalid.field("name", "bad", "not a name"), {"name": "name"})
    assert form.problem == "Correct the marked fields below."


def test_what_is_typed_comes_without_the_token_and_without_nul(rf):
    assert typed(rf.post("/x", {"csrfmiddlewaretoken": "t", "a": "b\x00c"})) == {"a": "bc"}
