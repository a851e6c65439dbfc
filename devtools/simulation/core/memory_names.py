"""Where the gateway's modules keep what a process remembers, besides `foundation.caches`."""

MEMORIES = (
    "federation.operations.cycle._fleet_index",
    "federation.operations.expected_starts._fleet_index",
    "federation.operations.expected_starts._pace",
    "federation.operations.previews._fleet_index",
    "federation.operations.rounds._left_behind",
    "federation.queries.feasibility._index",
    "federation.queries.quotes._desk",
    "federation.queries.releases._memory",
)
"""Names at the level of modules; each begins empty. A test checks that there are no others."""
