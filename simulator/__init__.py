"""The true engine in virtual time: a fleet, a trace of jobs and a gateway give what waiting, use and money would have been.

Nothing here asks for the time, touches a file or a database, or draws a random number: the same input gives the same figures.
"""
