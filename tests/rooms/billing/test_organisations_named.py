"""Organisations by a name that nothing has checked."""

from datetime import date

import pytest

from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.queries.paths import organisation_named
from foundation.problems import NotFound
from tenancy.queries import SYSTEM
from tests.builders import make_tenant

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", ["", "acme\x00", "\x00", "ACME", "acme/one", "nowhere"])
def test_what_is_no_organisation_is_not_found(name):
    make_tenant("acme/one")
    assert organisation_named(name) is None
    with pytest.raises(NotFound):
        set_credit_policy(SYSTEM, NewCreditPolicy(name, date(2026, 10, 1), ()))
