"""A kubelet that is killed, and one that is stopped."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.kube.running_pods import (
    create,
    ended,
    pod,
    reached,
    seen,
    wait_for,
)

pytestmark = pytest.mark.kube


def four_sleepers(plane):
    """The kubelet's processes, once four of them sleep: a pod runs before its shell has started its programs."""
    family = psutil.Process(plane.pid("kubelet")).children(recursive=True)
    names = []
    for one in family:
        with suppress(psutil.Error):  # it ended just now
            names.append(one.name())
    return family if names.count("sleep") >= 4 else []


def test_a_killed_kubelet_takes_all_processes_and_mounts_along_and_its_pods_are_lost(http, plane):
    hides = "setsid sh -c 'trap \"\" TERM HUP; sleep 3600' & exec sleep 3600"
    create(http, pod("dies", hides), pod("returns", hides, restartPolicy="OnFailure"))
    for name in ("dies", "returns"):
        reached(http, name, "Running")
    family = wait_for(lambda: four_sleepers(plane), "both programs of both pods sleep")
    next(one for one in family if "devtools.localfleet.kubelet" in one.cmdline()).send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    assert list(plane.layout.kubelet_folder.iterdir()) == []
    assert str(plane.layout.root) not in Path("/proc/self/mounts").read_text()
    plane.restart("kubelet")
    phase, end = ended(http, "dies")
    assert (phase, end["exitCode"], end["reason"]) == ("Failed", 137, "ContainerStatusUnknown")
    again = wait_for(lambda: (found := seen(http, "returns")["status"])["containerStatuses"][0]["restartCount"] == 1 and found, "it runs again")  # fmt: skip
    assert again["phase"] == "Running"
    family = psutil.Process(plane.pid("kubelet")).children(recursive=True)
    plane.processes["kubelet"].terminate()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    plane.restart("kubelet")  # for other tests
