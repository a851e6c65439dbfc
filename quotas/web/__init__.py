"""The web pages of this room: limits along the tenant tree."""
