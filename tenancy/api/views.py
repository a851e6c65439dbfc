"""The base of every view of the HTTP interface."""

from collections.abc import Callable, Collection, Mapping
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from foundation.api import as_problem
from foundation.paging import PAGE_WORDS, page_of, read_query
from foundation.problems import Problem, Unavailable
from tenancy.models import ApiToken, User
from tenancy.operations import answer_once, record_audit
from tenancy.queries import Actor, actor_for

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class ApiView(APIView):
    """Authenticates, reads strictly, answers a repeated write with its first answer, and audits refused writes.

    `filters` are the query parameters a GET may carry; a list also sets `paged` (limit, cursor, order). Any other
    parameter is refused with 422.
    """

    filters: tuple[str, ...] = ()
    paged: bool = False
    only_asks: bool = False
    """True if even its POST changes nothing: it takes no idempotency key, and a refusal is no event."""
    raw_body: bytes = b""
    is_known: bool = False

    @property
    def actor(self) -> Actor:
        """Who asks."""
        user, token = self.request.user, self.request.auth
        assert isinstance(user, User)
        return actor_for(user, token if isinstance(token, ApiToken) else None)

    def perform_authentication(self, request: Request) -> None:
        super().perform_authentication(request)
        self.is_known = isinstance(request.user, User)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        allowed = self.filters + (PAGE_WORDS if self.paged else ()) if request.method in SAFE_METHODS else ()
        self.query = read_query(request.query_params, allowed)

    def read(self, shape: type[BaseSerializer[Any]], *, partial: bool = False) -> dict[str, Any]:
        """The body's validated fields. The refusal names every invalid field."""
        serializer = shape(data=self.request.data, partial=partial)
        serializer.is_valid(raise_exception=True)
        fields: dict[str, Any] = serializer.validated_data
        return fields

    def page(
        self, rows: QuerySet[Any], *, orders: Mapping[str, str], render: Callable[[Any], Any], scope: str = ""
    ) -> Response:
        """One page of a list. Its cursor is valid only for this path, these filters and this user."""
        filters = "&".join(f"{name}={value}" for name, value in sorted(self.query.items()) if name not in PAGE_WORDS)
        where = f"{self.request.path}?{filters}|{self.actor.user_id}|{scope}"
        return Response(page_of(rows, self.query, orders=orders, scope=where, render=render))

    def created(
        self,
        request: Request,
        tenant_id: UUID | None,
        route: str,
        produce: Callable[[], tuple[int, dict[str, Any]]],
        *,
        shown_once: Collection[str] = (),
    ) -> Response:
        """Handles a creating write once per Idempotency-Key; bodies are compared as they were sent."""
        _ = request.data  # a body that is still unread is read now
        answer = answer_once(
            self.actor,
            tenant_id=tenant_id,
            route=route,
            key=request.headers.get("Idempotency-Key", ""),
            body=self.raw_body,
            produce=produce,
            shown_once=shown_once,
        )
        headers = {"Idempotent-Replayed": "true"} if answer.replayed else None
        return Response(answer.body, status=answer.status, headers=headers)

    def handle_exception(self, exc: Exception) -> Response:
        response = super().handle_exception(exc)
        problem = as_problem(exc)
        if problem is not None and self.request.method not in SAFE_METHODS and not self.only_asks:
            self._audit_refusal(problem)
        return response

    def _audit_refusal(self, problem: Problem) -> None:
        """One entry for a refused write of a known user; strangers are only logged, so that they cannot fill the trail.

        None while the database does not answer: there is nowhere to write it, and nothing was changed.
        """
        if not self.is_known or isinstance(problem, Unavailable):
            return
        match = self.request.resolver_match
        record_audit(
            self.actor,
            "request.refused",
            outcome="refused",
            object_kind="request",
            object_id=str(next(reversed(self.kwargs.values()), ""))[:64],
            tenant_id=getattr(problem, "tenant_id", None),
            detail={
                "method": self.request.method,
                "route": match.route if match else "",
                "status": problem.status,
                "code": problem.code,
                "fields": [error.field[:200] for error in problem.errors[:20]],
            },
        )
