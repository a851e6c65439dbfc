"""External calls of this room besides clusters: the installation's policy hooks."""
