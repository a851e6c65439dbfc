"""What this room calls outside of clusters: the installation's policy hooks."""
