"""The web pages of this room, and the decorators of every room's pages."""

from .actors import actor_of as actor_of
from .actors import login_required as login_required
from .doors import action as action
from .doors import page as page
