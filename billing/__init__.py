"""What it cost: prices, metered usage, reports."""
