"""Quota: limits on the tenant tree, and holds that count under every limit from leaf to root."""
