"""The OpenAPI description: what every operation shares is added here once, from what its view declares."""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers

from .paging import DEFAULT_LIMIT, MAX_LIMIT
from .shapes import ProblemShape

KEY_HELP = "Makes the write safe to repeat: the same key and body return the first answer. Up to 200 printable ASCII characters."


def page_shape(item: type[serializers.BaseSerializer[Any]]) -> serializers.Serializer[Any]:
    """The shape of one page of a list: `@extend_schema(responses=page_shape(TenantShape))`."""
    name = item.__name__.removesuffix("Shape").removesuffix("Shown")
    fields: dict[str, serializers.Field[Any, Any, Any, Any]] = {
        "items": item(many=True),
        "next": serializers.CharField(
            allow_null=True, help_text="Pass it as `cursor` to get the next page; null on the last page."
        ),
    }
    return inline_serializer(f"{name}Page", fields)


class RoomSchema(AutoSchema):
    """Adds a view's declared filters and paging words, the idempotency key of its creating POSTs, and problems as the default answer."""

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        """The noun: `Tenant` for TenantShape and TenantShown."""
        name = str(super().get_serializer_name(serializer, direction))
        return name.removesuffix("Shape").removesuffix("Shown")

    def get_operation_id(self) -> str:
        """As the framework names it, with `list` for what is paged."""
        name = str(super().get_operation_id())
        return (
            name.removesuffix("_retrieve") + "_list"
            if getattr(self.view, "paged", False) and self.method == "GET"
            else name
        )

    def get_override_parameters(self) -> Any:
        parameters: list[Any] = list(super().get_override_parameters())
        if self.method == "GET":
            parameters += [OpenApiParameter(name, str) for name in getattr(self.view, "filters", ())]
            if getattr(self.view, "paged", False):
                parameters += [
                    OpenApiParameter("limit", int, description=f"1 to {MAX_LIMIT}; {DEFAULT_LIMIT} when absent."),
                    OpenApiParameter("cursor", str, description="`next` of the previous page."),
                    OpenApiParameter("order", str),
                ]
        if self.method == "POST" and not getattr(self.view, "only_asks", False):
            parameters.append(OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description=KEY_HELP))
        return parameters

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        problem = self.resolve_serializer(ProblemShape, direction)
        bodies.setdefault(
            "default",
            {
                "description": "Refused; `code` says why.",
                "content": {"application/problem+json": {"schema": problem.ref}},
            },
        )
        return bodies
