"""The web pages of this room: the overview, jobs, submitting one."""
