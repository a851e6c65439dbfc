"""The fleet and its free capacity: pools of nodes, prices, limits, and which tenants may use which part."""
