"""Past use moves with the end of each hold, in closed form; the database refuses everything else."""

import math
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction

from quotas.models import Hold, PastHalfLife, PastUse
from quotas.operations import end_holds, keep_half_life, take_holds
from quotas.queries import discrepancies, uses
from tests.builders import hold_request, make_limit, make_tenant
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db
HALF_LIFE = 86_400


def begun(path, hours, amounts=None):
    """The holder of a hold that began so many hours ago."""
    asked = hold_request(path, amounts)
    assert take_holds([asked]) == {asked.holder_id: None}
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE quotas_hold SET created_at = created_at - make_interval(secs => %s) WHERE holder_id = %s",
            [hours * 3600, asked.holder_id],
        )
        cursor.execute("SET LOCAL session_replication_role = origin")
    return asked.holder_id


def left(hold, half_life=HALF_LIFE):
    """What an hour-long hold leaves, as of its end."""
    return 1 - 0.5 ** ((hold.ended_at - hold.created_at).total_seconds() / half_life)


def test_the_end_of_a_hold_adds_what_it_held_and_older_use_fades():
    make_limit("acme", nominal="100")
    first, second = begun("acme/a", 24, {"gpu": 8000, "cpu": 100}), begun("acme/a", 48, {"gpu": 4000, "gpu:H100": 4000})
    end_holds({first: "posted"})
    assert PastUse.objects.get(resource="gpu").level == pytest.approx(4000, rel=1e-3)
    end_holds({second: "voided"})
    holds = Hold.objects.in_bulk([first, second])
    gap = (holds[second].ended_at - holds[first].ended_at).total_seconds()
    expected = 8000 * left(holds[first]) * 0.5 ** (gap / HALF_LIFE) + 4000 * left(holds[second])
    assert PastUse.objects.get(resource="gpu").level == pytest.approx(expected, rel=1e-9)
    assert sorted(PastUse.objects.values_list("resource", flat=True)) == ["cpu", "gpu"]
    assert discrepancies() == ()


def test_holds_of_several_tenants_end_in_one_statement():
    holders = [begun(path, hours, {"gpu": 1000}) for path in ("acme/b", "acme/a") for hours in (1, 2)]
    assert end_holds(dict(zip(holders, ["posted", "voided", "posted", "voided"], strict=True))) == 4
    assert set(Hold.objects.values_list("state", flat=True)) == {"posted", "voided"}
    assert PastUse.objects.count() == 2
    assert discrepancies() == ()
    assert end_holds(dict.fromkeys(holders, "posted")) == 0
    assert discrepancies() == ()


def test_what_is_held_counts_as_used_from_its_beginning():
    held = begun("acme/a", 24, {"gpu": 8000})
    ended = begun("acme/b", 24, {"gpu": 8000})
    end_holds({ended: "posted"})
    make_tenant("acme/c")
    found = uses()
    assert {path: use.held for path, use in found.items()} == {"acme/a": {"gpu": 8000}, "acme/b": {"gpu": 0}}
    assert [found[path].used["gpu"] for path in ("acme/a", "acme/b")] == pytest.approx([4000, 4000], rel=1e-3)
    end_holds({held: "posted"})
    assert uses()["acme/a"].used["gpu"] == pytest.approx(4000, rel=1e-3)


def test_very_old_use_fades_to_nothing_without_an_error():
    end_holds({begun("acme/a", 24 * 365 * 50): "posted", begun("acme/b", 0): "posted"})
    with connection.cursor() as cursor:
        cursor.execute("SELECT quotas_left_after(1e12, 60), quotas_left_after(-5, 60), quotas_left_after(60, 60)")
        assert cursor.fetchone() == (pytest.approx(0, abs=1e-300), 1.0, pytest.approx(0.5))
    assert discrepancies() == ()


def test_another_half_life_counts_all_holds_anew():
    holder = begun("acme/a", 1, {"gpu": 8000})
    end_holds({holder: "posted"})
    hold = Hold.objects.get()
    keep_half_life(3600)
    assert PastUse.objects.get().level == pytest.approx(8000 * left(hold, 3600))
    assert discrepancies() == ()
    before = PastUse.objects.get().pk
    keep_half_life(3600)
    assert PastUse.objects.get().pk == before
    PastHalfLife.objects.all().delete()
    keep_half_life(HALF_LIFE)
    assert PastUse.objects.get().level == pytest.approx(8000 * left(hold))
    assert discrepancies() == ()


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE quotas_pastuse SET level = 0", "past_use_moves_with_holds"),
        ("DELETE FROM quotas_pastuse", "past_use_moves_with_holds"),
        (
            "INSERT INTO quotas_pastuse (tenant_id, resource, level, at) SELECT id, 'gpu', 1, now() FROM tenancy_tenant",
            "past_use_moves_with_holds",
        ),
        ("UPDATE quotas_pasthalflife SET half_life_seconds = 1", "half_life_is_in_range"),
        ("INSERT INTO quotas_pasthalflife (id, half_life_seconds) VALUES (2, 600)", "there_is_one_half_life"),
    ],
)
def test_past_use_cannot_be_written_by_hand(statement, constraint):
    keep_half_life(HALF_LIFE)
    end_holds({begun("acme/a", 1): "posted"})
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint


def test_the_proof_finds_a_wrong_level_and_a_missing_one():
    end_holds({begun("acme/a", 1, {"gpu": 8000}): "posted"})
    wrong = {"UPDATE quotas_pastuse SET level = level * 1.01": 1, "DELETE FROM quotas_pastuse": 1}
    for statement, number in wrong.items():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(statement)
            cursor.execute("SET LOCAL session_replication_role = origin")
        assert len([one for one in discrepancies() if "past use of gpu" in one]) == number


def test_a_hold_as_long_as_many_half_lives_counts_as_held_for_ever():
    holder = begun("acme/a", 24 * 100, {"gpu": 8000})
    end_holds({holder: "posted"})
    assert math.isclose(PastUse.objects.get().level, 8000, rel_tol=1e-9)
    assert Hold.objects.get().ended_at - Hold.objects.get().created_at > timedelta(days=99)
