"""The real engine in virtual time: from a fleet, a trace of jobs and a gateway it computes waiting, utilisation and
cost.

The simulator reads no clock, file or database, and draws no random numbers: equal input gives equal figures.
"""
