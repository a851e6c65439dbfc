"""A kubeconfig, and what every refused registration has in common."""

from clusters.models import Cluster, ClusterCredential
from tenancy.models import AuditEntry
from tests.apiserver import TOKEN


def kubeconfig(server="https://203.0.113.9:6443", cluster="", user="token: canary-token-9f4c1b7e", extra=""):
    """A kubeconfig with more lines in its cluster, another user, or more at the top."""
    return (
        "apiVersion: v1\nkind: Config\n"
        f"clusters:\n- name: c\n  cluster:\n    server: {server}\n{indented(cluster)}"
        f"users:\n- name: u\n  user:\n{indented(user)}"
        "contexts:\n- name: x\n  context: {cluster: c, user: u}\ncurrent-context: x\n"
        f"{extra}"
    )


def indented(text):
    return "".join(f"    {line}\n" for line in text.splitlines())


def assert_refused(answer, field, code=None):
    problem = answer.json()
    assert answer.status_code == 422, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    assert problem["code"] == "validation_failed"
    assert problem["errors"][0]["field"] == field
    assert code is None or problem["errors"][0]["code"] == code
    assert TOKEN not in answer.content.decode()
    assert not Cluster.everything.exists()
    assert not ClusterCredential.objects.exists()
    entry = AuditEntry.objects.latest("id")
    assert (entry.outcome, entry.detail["status"]) == ("refused", 422)
    assert TOKEN not in str(entry.detail)
