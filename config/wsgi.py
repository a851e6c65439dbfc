"""The web process's entry point."""

import gc
import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

from foundation.processes import demand
from foundation.sessions import demand_sessions

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
demand("web", "REDIS_URL", "SECRET_KEY", "KEY_RING")
application = get_wsgi_application()
demand_sessions()
gc.disable()  # as in the settings
get_resolver().url_patterns  # noqa: B018 - reads every view now, instead of during the first request
gc.freeze()  # else each collection would walk, and each fork copy, what is never garbage
gc.enable()
