"""What Django keeps of all models while it migrates, at a third of its cost: most of the time that a new database takes.

For each created model, field and constraint, Django makes again the classes of all models that foreign keys connect with it. None
of them changes another class: a created model is made as when a process starts, after those that it refers to, and is referred to by none
yet; a field is added to its class as Django itself adds those of a new class; a constraint is one entry of its model's options.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.state import ModelState, ProjectState

KINDS = ("add_model", "add_field", "add_index", "remove_index", "add_constraint", "remove_constraint")
"""What is done here, of Django's changes of a state."""


class Executor(MigrationExecutor):
    """Migrates forwards with these changes. Backwards, Django keeps one state for each migration, and they would share classes."""

    def _migrate_all_forwards(self, *args: Any, **options: Any) -> ProjectState:
        with few_classes_are_made():
            state: ProjectState = super()._migrate_all_forwards(*args, **options)  # type: ignore[misc]
            return state


def add_model(state: ProjectState, model_state: ModelState) -> None:
    """Makes this class alone."""
    apps = _without_classes(state)
    _OF_DJANGO["add_model"](state, model_state)
    if apps is not None:
        state.apps = apps
        apps.render_multiple([model_state])


def add_field(state: ProjectState, app_label: str, model_name: str, name: str, *given: Any) -> None:
    """Adds it to the class of its model."""
    apps = _without_classes(state)
    _OF_DJANGO["add_field"](state, app_label, model_name, name, *given)
    if apps is not None:
        state.apps = apps
        added = state.models[app_label, model_name].fields[name].clone()
        with apps.bulk_update():  # which lets the other end forget what referred to it
            apps.get_model(app_label, model_name).add_to_class(name, added)


def _changed_option(name: str) -> Any:
    """A change of a model's indexes or constraints, which its class gets too."""

    def change(state: ProjectState, app_label: str, model_name: str, given: Any) -> None:
        apps = _without_classes(state)
        _OF_DJANGO[name](state, app_label, model_name, given)
        if apps is not None:
            state.apps = apps
            option = "indexes" if name.endswith("index") else "constraints"
            options = apps.get_model(app_label, model_name)._meta
            setattr(options, option, list(state.models[app_label, model_name].options[option]))

    return change


def _without_classes(state: ProjectState) -> Any:
    """The classes that the state has, which it lacks now: Django makes none again meanwhile."""
    return state.__dict__.pop("apps", None)


_OF_DJANGO: dict[str, Any] = {name: getattr(ProjectState, name) for name in KINDS}
_OURS = {"add_model": add_model, "add_field": add_field, **{name: _changed_option(name) for name in KINDS[2:]}}


@contextmanager
def few_classes_are_made() -> Iterator[None]:
    """Meanwhile a created model, and an index or a constraint that comes or goes, make no other class again."""
    for name, change in _OURS.items():
        setattr(ProjectState, name, change)
    try:
        yield
    finally:
        for name, change in _OF_DJANGO.items():
            setattr(ProjectState, name, change)
