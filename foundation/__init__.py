"""Clock, leases, guarded states, problems, paging, outbox: the base of every room. It names no business concepts."""
