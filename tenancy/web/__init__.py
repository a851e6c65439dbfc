"""The web pages of this room, and the doors that every page of every room goes through."""

from .actors import actor_of as actor_of
from .actors import login_required as login_required
from .doors import action as action
from .doors import page as page
