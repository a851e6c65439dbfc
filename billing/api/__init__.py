"""The HTTP interface of prices and usage."""
