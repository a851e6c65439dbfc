"""Pure rating: the cost of an interval, and how totals are divided without a remainder."""
