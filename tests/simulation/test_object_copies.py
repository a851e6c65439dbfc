"""Where a world copies from an object store, its source is one, and other worlds have none."""

from django.conf import settings


def test_only_a_world_with_copies_and_stores_copies_from_a_store():
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.requests import data_copies  # noqa: PLC0415

    images = {}
    for is_on in (True, False):
        for is_stored in (True, False):
            data_copies.configure(is_on=is_on, is_stored=is_stored)
            images[is_on, is_stored] = bool(settings.STAGE_IMAGE), bool(settings.OBJECT_STAGE_IMAGE)
    data_copies.configure(is_on=False, is_stored=False)
    assert images == {
        (True, True): (True, True),
        (True, False): (True, False),
        (False, True): (False, False),
        (False, False): (False, False),
    }
