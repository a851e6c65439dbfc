"""Pure decisions: which job runs where and when, and why not elsewhere. Standard library and numpy only."""
