"""A flood of refused sign-ins through a proxy: the trail grows by a few rows, and everybody else goes on."""

import http.client
import re
import threading
from typing import Any
from urllib.parse import urlencode

import pytest

from tenancy.models import AuditEntry, RefusalCount, User
from tests.builders import bind, make_token, make_user

from .conftest import running

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]
PROXY, ATTACKER, OWNER = "127.0.0.9", "203.0.113.66", "203.0.113.7"
PASSWORD = "correct horse battery staple"
FORM = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
TRIES = 600


class Browser:
    """Somebody behind the proxy, who has opened the sign-in page."""

    def __init__(self, edge, client):
        self.edge, self.client = edge, client
        status, text, cookie = self.send("GET")
        assert status == 200
        self.token, self.cookie = FORM.search(text)[1], cookie

    def send(self, method, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", self.edge.port, 30, source_address=(PROXY, 0))
        headers = {
            "Host": "localhost",
            "X-Forwarded-For": self.client,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        if fields:
            headers["Cookie"] = self.cookie
        try:
            connection.request(method, "/login/", urlencode(fields), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), (answer.getheader("Set-Cookie") or "").partition(";")[0]
        finally:
            connection.close()

    def sign_in(self, email, password):
        return self.send("POST", email=email, password=password, csrfmiddlewaretoken=self.token)[0]


def test_a_flood_of_refused_sign_ins_is_told_in_a_few_rows_and_costs_others_nothing(django_db_setup, tmp_path):
    owner = User.objects.create_user("owner@example.org", PASSWORD)
    pipeline = make_user()
    bind(pipeline, "acme")
    good: dict[str, Any] = {"Authorization": f"Bearer {make_token(pipeline)}"}
    AuditEntry.objects.count()
    with running(tmp_path, SWITCHYARD_TRUSTED_PROXIES=f"{PROXY}/32") as edge:
        attacker, person = Browser(edge, ATTACKER), Browser(edge, OWNER)
        answers, lock = [], threading.Lock()

        def flood(number):
            for turn in range(TRIES // 6):
                email = owner.email if turn % 2 else f"p{number}-{turn}@example.org"
                status = attacker.sign_in(email, "wrong")
                with lock:
                    answers.append(status)

        senders = [threading.Thread(target=flood, args=[number]) for number in range(6)]
        for sender in senders:
            sender.start()
        assert [edge.ask("/api/v1/me", **good).status for _ in range(50)] == [200] * 50
        statuses = [person.sign_in(owner.email, PASSWORD) for _ in range(1)]
        while statuses[-1] == 503 and len(statuses) < 20:  # passwords are looked at one at a time
            statuses.append(person.sign_in(owner.email, PASSWORD))
        assert edge.ask("/healthz", port=edge.health_port).status == 200
        for sender in senders:
            sender.join()
        assert statuses[-1] == 302
        assert set(answers) <= {401, 429, 503}
        assert len(answers) == TRIES
        refused = AuditEntry.objects.filter(outcome="refused")
        assert set(refused.values_list("source", flat=True)) == {ATTACKER}
        minutes = RefusalCount.objects.count() + refused.filter(detail__has_key="further").count()
        assert refused.count() <= 2 * minutes <= 8
        told = sum(entry.detail.get("further", 1) for entry in refused) + sum(
            row.count for row in RefusalCount.objects.all()
        )
        assert told == answers.count(401), "each that was answered 401 is told"
        assert AuditEntry.objects.get(action="session.start", outcome="done").source == OWNER
