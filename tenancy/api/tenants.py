"""/tenants and the roles bound at them."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from foundation.problems import Invalid, NotFound
from foundation.schema import page_shape
from tenancy.engine.roles import Permission, Role
from tenancy.models import Tenant
from tenancy.operations import (
    Until,
    bind_role,
    change_binding,
    change_tenant,
    create_tenant,
    remove_tenant,
    unbind_role,
)
from tenancy.queries import Actor, bindings_at, tenant_by_id, tenant_named, visible_tenants

from .shapes import BindingChangeShape, BindingShape, NewBindingShape, NewTenantShape, TenantChangeShape, TenantShape
from .views import ApiView

TENANT_ORDERS = {"path": "path", "-path": "-path", "created": "id", "-created": "-id"}
BINDING_ORDERS = {"created": "id", "-created": "-id"}


class Tenants(ApiView):
    filters = ("path", "parent")
    paged = True

    @extend_schema(responses=page_shape(TenantShape))
    def get(self, request: Request) -> Response:
        """Lists the tenants that you may see: those where you hold a role, and all below them."""
        rows = self._filtered(visible_tenants(self.actor))
        return self.page(rows, orders=TENANT_ORDERS, render=_tenant)

    @extend_schema(request=NewTenantShape, responses={201: TenantShape})
    def post(self, request: Request) -> Response:
        """Creates a tenant below `parent`; without `parent`, an organisation (operators only)."""
        fields = self.read(NewTenantShape)
        parent = _parent(self.actor, fields.pop("parent"))

        def produce() -> tuple[int, dict[str, Any]]:
            tenant = create_tenant(self.actor, parent_id=parent.id if parent else None, **fields)
            return 201, _tenant(tenant)

        return self.created(request, parent.id if parent else None, "POST /tenants", produce)

    def _filtered(self, rows: QuerySet[Tenant]) -> QuerySet[Tenant]:
        if "path" in self.query:
            rows = rows.filter(path=self.query["path"])
        if "parent" in self.query:
            try:
                rows = rows.filter(parent=tenant_named(self.actor, self.query["parent"]))
            except NotFound:
                rows = rows.none()
        return rows


class OneTenant(ApiView):
    @extend_schema(responses=TenantShape)
    def get(self, request: Request, tenant_id: UUID) -> Response:
        """Returns a tenant."""
        return Response(_tenant(tenant_by_id(self.actor, tenant_id)))

    @extend_schema(request=TenantChangeShape, responses=TenantShape)
    def patch(self, request: Request, tenant_id: UUID) -> Response:
        """Renames, relabels or moves a tenant. Everything below it moves with it."""
        fields = self.read(TenantChangeShape)
        if "parent" in fields:
            parent = _parent(self.actor, fields.pop("parent"))
            fields["parent_id"] = parent.id if parent else None
        return Response(_tenant(change_tenant(self.actor, tenant_id, **fields)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, tenant_id: UUID) -> Response:
        """Removes an empty tenant. Refused (409 `tenant_not_empty`) if anything belongs to it."""
        remove_tenant(self.actor, tenant_id)
        return Response(status=204)


class RoleBindings(ApiView):
    paged = True

    @extend_schema(responses=page_shape(BindingShape))
    def get(self, request: Request, tenant_id: UUID) -> Response:
        """Lists the roles bound at this tenant. Roles bound above it apply here too, but are not listed."""
        rows = bindings_at(tenant_by_id(self.actor, tenant_id))
        return self.page(rows, orders=BINDING_ORDERS, render=_binding)

    @extend_schema(request=NewBindingShape, responses={201: BindingShape})
    def post(self, request: Request, tenant_id: UUID) -> Response:
        """Binds a role here and for every tenant below. You cannot grant more than you hold."""
        fields = self.read(NewBindingShape)
        tenant = tenant_by_id(self.actor, tenant_id, Permission.MANAGE_TENANTS)
        fields["role"] = Role(fields["role"])

        def produce() -> tuple[int, dict[str, Any]]:
            return 201, _binding(bind_role(self.actor, tenant.id, **fields))

        return self.created(request, tenant.id, "POST /tenants/{id}/role-bindings", produce)


class OneRoleBinding(ApiView):
    @extend_schema(responses=BindingShape)
    def get(self, request: Request, tenant_id: UUID, binding_id: UUID) -> Response:
        """Returns a role bound at this tenant."""
        binding = bindings_at(tenant_by_id(self.actor, tenant_id)).filter(id=binding_id).first()
        if binding is None:
            raise NotFound
        return Response(_binding(binding))

    @extend_schema(request=BindingChangeShape, responses=BindingShape)
    def patch(self, request: Request, tenant_id: UUID, binding_id: UUID) -> Response:
        """Changes the role or its end. You need as much as the role before and the one after."""
        fields = self.read(BindingChangeShape)
        role = Role(fields["role"]) if "role" in fields else None
        until = Until(fields["expires_at"]) if "expires_at" in fields else None
        return Response(_binding(change_binding(self.actor, tenant_id, binding_id, role=role, until=until)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, tenant_id: UUID, binding_id: UUID) -> Response:
        """Removes the role immediately."""
        unbind_role(self.actor, tenant_id, binding_id)
        return Response(status=204)


def _tenant(tenant: Tenant) -> dict[str, Any]:
    return dict(TenantShape(tenant).data)


def _binding(binding: Any) -> dict[str, Any]:
    return dict(BindingShape(binding).data)


def _parent(actor: Actor, word: str | None) -> Tenant | None:
    if word is None:
        return None
    try:
        return tenant_named(actor, word)
    except NotFound:
        raise Invalid.field("parent", "unknown_tenant", "there is no such tenant") from None
