"""Fixtures for every kind of test."""

import os
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command
from django.db import connection
from django.test import TransactionTestCase
from hypothesis import settings

from devtools import prepared
from foundation.caches import reset_all
from foundation.passwords import GivingWayArgon2PasswordHasher
from tests.emptying import close_emptying_session, empty_tables, needs_new_session
from tests.kept_statements import statements_are_kept
from tests.laws import USUAL, share_of
from tests.servers import MIGRATED

settings.register_profile("untimed", deadline=None, max_examples=share_of(USUAL))
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix):
    """The tests' database begins as a copy of a migrated one, if there is one: `migrate` then finds nothing left to do."""
    if MIGRATED in os.environ:
        connection.settings_dict["TEST"]["TEMPLATE"] = os.environ[MIGRATED]


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup):
    """Meanwhile the database has the tables of the gateway."""
    yield
    close_emptying_session()


@pytest.fixture(autouse=True, scope="session")
def tables_are_emptied_cheaply():
    """Tests that commit end with it, and keep their session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty_tables)
        patch.setattr(TransactionTestCase, "_should_reload_connections", needs_new_session)
        yield


@pytest.fixture(autouse=True, scope="session")
def kept_statements():
    """Sessions do not plan again for each test what they planned for one before."""
    with statements_are_kept():
        yield


@pytest.fixture(autouse=True, scope="session")
def passwords_cost_little():
    """The hasher that ships, with a thousandth of its memory: a fifth of a second of a core for each user adds up to minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GivingWayArgon2PasswordHasher, "memory_cost", 64)
        patch.setattr(GivingWayArgon2PasswordHasher, "time_cost", 1)
        yield


@pytest.fixture(autouse=True, scope="session")
def static_files_are_collected():
    """Pages name the files that they load by their hashes. Done once for the same sources, whoever comes first.

    They are looked up when they are asked for: to list them for each of Django's test clients adds up to minutes.
    """
    call_command("collectstatic", interactive=False, verbosity=0)
    # Another part of the suite may have collected them while this process had the manifest of before in its hands.
    storage: Any = staticfiles_storage  # `settings.STORAGES` names a storage with a manifest
    storage.hashed_files, storage.manifest_hash = storage.load_manifest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(django_settings, "WHITENOISE_AUTOREFRESH", True, raising=False)
        patch.setattr(prepared, "collect_static_files", lambda: None)  # gateways of tests serve the same ones
        yield


@pytest.fixture(autouse=True)
def nothing_is_cached():
    """A test begins with what a process has just after its start."""
    reset_all()


@pytest.fixture
def quotes_look_anew(monkeypatch):
    """The desk that quotes are given from looks anew each time it is asked."""
    from federation.queries import quotes  # noqa: PLC0415 - models can be imported only when Django is set up

    monkeypatch.setattr(quotes, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(quotes, "REST", 0)
