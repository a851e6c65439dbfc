"""Prices, metered usage and cost reports."""
