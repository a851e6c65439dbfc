"""A training run as a user writes it: ranks of JAX, several per pod, a checkpoint after every step, reports. It goes on from a
checkpoint.
"""

import hashlib
import json
import os
import sys
import time
import urllib.request
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax.experimental.multihost_utils import (
    process_allgather,
    reached_preemption_sync_point,
    sync_global_devices,
)

STEPS, PAUSE_SECONDS = int(os.environ["STEPS"]), 0.1
CACHE_BYTES = 1 << 30
"""Of all ranks of a pod together."""
STOPPED = 143
say = partial(print, flush=True)
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local_rank, per_pod = int(os.environ["LOCAL_RANK"]), int(os.environ["PER_POD"])
checkpoint = Path(os.environ.get("SWITCHYARD_CHECKPOINT") or "/out/checkpoint.json")


def fill_cache() -> None:
    """This rank's part of a GiB of shared memory, as loaders of data use it."""
    block = os.urandom(1 << 20)
    with Path(f"/dev/shm/part-{rank}").open("wb") as part:
        part.writelines(block for _ in range(CACHE_BYTES // per_pod // len(block)))


def check_cache() -> None:
    """The ranks of a pod share its memory, and no other pod's ranks do."""
    first = rank - local_rank
    parts = {part.name: part.stat().st_size for part in Path("/dev/shm").glob("part-*")}
    assert parts == {f"part-{first + number}": CACHE_BYTES // per_pod for number in range(per_pod)}, parts


def report(**what: object) -> None:
    """A report that is lost must not stop the training."""
    request = urllib.request.Request(
        os.environ["SWITCHYARD_REPORT_URL"],
        data=json.dumps({"sequence": time.time_ns() // 1_000_000, **what}).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['SWITCHYARD_REPORT_TOKEN']}",
            "Content-Type": "application/json",
        },
    )
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except OSError as error:
        say("report:", error)


def keep(state: dict[str, object]) -> None:
    """Writes the checkpoint: the old one stays whole until the new one is."""
    new = checkpoint.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.rename(checkpoint)


def main() -> None:
    """Trains until all steps are done."""
    fill_cache()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        num_processes=ranks,
        process_id=rank,
        local_device_ids=[local_rank],
    )
    assert (jax.process_index(), jax.process_count()) == (rank, ranks)
    sync_global_devices("all have filled their part")
    check_cache()
    truth = np.array([3.0, -2.0, 0.5], dtype=np.float32)
    inputs = np.random.default_rng(rank).normal(size=(256, 3)).astype(np.float32)
    targets = inputs @ truth
    loss_of = jax.jit(jax.value_and_grad(lambda weights: ((inputs @ weights - targets) ** 2).mean()))
    state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"weights": [0.0, 0.0, 0.0], "losses": []}
    say(f"rank {rank} of {ranks}, {local_rank} of pod {os.environ['NODE_RANK']}, begins at step {len(state['losses'])}")
    weights, losses = np.array(state["weights"], dtype=np.float32), list(state["losses"])
    while len(losses) < STEPS:
        loss, slope = loss_of(weights)
        together = np.asarray(process_allgather(np.append(np.asarray(slope), loss))).mean(axis=0)
        weights = weights - np.float32(0.005) * together[:3]
        losses.append(float(together[3]))
        if rank == 0:
            keep({"weights": [float(one) for one in weights], "losses": losses})
            if len(losses) % 20 == 0:
                report(step=len(losses), total_steps=STEPS, loss=losses[-1])
                report(step=len(losses), checkpoint={"reference": str(checkpoint)})
        if reached_preemption_sync_point(len(losses)):
            say(f"rank {rank} is stopped after step {len(losses)}")
            sys.exit(STOPPED)
        time.sleep(PAUSE_SECONDS)
    if rank == 0:
        say("digest", hashlib.sha256(checkpoint.read_bytes()).hexdigest())


main()
