"""The tenant tree as a file: reads and writes its YAML, decides what differs from the tree, and converts manifests of Kueue."""
