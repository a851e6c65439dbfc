"""Pure decisions about quota: what an amount means, and which holds fit under which limits."""
