"""A campaign: the whole gateway on real servers and control planes, under a trace's load and a seeded schedule of faults.

`make campaign MINUTES=120 SEED=1` prints the schedule, carries it out, heals everything, waits for every job to end, and
judges: by the API servers' audit logs, by the database and what clients were answered, and by what grew meanwhile.
"""
