"""The HTTP interface of clusters."""
