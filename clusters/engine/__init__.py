"""Pure readings: what a Node object offers, what a kubeconfig may contain, which addresses the gateway may
connect to.
"""
