"""The brake on moves for larger jobs: no user's jobs, and no tenant's, are moved again and again for others."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from placement.preemption.sparing import MOST_OF_A_TENANT, MOST_OF_A_USER, Brake
from placement.values.consolidation import Consolidating, MovedForOthers

from .consolidation_worlds import gang, movable, moving_world, planned
from .fleets import NOW
from .preemption_worlds import full, run_on

VICTIM, OTHER, ATTACKER = (UUID(int=900 + number) for number in range(3))


def quarters(*users, **more):
    """Three nodes, on each of which a job of these users holds a quarter."""
    return [
        run_on(number + 1, {f"c1-n{number}": 1}, gpus=2, minutes=30, user=user, **more)
        for number, user in enumerate(users)
    ]


def world(runs, waiting, moved=None, **more):
    return moving_world([full("aaa", runs)], runs, waiting, moved_for_others=moved or MovedForOthers(), **more)


def moved_users(found):
    return None if found.decision is None else Counter(one.movable.run.user for one in found.decision.moves)


def test_a_day_of_gangs_moves_the_jobs_of_one_user_only_so_often_whatever_jobs_and_tenants_the_gangs_are_of():
    """Each gang is a new job of a new tenant, and each time all jobs of the victim have rested, under other names."""
    users, tenants = Counter[UUID](), Counter[str]()
    for number in range(40):
        runs = quarters(VICTIM, VICTIM, VICTIM, tenant=f"acme/t{number % 7}")
        waiting = gang(tenant=f"acme/x{number}", user=ATTACKER)
        found = planned(world(runs, waiting, MovedForOthers(users, tenants)))
        if found.decision is None:
            assert "3 running jobs stay in place" in found.why_not[waiting.id]
            assert f"{MOST_OF_A_USER} jobs of the same user" in found.why_not[waiting.id]
        else:
            for one in found.decision.moves:
                users[one.movable.run.user] += 1
                tenants[one.movable.run.tenant_path] += 1
    assert users[VICTIM] == MOST_OF_A_USER


def test_who_has_been_moved_often_is_spared_and_another_moves_though_that_costs_more():
    runs = quarters(VICTIM, OTHER, VICTIM)
    runs[1] = replace(runs[1], started_at=NOW - timedelta(minutes=59))
    assert moved_users(planned(world(runs, gang(user=ATTACKER)))) == {VICTIM: 1}
    assert moved_users(planned(world(runs, gang(user=ATTACKER), MovedForOthers({VICTIM: MOST_OF_A_USER - 1})))) == {
        VICTIM: 1
    }
    assert moved_users(planned(world(runs, gang(user=ATTACKER), MovedForOthers({VICTIM: MOST_OF_A_USER})))) == {
        OTHER: 1
    }


def test_a_plan_does_not_go_beyond_the_number_with_several_moves():
    """Two nodes are wanted, so two of three jobs have to move; one move is left of each user."""
    runs, left_one = quarters(VICTIM, VICTIM, OTHER), MovedForOthers(dict.fromkeys((VICTIM, OTHER), MOST_OF_A_USER - 1))
    assert moved_users(planned(world(runs, gang(2, user=ATTACKER)))) is not None
    assert moved_users(planned(world(runs, gang(2, user=ATTACKER), left_one))) == {VICTIM: 1, OTHER: 1}
    bounded = moved_users(planned(world(runs, gang(2, user=ATTACKER), left_one), exact=0))
    assert bounded in ({VICTIM: 1, OTHER: 1}, None), "it may miss the plan, and never breaks the rule"
    alone = quarters(VICTIM, VICTIM, VICTIM)
    assert moved_users(planned(world(alone, gang(2, user=ATTACKER), left_one))) is None


def test_own_jobs_may_move_for_own_ones_and_jobs_of_unknown_users_count_for_their_tenant():
    spent = MovedForOthers({VICTIM: MOST_OF_A_USER}, {"acme/ml": MOST_OF_A_TENANT})
    own = quarters(VICTIM, VICTIM, VICTIM, tenant="acme/ml")
    assert planned(world(own, gang(tenant="acme/ml", user=VICTIM), spent)).decision is not None
    assert planned(world(own, gang(tenant="acme/web", user=VICTIM), spent)).decision is None
    assert planned(world(own, gang(tenant="acme/ml", user=None), spent)).decision is None
    unknown = quarters(None, None, None, tenant="acme/ml")
    assert planned(world(unknown, gang(tenant="acme/ml"), spent)).decision is not None
    assert planned(world(unknown, gang(tenant="acme/web"), spent)).decision is None


def test_the_reason_names_the_spared_ones_beside_what_the_others_would_cost():
    runs, waiting = quarters(VICTIM, OTHER, OTHER), gang(user=ATTACKER)
    found = planned(world(runs, waiting, MovedForOthers({VICTIM: MOST_OF_A_USER}), share=0.0001))
    first, second = found.why_not[waiting.id].split("; ")
    assert first.startswith("running jobs could be moved so that it fits")
    assert second.startswith("a running job stays in place, because within 24 hours")
    assert "; a running job" not in planned(world(runs, waiting, share=0.0001)).why_not[waiting.id]


@pytest.mark.parametrize("number", [0, 1, MOST_OF_A_USER - 1, MOST_OF_A_USER])
def test_what_may_move_together_may_move_in_part(number):
    brake = Brake(Consolidating(0.5, 8, moved_for_others=MovedForOthers({VICTIM: number})), gang(user=ATTACKER))
    runs = [movable(run_on(n, {"c1-n0": 1}, gpus=1, user=VICTIM)) for n in range(1, 12)]
    allowed = [brake.allows(runs[:most]) for most in range(len(runs) + 1)]
    assert allowed == [most <= MOST_OF_A_USER - number for most in range(len(runs) + 1)]
