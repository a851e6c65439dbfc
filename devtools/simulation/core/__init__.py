"""What lets the gateway's own code run as actors of one process, in an order and at times that a seed decides."""
