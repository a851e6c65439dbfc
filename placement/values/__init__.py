"""What is spoken of: the input of a cycle, its decisions and their reasons. Frozen values."""
