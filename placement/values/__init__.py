"""The input of a cycle, its decisions and their reasons, as frozen values."""
