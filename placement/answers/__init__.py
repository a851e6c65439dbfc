"""What the same engine answers besides decisions: quotes, expected starts, reserved nodes, recordings."""
