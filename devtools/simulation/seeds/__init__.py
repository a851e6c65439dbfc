"""Runs of many seeds: judged, repeated, made smaller, and kept."""
