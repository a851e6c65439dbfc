"""Other results of the same engine: quotes, expected starts, reserved nodes, recordings."""
