"""Alert hooks over HTTP: translate, make one call, translate back."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.hooks import CONFIRMATION, FORMS, KINDS, TEST, text_of
from billing.models import AlertDelivery, AlertHook
from billing.models.hooks import ADDRESS_LENGTH, NAME_LENGTH
from billing.operations.confirmations import send_confirmation
from billing.operations.hooks import (
    WantedHook,
    create_hook,
    delete_hook,
    deliver_again,
    pause_hook,
    resume_hook,
    send_test,
)
from billing.queries.hooks import deliveries_of, hook_by_id, managed_hooks
from clusters.engine.egress import MAX_URL_LENGTH
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

ORDERS = {"created": "id", "-created": "-id"}
NEWEST_FIRST = {"-created": "-id", "created": "id"}


class HookCreate(StrictShape):
    """A hook to make."""

    tenant = Text(
        max_length=1100, help_text="Path, such as acme/research. Alerts of all tenants below it are posted too."
    )
    name = Text(max_length=NAME_LENGTH)
    url = Text(
        max_length=MAX_URL_LENGTH,
        write_only=True,
        default="",
        help_text="https://host[:port][/path]. It is not shown again. Not with the form `mail`.",
    )
    address = Text(
        max_length=ADDRESS_LENGTH,
        default="",
        help_text="With the form `mail` alone: one address, which gets alerts once it has confirmed this.",
    )
    kinds = serializers.ListField(child=serializers.ChoiceField(KINDS), min_length=1, max_length=len(KINDS))
    form = serializers.ChoiceField(FORMS, default=FORMS[0], help_text='`chat` posts {"text": …} alone; `mail` mails.')


class HookShown(serializers.Serializer[Any]):
    """A hook, without its URL's path and its secret."""

    id = serializers.UUIDField()
    tenant = serializers.CharField()
    name = serializers.CharField()
    server = serializers.CharField(allow_null=True, help_text="The scheme, host and port of its URL; null for mail.")
    address = serializers.CharField(allow_null=True, help_text="Null except for mail.")
    confirmed_at = Instant(allow_null=True, help_text="When the address agreed; until then it gets no alert.")
    kinds = serializers.ListField(child=serializers.ChoiceField(KINDS))
    form = serializers.ChoiceField(FORMS)
    created_by = serializers.CharField()
    created_at = Instant()
    paused_at = Instant(allow_null=True)
    pause = serializers.ChoiceField(
        AlertHook.Pause.values,
        allow_null=True,
        help_text="`gone`: its server answered 410, or the mail server refused the address.",
    )


class HookCreated(HookShown):
    """A hook that was made, with its signing secret."""

    secret = serializers.CharField(
        allow_null=True, help_text="Only in this answer; null for mail, and if the request is repeated."
    )


class DeliveryShown(serializers.Serializer[Any]):
    """An alert for a hook."""

    id = serializers.UUIDField(help_text="The header Switchyard-Delivery, the same at each attempt.")
    kind = serializers.ChoiceField([*KINDS, TEST, CONFIRMATION])
    tenant = serializers.CharField(help_text="The path that it had when the alert arose.")
    text = serializers.CharField()
    state = serializers.ChoiceField(AlertDelivery.State.values)
    attempts = serializers.IntegerField()
    last_status = serializers.IntegerField(allow_null=True, help_text="What the server answered last; null: nothing.")
    last_error = serializers.CharField(allow_null=True)
    next_at = Instant(allow_null=True, help_text="When it is posted next; null if it is not pending.")
    created_at = Instant()
    ended_at = Instant(allow_null=True)


class HooksView(ApiView):
    """`/alert-hooks`."""

    filters = ("tenant",)
    paged = True

    @extend_schema(operation_id="alert_hooks_list", responses=page_shape(HookShown))
    def get(self, request: Request) -> Response:
        """Lists the hooks that you may manage."""
        return self.page(managed_hooks(self.actor, self.query.get("tenant", "")), orders=ORDERS, render=show_hook)

    @extend_schema(operation_id="alert_hooks_create", request=HookCreate, responses={201: HookCreated})
    def post(self, request: Request) -> Response:
        """Makes a hook. Only this answer shows its signing secret; a repeated request gets null instead."""
        body = self.read(HookCreate)
        wanted = WantedHook(body["tenant"], body["name"], body["url"], body["kinds"], body["form"], body["address"])

        def produce() -> tuple[int, dict[str, Any]]:
            hook, secret = create_hook(self.actor, wanted)
            return status.HTTP_201_CREATED, {**show_hook(hook), "secret": secret or None}

        return self.created(request, None, "POST /alert-hooks", produce, shown_once=("secret",))


class HookView(ApiView):
    """`/alert-hooks/{id}`."""

    @extend_schema(operation_id="alert_hooks_read", responses=HookShown)
    def get(self, request: Request, hook_id: UUID) -> Response:
        """Returns a hook."""
        return Response(show_hook(hook_by_id(self.actor, hook_id)))

    @extend_schema(operation_id="alert_hooks_delete", responses={204: OpenApiResponse(description="Deleted.")})
    def delete(self, request: Request, hook_id: UUID) -> Response:
        """Deletes a hook with its deliveries."""
        delete_hook(self.actor, hook_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class HookPauseView(ApiView):
    """`/alert-hooks/{id}/pause`."""

    @extend_schema(operation_id="alert_hooks_pause", request=None, responses=HookShown)
    def post(self, request: Request, hook_id: UUID) -> Response:
        """Pauses a hook: nothing is posted to it, and alerts that arise meanwhile never are."""
        return Response(show_hook(pause_hook(self.actor, hook_id)))


class HookResumeView(ApiView):
    """`/alert-hooks/{id}/resume`."""

    @extend_schema(operation_id="alert_hooks_resume", request=None, responses=HookShown)
    def post(self, request: Request, hook_id: UUID) -> Response:
        """Resumes a paused hook. What was pending is posted now."""
        return Response(show_hook(resume_hook(self.actor, hook_id)))


class HookTestView(ApiView):
    """`/alert-hooks/{id}/test`."""

    @extend_schema(operation_id="alert_hooks_test", request=None, responses={202: DeliveryShown})
    def post(self, request: Request, hook_id: UUID) -> Response:
        """Posts a test within seconds. Its outcome is in the list of deliveries."""
        return Response(show_delivery(send_test(self.actor, hook_id)), status=status.HTTP_202_ACCEPTED)


class HookConfirmationView(ApiView):
    """`/alert-hooks/{id}/confirmation`."""

    @extend_schema(operation_id="alert_hooks_confirmation", request=None, responses={202: DeliveryShown})
    def post(self, request: Request, hook_id: UUID) -> Response:
        """Mails a new link to an address that has not confirmed yet. Earlier links end."""
        return Response(show_delivery(send_confirmation(self.actor, hook_id)), status=status.HTTP_202_ACCEPTED)


class DeliveriesView(ApiView):
    """`/alert-hooks/{id}/deliveries`."""

    paged = True

    @extend_schema(operation_id="alert_deliveries_list", responses=page_shape(DeliveryShown))
    def get(self, request: Request, hook_id: UUID) -> Response:
        """Lists what was or is to be delivered to a hook, newest first."""
        rows = deliveries_of(hook_by_id(self.actor, hook_id))
        return self.page(rows, orders=NEWEST_FIRST, render=show_delivery)


class DeliverAgainView(ApiView):
    """`/alert-hooks/{id}/deliveries/{id}/again`."""

    @extend_schema(operation_id="alert_deliveries_again", request=None, responses={202: DeliveryShown})
    def post(self, request: Request, hook_id: UUID, uid: UUID) -> Response:
        """Posts a delivery again, with the same id."""
        return Response(show_delivery(deliver_again(self.actor, hook_id, uid)), status=status.HTTP_202_ACCEPTED)


def show_hook(hook: AlertHook) -> dict[str, Any]:
    """A hook as the API shows it."""
    return {
        "id": str(hook.id),
        "tenant": hook.tenant.path,
        "name": hook.name,
        "server": hook.server or None,
        "address": hook.address or None,
        "confirmed_at": instant(hook.confirmed_at),
        "kinds": hook.kinds,
        "form": hook.form,
        "created_by": hook.created_by_name,
        "created_at": instant(hook.created_at),
        "paused_at": instant(hook.paused_at),
        "pause": hook.pause or None,
    }


def show_delivery(row: AlertDelivery) -> dict[str, Any]:
    """A delivery as the API shows it."""
    return {
        "id": str(row.uid),
        "kind": row.kind,
        "tenant": row.tenant_path,
        "text": text_of(row.kind, row.facts),
        "state": row.state,
        "attempts": row.attempts,
        "last_status": row.last_status,
        "last_error": row.last_error or None,
        "next_at": instant(row.next_at) if row.state == AlertDelivery.State.PENDING else None,
        "created_at": instant(row.created_at),
        "ended_at": instant(row.ended_at),
    }
