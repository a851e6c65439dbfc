"""`migrate` renders the model of a new table alone: its relations are there, and no other model is made again."""

from typing import Any

from django.db import models
from django.db.migrations.state import ModelState, ProjectState

from foundation.management.commands.migrate import new_models_alone


def model(name, **fields):
    return ModelState("sample", name, [("id", models.BigAutoField(primary_key=True)), *fields.items()])


def to(name):
    return models.ForeignKey(f"sample.{name}", models.CASCADE)


def state_of(*made):
    state = ProjectState()
    for one in made:
        state.add_model(one)
    return state


def test_a_new_model_is_related_both_ways_and_leaves_the_others_as_they_are():
    state = state_of(model("Tenant"), model("Job", tenant=to("Tenant")))
    tenant, job = state.apps.get_model("sample", "tenant"), state.apps.get_model("sample", "job")
    with new_models_alone():
        state.add_model(model("Attempt", job=to("Job"), after=to("Attempt")))
    attempt = state.apps.get_model("sample", "attempt")
    assert state.apps.get_model("sample", "tenant") is tenant
    assert state.apps.get_model("sample", "job") is job
    assert attempt._meta.get_field("job").remote_field.model is job
    assert attempt._meta.get_field("after").remote_field.model is attempt
    assert [one.related_model for one in job._meta.related_objects] == [attempt]


def test_a_model_that_was_there_is_rendered_again_with_those_that_are_related_to_it():
    state = state_of(model("Tenant"), model("Job", tenant=to("Tenant")))
    job = state.apps.get_model("sample", "job")
    with new_models_alone():
        state.add_field("sample", "tenant", "name", models.TextField(), preserve_default=True)
    again = state.apps.get_model("sample", "job")
    assert again is not job
    assert again._meta.get_field("tenant").remote_field.model is state.apps.get_model("sample", "tenant")


def test_outside_a_migration_django_does_as_it_does():
    states: Any = ProjectState
    before = states._find_reload_model
    with new_models_alone():
        assert states._find_reload_model is not before
    assert states._find_reload_model is before
