"""Who may use how much: limits on the tenant tree, holds on the way from root to leaf."""
