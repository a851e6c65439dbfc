"""Every path of the gateway."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularSwaggerSplitView

import billing.urls
import clusters.urls
import federation.urls
import quotas.urls
import tenancy.urls
from foundation.api import nothing_here
from foundation.description import DescriptionView
from foundation.health import alive, ready
from foundation.signposts import robots, security_contact

# The first match wins, so the busiest paths come first.
ROOMS = (federation.urls, billing.urls, quotas.urls, clusters.urls, tenancy.urls)

urlpatterns = [
    path("api/v1/", include([pattern for room in ROOMS for pattern in room.api_urlpatterns])),
    path("api/v1/schema/", DescriptionView.as_view(), name="schema"),
    path("api/v1/docs/", SpectacularSwaggerSplitView.as_view(template_name="api/docs.html"), name="docs"),
    path("healthz", alive),
    path("readyz", ready),
    path("robots.txt", robots),
    path(".well-known/security.txt", security_contact),
    path("admin/", admin.site.urls),
    path("api/<path:rest>", nothing_here),
    path("", include([pattern for room in ROOMS for pattern in room.web_urlpatterns])),
]

handler400 = "foundation.api.bad_request"
handler403 = "foundation.api.permission_denied"
handler404 = "foundation.api.page_not_found"
handler500 = "foundation.api.server_error"
