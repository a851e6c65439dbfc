"""Pure readings: what a Node object offers, what a kubeconfig may say, whether an address may be reached."""
