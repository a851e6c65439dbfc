"""Deterministic simulation: the gateway's own code, as actors in one process, over a real PostgreSQL and simulated clusters.

One seed decides everything: which actor runs next, what time it is, every id, every answer of a cluster and every fault.
`make simulate SEEDS=100 FROM=1` runs seeds; docs/explanation/never-twice.md describes what they check.

From below: `core` runs the gateway's processes as actors, `clusters` has what they call, `setting` what there is at first,
`judges` what must hold. `requests`, `mishaps` and `accounts` have what users, chance and accountants do, `worlds` puts a run
together, `mutants` has the defects that runs must find, and `seeds` runs many.
"""
