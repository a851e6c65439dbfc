"""A reason is told once, however many clusters it keeps away, with the cluster that is nearest to taking the job."""

from typing import Any

import pytest

from federation.models import Job
from federation.queries.why_not import Others, WhyNot, grouped, headline
from federation.web.offers import offers_for
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_spec, make_user, submit

NEEDS = "needs 8 H100-80GB on one node; "


def why(cluster, message, code="not_enough_free", *, is_for_good=False):
    return WhyNot(cluster, code, message, is_for_good)


def test_clusters_with_one_reason_are_one_line_that_names_the_nearest():
    (group,) = grouped(
        [
            why("a", NEEDS + "none is free"),
            why("b", NEEDS + "largest free block is 6 on n1"),
            why("c", NEEDS + "none is free"),
            why("d", NEEDS + "largest free block is 4 on n9"),
        ]
    )
    assert (group.code, group.count, group.nearest) == ("not_enough_free", 4, "b")
    assert group.message == NEEDS + "largest free block is 6 on n1"
    assert group.others == (
        Others(NEEDS + "largest free block is 4 on n9", ("d",)),
        Others(NEEDS + "none is free", ("a", "c")),
    )
    assert group.others_count == 3


def test_the_same_message_appears_once():
    (group,) = grouped(why(name, "has no H100-80GB", "no_such_model", is_for_good=True) for name in "cab")
    assert (group.nearest, group.message, group.others) == ("a", "has no H100-80GB", (Others("", ("b", "c")),))


def test_what_may_pass_comes_first_and_then_what_keeps_most_clusters_away():
    groups = grouped(
        [
            why("a", "has none", "no_such_model", is_for_good=True),
            why("b", "has none", "no_such_model", is_for_good=True),
            why("c", "cordoned", "cordoned"),
            why("d", "m"),
            why("e", "m"),
        ]
    )
    assert [(group.code, group.count) for group in groups] == [
        ("not_enough_free", 2),
        ("cordoned", 1),
        ("no_such_model", 2),
    ]


def test_a_headline_that_repeats_one_cluster_says_what_the_reason_means_instead():
    groups = grouped([why("a", "none is free")])
    assert headline("no cluster has room now; a: none is free", groups, "No room.") == "No room."
    assert headline("waits for quota", groups, "No room.") == "waits for quota"


@pytest.fixture
def user(quotes_look_anew):
    """Of an organisation with five clusters: of eight GPUs each has 0, 2, 6, 2 and 0 free."""
    user = make_user()
    bind(user, "acme/research")
    for number, used in enumerate((8, 6, 2, 6, 8)):
        make_flavor(cluster := make_cluster("acme", f"c{number}"))
        make_node(cluster, foreign_devices={"nvidia.com/gpu": used})
    return user


def spec(**gpu):
    return {"tenant": "acme/research", **make_spec(pod={"gpu": {"models": ["H100-80GB"], **gpu}})}


@pytest.mark.django_db
def test_offers_name_the_cluster_with_the_most_room_once_a_reason(user):
    shown = offers_for(actor_for(user), spec(count=8))
    assert shown.summary == "It would wait: no allowed cluster has room for it now."
    (group,) = shown.why_not
    assert (shown.why_not_count, group.count, group.nearest) == (5, 5, "c2")
    assert [others.clusters for others in group.others][-1] == ("c0", "c4")


@pytest.mark.django_db
def test_a_job_that_fits_nowhere_is_told_so_once_a_reason(user, client):
    shown = offers_for(actor_for(user), spec(count=9))
    assert shown.summary == "No cluster can run this job, even when empty."
    assert [(group.code, group.count, group.is_for_good) for group in shown.why_not] == [("never_fits", 5, True)]
    client.force_login(user)
    form = {
        "tenant": "acme/research",
        "name": "x",
        "image": "i:1",
        "count": "1",
        "gpus": "9",
        "cpu": "1",
        "memory": "1Gi",
    }
    answer = client.post("/jobs/new/", form)
    assert answer.status_code == 422
    assert answer.content.decode().count("needs 9 GPUs on one node") == 1


@pytest.mark.django_db
def test_the_page_of_a_waiting_job_tells_each_reason_once(user, client):
    job = submit(actor_for(user), spec(count=8))
    free = {"c0": "none is free", "c1": "largest free block is 2 on n1", "c2": "none is free"}
    told: list[dict[str, Any]] = [
        {"cluster": name, "code": "not_enough_free", "message": NEEDS + text} for name, text in free.items()
    ]
    told += [
        {"cluster": f"d{n}", "code": "no_such_model", "message": "has no H100-80GB", "is_for_good": True} for n in "01"
    ]
    message = f"no cluster has room now; c1: {told[1]['message']}"
    Job.objects.filter(id=job.id).update(
        reason_code="waiting_for_capacity", reason_message=message, explanation={"clusters": told}
    )
    client.force_login(user)
    page = client.get(f"/jobs/{job.id}/").content.decode()
    assert [page.count(one["message"]) for one in (told[0], told[1], told[3])] == [1, 1, 1]
    assert "No allowed cluster has room for it now." in page
    assert "Cannot run it as requested (2)" in page
