"""Pure rating: what an interval costs, and how totals are shared out without losing anything."""
