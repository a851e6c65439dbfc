"""Clusters whose authorizer cannot list what an account may do: each right is asked for by itself."""

import pytest

from clusters.engine.permissions import ROLE, TELLTALES, Right, compare_asked
from clusters.models import Cluster
from tests.apiserver import published_rules

pytestmark = pytest.mark.django_db
ASKED_BESIDES = 1
"""Whether the credential may create Secrets."""


def right_of(asked):
    resource = "/".join(part for part in (asked["resource"], asked["subresource"]) if part)
    return Right(asked["group"], resource, asked["verb"], asked["name"])


def by_webhook(api, granted, listed=()):
    """The account has these rights, and its rules list only some."""
    api.rules, api.is_incomplete = list(listed), True
    api.allowed = lambda asked: right_of(asked) in granted


def refusal(answer):
    problem = answer.json()
    return answer.status_code, problem["code"], [error["detail"] for error in problem["errors"]]


def test_a_role_that_a_webhook_grants_is_found_by_asking(api, register):
    by_webhook(api, ROLE)
    assert register(api.body()).status_code == 201
    asked = sum(path.endswith("/selfsubjectaccessreviews") for path in api.paths)
    assert asked == len(ROLE) + 2 * len(TELLTALES) + ASKED_BESIDES


def test_a_list_is_not_believed_where_asking_says_no(api, register):
    by_webhook(api, ROLE - {Right("", "pods/log", "get")}, listed=published_rules())
    assert refusal(register(api.body())) == (422, "missing_permission", ["missing: get pods/log"])
    assert not Cluster.everything.exists()


def test_what_a_webhook_grants_too_much_is_found_by_asking(api, register):
    by_webhook(api, ROLE | {Right("", "secrets", "get"), Right("", "pods/exec", "create")})
    assert refusal(register(api.body())) == (
        422,
        "excess_permission",
        ["excess: create pods/exec", "excess: get secrets"],
    )


def test_a_right_too_much_in_one_namespace_counts(api, register):
    by_webhook(api, ROLE)
    api.allowed = lambda asked: (
        right_of(asked) in ROLE or (asked["namespace"], asked["resource"]) == ("kube-system", "secrets")
    )
    status, code, details = refusal(register(api.body()))
    assert (status, code) == (422, "excess_permission")
    assert "excess: get secrets" in details


def test_what_is_listed_beyond_the_role_stays_too_much(api, register):
    extra = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["delete"]}
    by_webhook(api, ROLE, listed=[*published_rules(), extra])
    assert refusal(register(api.body())) == (422, "excess_permission", ["excess: delete deployments.apps"])


def test_a_complete_list_costs_no_further_question_but_about_what_is_optional(api, register):
    """Only a credential that may create Secrets rehearses what it must not do with them."""
    assert register(api.body()).status_code == 201
    asked = sum(path.endswith("/selfsubjectaccessreviews") for path in api.paths)
    assert asked == ASKED_BESIDES


@pytest.mark.parametrize("answer", [{}, {"status": {"allowed": "yes"}}, {"status": None}, [], b"{"])
def test_an_answer_that_is_none_registers_nothing(api, register, answer):
    by_webhook(api, ROLE)
    api.answers["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"] = lambda handler: handler.say(201, answer)
    refused = register(api.body())
    assert (refused.status_code, refused.json()["code"]) == (422, "unreachable")
    assert not Cluster.everything.exists()


def test_nothing_confirmed_lacks_the_whole_role():
    assert set(compare_asked([published_rules()], ()).missing) == ROLE
    assert not TELLTALES & ROLE
