"""The only modules of this room that use the network."""
