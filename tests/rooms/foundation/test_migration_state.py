"""The classes of models while `migrate` runs: few are made again, and all are what a new state has."""

from typing import Any

import django.core.management.commands.migrate as of_django
from django.db import models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ModelState, ProjectState
from django.db.models import CheckConstraint, Index, Q

import foundation.management.commands.migrate  # noqa: F401 - it names our executor
from foundation.migration_state import KINDS, Executor, few_classes_are_made

ID = ("id", models.BigAutoField(primary_key=True))
PLACE = ModelState("tenancy", "Place", [ID, ("size", models.IntegerField())], {"indexes": [], "constraints": []})
VISIT = ModelState("tenancy", "Visit", [ID, ("place", models.ForeignKey("tenancy.Place", models.CASCADE))])
POSITIVE = CheckConstraint(condition=Q(size__gt=0), name="positive")
BY_SIZE = Index(fields=["size"], name="by_size")


def class_of_place(state):
    return state.apps.get_model("tenancy", "place")


def stated():
    state = ProjectState()
    state.add_model(PLACE.clone())
    assert class_of_place(state)
    return state


def test_a_created_model_and_a_constraint_make_no_other_class_again():
    state = stated()
    place = class_of_place(state)
    with few_classes_are_made():
        state.add_model(VISIT.clone())
        state.add_constraint("tenancy", "place", POSITIVE)
        state.add_index("tenancy", "place", BY_SIZE)
    assert class_of_place(state) is place
    assert [found.related_model._meta.model_name for found in place._meta.related_objects] == ["visit"]
    assert (place._meta.constraints, place._meta.indexes) == ([POSITIVE], [BY_SIZE])
    with few_classes_are_made():
        state.remove_constraint("tenancy", "place", "positive")
        state.remove_index("tenancy", "place", "by_size")
    assert (place._meta.constraints, place._meta.indexes) == ([], [])
    state.add_constraint("tenancy", "place", POSITIVE)
    assert class_of_place(state) is not place, "later, Django makes it again"


def test_an_added_field_makes_no_other_class_again_and_both_ends_know_of_it():
    state = stated()
    state.add_model(ModelState("tenancy", "Visit", [ID]))
    place, visit = (state.apps.get_model("tenancy", name) for name in ("place", "visit"))
    assert not place._meta.related_objects
    with few_classes_are_made():
        state.add_field("tenancy", "visit", "place", models.ForeignKey("tenancy.Place", models.CASCADE), True)
        state.add_field("tenancy", "visit", "seen", models.IntegerField(default=7), False)
    assert (class_of_place(state), state.apps.get_model("tenancy", "visit")) == (place, visit)
    assert visit._meta.get_field("place").remote_field.model is place
    assert [found.related_model for found in place._meta.related_objects] == [visit]
    assert not visit._meta.get_field("seen").has_default()


def test_a_state_before_has_the_constraints_that_it_had():
    state = stated()
    before = state.clone()
    with few_classes_are_made():
        state.add_constraint("tenancy", "place", POSITIVE)
    assert before.models["tenancy", "place"].options["constraints"] == []


def described(apps):
    found = {}
    for model in apps.get_models(include_auto_created=True):
        options = model._meta
        named = {entry.name: entry.deconstruct() for entry in (*options.constraints, *options.indexes)}
        fields = {
            field.name: (type(field), field.column, field.null, str(field.remote_field and field.remote_field.model))
            for field in options.local_fields
        }
        referring = {(other.related_model._meta.label, other.field.name) for other in options.related_objects}
        found[options.label] = fields, named, referring
    return found


def test_the_classes_after_all_migrations_are_those_of_a_new_state():
    loader = MigrationLoader(None)
    state = ProjectState(real_apps=loader.unmigrated_apps)
    assert not list(state.apps.get_models())
    plan = {key: None for leaf in loader.graph.leaf_nodes() for key in loader.graph.forwards_plan(leaf)}
    with few_classes_are_made():
        for key in plan:
            state = loader.graph.nodes[key].mutate_state(state, preserve=False)
    assert len(described(state.apps)) > len(plan)
    assert described(state.apps) == described(ProjectState(state.models, state.real_apps).apps)


def test_migrate_uses_it_forwards_alone(monkeypatch):
    usual = {name: getattr(ProjectState, name) for name in KINDS}
    seen = {}

    def note(name):
        return lambda *_: seen.setdefault(name, {kind for kind in KINDS if getattr(ProjectState, kind) != usual[kind]})

    monkeypatch.setattr(MigrationExecutor, "_migrate_all_forwards", note("forwards"))
    monkeypatch.setattr(MigrationExecutor, "_migrate_all_backwards", note("backwards"))
    executor: Any = vars(of_django)["MigrationExecutor"](None)
    executor._migrate_all_forwards()
    executor._migrate_all_backwards()
    assert type(executor) is Executor
    assert seen == {"forwards": set(KINDS), "backwards": set()}
    assert usual == {name: getattr(ProjectState, name) for name in KINDS}
