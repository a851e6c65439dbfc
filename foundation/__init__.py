"""Clock, leases, guarded states, problems, paging, outbox: what every room stands on. No business nouns."""
