"""What befalls a dispatch at its worst moments, and what operators of a smaller world do not want."""

from types import SimpleNamespace

from devtools.simulation.core.faults import Faults


def a_world(kinds):
    faults, later, told = Faults(1, chosen=kinds), [], []
    link = SimpleNamespace(on_write=lambda what, uid: told.append((what, uid)), is_cut=False, happens=faults.happens)
    scheduler = SimpleNamespace(after=lambda seconds, act: later.append((seconds, act)))
    world = SimpleNamespace(
        links={"east": link}, faults=faults, scheduler=scheduler, tell=lambda who, what: told.append(who)
    )
    return world, link, later, told


def test_a_cluster_is_cut_off_when_it_should_release_and_comes_back():
    # Django must be set up before the simulation is imported, so this is not at the top.
    from devtools.simulation.mishaps import cut_releases  # noqa: PLC0415

    world, link, later, told = a_world({"cut_at_release": 1.0})
    cut_releases.install(world, None)
    link.on_write("create_job", "")
    assert not link.is_cut
    link.on_write("release_job", "uid")
    assert link.is_cut
    assert told == [("create_job", ""), ("release_job", "uid"), "east"]
    link.on_write("release_job", "uid")
    ((seconds, mend),) = later
    assert cut_releases.SECONDS[0] <= seconds <= cut_releases.SECONDS[1]
    mend()
    assert not link.is_cut


def test_a_world_without_that_kind_releases_undisturbed():
    from devtools.simulation.mishaps import cut_releases  # noqa: PLC0415 - likewise

    world, link, later, _ = a_world({"slow": 1.0})
    cut_releases.install(world, None)
    link.on_write("release_job", "uid")
    assert (link.is_cut, later) == (False, [])


def test_wishes_that_are_left_out_are_counted_and_what_has_to_wait_keeps_its_number():
    from devtools.simulation.requests.operators import Wish  # noqa: PLC0415 - likewise
    from devtools.simulation.worlds.smaller import Wishes  # noqa: PLC0415 - likewise

    first, second, third = (Wish(name, lambda: None) for name in ("first", "second", "third"))
    wishes = Wishes({1})
    wishes.append(first)
    wishes.insert(0, second)
    wishes.remove(first)
    wishes.append(first)
    wishes.append(third)
    assert (list(wishes), wishes.made) == ([first, third], 3)
