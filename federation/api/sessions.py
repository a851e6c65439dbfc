"""/jobs/{id}/tickets: opening the session of a job."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.operations.sessions import issue_ticket
from foundation.plain_json import instant
from tenancy.api.views import ApiView


class TicketShape(serializers.Serializer[Any]):
    """A ticket works once. It is shown only here."""

    attempt = serializers.UUIDField(help_text="The run whose session it opens.")
    url = serializers.URLField(help_text="The address to open in a browser. The ticket is behind its `#`.")
    expires_at = serializers.DateTimeField()


class Tickets(ApiView):
    @extend_schema(request=None, responses={201: TicketShape})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Makes a ticket that opens the session of a running job in a browser, once and within a minute."""
        ticket = issue_ticket(self.actor, job_id)
        told = {"attempt": str(ticket.attempt_id), "url": ticket.url, "expires_at": instant(ticket.expires_at)}
        return Response(told, status=201)
