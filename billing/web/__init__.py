"""The web pages of this room: usage by month, and prices."""
