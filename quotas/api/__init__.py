"""The HTTP interface of quota."""
