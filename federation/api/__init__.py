"""The HTTP interface of this room."""
