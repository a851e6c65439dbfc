"""Workers that deliver at the same moment, and one that is killed between post and record, with real commits."""

import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from django.db import connection

from billing.drivers.smtp import send_all
from billing.models import AddressConfirmation, AlertDelivery, AlertHook
from billing.operations import deliveries, hooks
from billing.operations.confirmations import confirm_address
from billing.operations.deliveries import deliver_alerts, make_deliveries
from clusters.drivers import resolve
from clusters.drivers.posting import post_all
from foundation.postgres.base import DatabaseWrapper
from foundation.problems import Conflict, NotFound
from foundation.processes import die_with_parent
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests import kept_sessions
from tests.apiserver import api_server
from tests.builders import make_tenant
from tests.rooms.billing.hooking import Receiver, due_now, make_hook, reach_half
from tests.rooms.billing.mailing import link_in, make_confirmed, make_mail_hook, set_up_mail
from tests.smtpserver import smtp_server

from .test_quota_races import at_once

SESSION: Any = DatabaseWrapper
LEFT: list[object] = []
"""A fork keeps its parent's session here: to close it would end that of the parent."""
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def receiver():
    with api_server(tls=False) as api:
        yield Receiver(api)


def test_two_workers_deliver_each_alert_once_and_post_to_no_hook_at_the_same_time(receiver):
    busy, most = Counter(), Counter()
    lock = threading.Lock()

    def slowly(request):
        name = request.path
        with lock:
            busy[name] += 1
            most[name] = max(most[name], busy[name])
        time.sleep(0.05)
        with lock:
            busy[name] -= 1
        request.say(200, {})

    receiver.answer = slowly
    for number in range(3):
        path = f"/hook-{number}"
        receiver.api.answers[path] = receiver.take
        make_hook(receiver, name=f"h{number}", path=path)
    cluster = reach_half("acme/t0")
    for number in range(1, 6):
        reach_half(f"acme/t{number}", cluster)
    make_deliveries()

    def deliver_all():
        while AlertDelivery.objects.filter(state="pending").exists():
            deliver_alerts()

    at_once([deliver_all] * 4)
    assert len(receiver.ids) == len(set(receiver.ids)) == 18
    assert set(AlertDelivery.objects.values_list("state", "attempts")) == {("delivered", 1)}
    assert set(most.values()) == {1}


def test_a_worker_that_is_killed_after_the_post_leads_to_the_same_post_again(receiver):
    make_hook(receiver)
    reach_half()
    make_deliveries()
    assert os.WTERMSIG(killed_after_the_post()) == signal.SIGKILL
    assert len(receiver.posts) == 1
    assert list(AlertDelivery.objects.values_list("state", "attempts")) == [("pending", 1)]
    deliver_alerts()
    assert len(receiver.posts) == 1, "its lease is not over"
    due_now()
    deliver_alerts()
    assert receiver.posts[0][1] == receiver.posts[1][1]
    assert len(set(receiver.ids)) == 1
    assert list(AlertDelivery.objects.values_list("state", "attempts")) == [("delivered", 2)]


def test_a_worker_that_is_killed_after_the_mail_leads_to_the_same_mail_again(settings):
    with smtp_server() as server:
        set_up_mail(settings, server)
        make_confirmed(server)
        reach_half()
        make_deliveries()
        assert os.WTERMSIG(killed_after_the_post("send_all")) == signal.SIGKILL
        assert len(server.taken) == 1
        deliver_alerts()
        assert len(server.taken) == 1, "its lease is not over"
        due_now()
        deliver_alerts()
        assert server.taken[0] == server.taken[1]
        assert len(server.taken) == 2
        rows = AlertDelivery.objects.exclude(kind="confirmation")
        assert list(rows.values_list("state", "attempts")) == [("delivered", 2)]


def test_a_link_that_two_use_at_the_same_time_confirms_once(settings):
    with smtp_server() as server:
        set_up_mail(settings, server)
        make_mail_hook()
        deliver_alerts()
        secret, outcomes = link_in(server.messages[0]), []

        def use():
            try:
                outcomes.append(confirm_address(secret).name)
            except NotFound:
                outcomes.append("not found")

        at_once([use] * 4)
        assert Counter(outcomes) == {"finance": 1, "not found": 3}
        assert AuditEntry.objects.filter(action="hook.confirm").count() == 1


def test_users_who_name_an_address_at_the_same_time_send_it_few_confirmations(settings):
    with smtp_server() as server:
        set_up_mail(settings, server)
        for name in "abcdef":
            make_tenant(f"acme/{name}")
        refused = []

        def ask(name):
            try:
                make_mail_hook(f"acme/{name}")
            except Conflict as conflict:
                refused.append(conflict.code)

        at_once([partial(ask, name) for name in "abcdef"])
        assert refused == ["too_many_confirmations"] * 3
        assert AddressConfirmation.objects.count() == AlertHook.objects.count() == 3


def killed_after_the_post(what="post_all"):
    """The wait status of a forked worker that delivers, and is killed as soon as its posts, or mails, are answered."""
    send: Any = {"post_all": post_all, "send_all": send_all}[what]

    def post_and_die(posts):
        send(posts)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            die_with_parent()
            LEFT.append(connection.connection)
            connection.connection = None
            SESSION.get_new_connection = kept_sessions._new
            vars(resolve)["_RESOLVERS"] = ThreadPoolExecutor()
            vars(deliveries)[what] = post_and_die
            deliver_alerts()
        os._exit(1)
    return os.waitpid(child, 0)[1]


def test_a_hook_that_is_deleted_while_alerts_are_made_and_posted_leaves_nothing(receiver):
    made = [make_hook(receiver, name=f"h{number}")[0] for number in range(8)]
    cluster = reach_half("acme/t0")
    for number in range(1, 4):
        reach_half(f"acme/t{number}", cluster)
    at_once([deliver_alerts, deliver_alerts, *(lambda hook=hook: hooks.delete_hook(SYSTEM, hook.id) for hook in made)])
    assert not AlertHook.objects.exists()
    assert not AlertDelivery.objects.exists()
