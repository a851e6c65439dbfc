"""Where the chart keeps the file of audit anchors."""

from pathlib import Path

import pytest

from devtools.serve import PROJECT

from .test_deployment import COMPOSE, documents, workloads


def anchors_of(document):
    """The file of audit anchors that a pod of the chart writes, its claim, and the mount; None of a pod without."""
    pod = document["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    [named] = [entry["value"] for entry in container["env"] if entry["name"] == "SWITCHYARD_AUDIT_ANCHORS"] or [None]
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "audit-anchors"] or [None]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "audit-anchors"] or [None]
    assert (named is None) is (mount is None) is (volume is None)
    if named is None:
        return None
    assert Path(named).parent == Path(mount["mountPath"])
    assert not mount.get("readOnly")
    return named, volume["persistentVolumeClaim"], mount.get("subPath")


def test_the_chart_keeps_audit_anchors_in_a_claim_for_those_who_write_them_as_compose_does(helm, rendered):
    assert {anchors_of(document) for document in workloads(rendered).values()} == {None}
    chart, claim = str(PROJECT / "helm"), ("--set", "auditAnchors.existingClaim=trail")
    found = workloads(documents(helm("template", "swy", chart, *claim)))
    services = COMPOSE["services"]
    writers = {name for name in found if "SWITCHYARD_AUDIT_ANCHORS" in services[name]["environment"]}
    assert writers == {"worker", "beat"}
    for component, document in found.items():
        anchors = anchors_of(document)
        assert (anchors is not None) is (component in writers), component
        if anchors:
            file, volume, folder = anchors
            assert file == services[component]["environment"]["SWITCHYARD_AUDIT_ANCHORS"]
            assert (volume, folder) == ({"claimName": "trail"}, None)
            assert document["spec"]["template"]["spec"]["securityContext"]["fsGroup"] == 10001
    below = workloads(documents(helm("template", "swy", chart, *claim, "--set", "auditAnchors.subPath=swy/anchors")))
    assert anchors_of(below["worker"])[2] == "swy/anchors"


@pytest.mark.parametrize("folder", ["../other", "/etc", "a/../b", "a//b", "."])
def test_the_chart_refuses_a_folder_of_anchors_outside_of_their_claim(helm, folder):
    wanted = ("--set", "auditAnchors.existingClaim=trail", "--set", f"auditAnchors.subPath={folder}")
    said = helm("template", "swy", str(PROJECT / "helm"), *wanted, succeeds=False)
    assert "values don't meet the specifications of the schema" in said


def test_the_chart_refuses_a_file_of_anchors_in_a_folder_that_does_not_last(helm):
    wanted = ("--set", "settings.extra.SWITCHYARD_AUDIT_ANCHORS=/tmp/anchors.jsonl")
    said = helm("template", "swy", str(PROJECT / "helm"), *wanted, succeeds=False)
    assert "set auditAnchors.existingClaim instead" in said
