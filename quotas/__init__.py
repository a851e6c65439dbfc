"""Quota: limits on the tenant tree, and holds against every limit from root to leaf."""
