"""Engines are pure: their tests need neither servers nor static files."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def static_files_are_collected():
    """Of no use here, in place of the fixture of all other tests."""
