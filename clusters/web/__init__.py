"""The web pages of this room: the fleet, one cluster, registering one."""
