"""The web process's edge: it reads whole requests and writes whole responses without a thread, within
limits (ADR 15).
"""
