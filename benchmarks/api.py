"""The rate and latency of single submits over HTTP, and of one bulk submit.

The whole gateway runs on this host. So does the client: plain keep-alive connections in a separate process, each
sending its next job when the last was acknowledged. No cluster is registered, so it measures intake: authentication,
validation, the transaction with audit and outbox, and the answer. In the same run, in turn, the same client submits to
a bare peer (`bare_peer`), which shows the base cost of this host, gunicorn, Django and PostgreSQL.
"""

import argparse
import http.client
import json
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import report
from benchmarks.bare_peer import bare_peer
from devtools.trial import ORGANISATION, Gateway, start_gateway

CONNECTIONS = 8
ROUNDS = 5
"""Of the gateway and of its bare peer, in turn."""
BULK = 5000


def spec(number: int) -> dict[str, Any]:
    """A GPU job as a pipeline sends it."""
    pods = {"name": "main", "count": 1, "image": "registry.example/train:1", "command": ["python", "train.py"],
            "env": {"EPOCHS": "3"}, "cpu": "4", "memory": "16Gi", "gpu": {"count": 1, "models": ["H100-80GB"]}}  # fmt: skip
    return {"tenant": ORGANISATION, "name": f"bench-{number}", "pod_sets": [pods], "labels": {"run": str(number)}}


def send(url: str, token: str, numbers: range, results: Any, due: Sequence[float] = ()) -> None:
    """Submits one after the other on one connection; puts each latency in milliseconds.

    With `due`, each job waits for its time of the monotonic clock, and its latency counts from then.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    latencies = []
    for number, at in zip_longest(numbers, due):
        body = json.dumps(spec(number))
        if at is not None:
            time.sleep(max(0.0, at - time.monotonic()))
        began = time.monotonic() if at is None else at
        connection.request("POST", "/api/v1/jobs", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        latencies.append((time.monotonic() - began) * 1000)
        if answer.status != http.client.CREATED:
            raise SystemExit(f"{answer.status}: {text.decode()}")
    results.put(latencies)


def burst(gateway: Gateway, jobs: int, connections: int, url: str = "") -> tuple[float, list[float]]:
    """Accepted jobs per second over all connections, and every latency, of the gateway or of the server at `url`."""
    results: Any = multiprocessing.Queue()
    shares = [range(jobs * n // connections, jobs * (n + 1) // connections) for n in range(connections)]
    senders = [
        multiprocessing.Process(target=send, args=(url or gateway.url, gateway.token, share, results))
        for share in shares
    ]
    began = time.perf_counter()
    for sender in senders:
        sender.start()
    latencies = [value for _ in senders for value in results.get()]
    seconds = time.perf_counter() - began
    for sender in senders:
        sender.join()
    return jobs / seconds, latencies


def paced(gateway: Gateway, rate: int, seconds: int) -> list[float]:
    """Latencies of submits at a fixed rate, over enough connections that none has to wait for another."""
    results: Any = multiprocessing.Queue()
    began = time.monotonic() + 0.5
    due = [began + n / rate for n in range(rate * seconds)]
    shares = [due[n::CONNECTIONS] for n in range(CONNECTIONS)]
    senders = [
        multiprocessing.Process(target=send, args=(gateway.url, gateway.token, range(len(share)), results, share))
        for share in shares
    ]
    for sender in senders:
        sender.start()
    latencies = [value for _ in senders for value in results.get()]
    for sender in senders:
        sender.join()
    return latencies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    options = parser.parse_args()
    report.conditions(jobs=options.jobs, connections=options.connections, web="gunicorn, as `make serve` starts it")
    with tempfile.TemporaryDirectory(prefix="switchyard-bench-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        gateway = start_gateway(Path(folder) / "home")
        try:
            burst(gateway, 200, options.connections)
            with bare_peer(gateway) as peer:
                burst(gateway, 200, options.connections, peer)
                share = options.jobs // ROUNDS
                rates: list[float] = []
                peer_rates: list[float] = []
                latencies: list[float] = []
                cpu_ms = 0.0
                for _ in range(ROUNDS):
                    cpu_before = sum(gateway.cpu_seconds().values())
                    rate, found = burst(gateway, share, options.connections)
                    cpu_ms += (sum(gateway.cpu_seconds().values()) - cpu_before) * 1000 / share / ROUNDS
                    rates.append(rate)
                    latencies += found
                    peer_rates.append(burst(gateway, share, options.connections, peer)[0])
            one_rate, one_latencies = burst(gateway, max(200, options.jobs // 10), 1)
            bulk = {"jobs": [spec(number) for number in range(BULK)]}
            began = time.perf_counter()
            gateway.create("/jobs/bulk", bulk)
            bulk_rate = BULK / (time.perf_counter() - began)
        finally:
            gateway.stop()
    figures = {
        "submits_per_second": report.median(rates),
        "bare_peer_per_second": report.median(peer_rates),
        "ratio_to_bare_peer": report.median(ours / bare for ours, bare in zip(rates, peer_rates, strict=True)),
        "p50_ms": report.percentile(latencies, 0.50),
        "p95_ms": report.percentile(latencies, 0.95),
        "p99_ms": report.percentile(latencies, 0.99),
        "gateway_cpu_ms_per_submit": cpu_ms,
        "one_connection_per_second": one_rate,
        "one_connection_p50_ms": report.percentile(one_latencies, 0.50),
        "bulk_jobs_per_second": bulk_rate,
    }
    report.table([{"figure": name, "value": value} for name, value in figures.items()])
    report.last_line(figures)


if __name__ == "__main__":
    main()
