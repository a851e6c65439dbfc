"""Each defect can be put in: the guard that it takes away is still there."""

import pytest

from devtools.simulation import mutants


@pytest.mark.parametrize("name", mutants.names())
def test_the_guard_that_a_mutant_takes_away_is_there(name, monkeypatch):
    monkeypatch.setattr(mutants, "_execute", lambda statement: None)
    with mutants.put_in(name):
        pass
