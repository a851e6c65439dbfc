"""Where the gateway's modules keep what a process remembers."""

MEMORIES = (
    "clusters.queries.connections._known",
    "clusters.queries.domains._known",
    "clusters.queries.fleet._views",
    "federation.operations.cycle._fleet_index",
    "federation.operations.expected_starts._fleet_index",
    "federation.operations.expected_starts._pace",
    "federation.operations.rounds._left_behind",
    "federation.queries.feasibility._memory",
    "federation.queries.kinds._by_kind",
    "federation.queries.kinds._groups",
    "federation.queries.queue._counted",
    "federation.queries.queue._requests",
    "federation.queries.quotes._desk",
    "federation.queries.releases._memory",
    "federation.queries.runtimes._predicted",
    "federation.queries.snapshot._built",
)
"""Names at the level of modules; each begins empty. A test checks that there are no others."""
