"""The signed-in user, as web pages need it."""

from django.contrib.auth.decorators import login_required as login_required
from django.http import HttpRequest

from foundation.problems import NotAuthenticated
from tenancy.models import User
from tenancy.queries import Actor, actor_for


def actor_of(request: HttpRequest) -> Actor:
    """The signed-in user as an actor; NotAuthenticated if no user is signed in."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return actor_for(request.user)
