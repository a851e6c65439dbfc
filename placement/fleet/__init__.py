"""What there is and what of it is free: pools of nodes, prices, limits, and who may use which part."""
