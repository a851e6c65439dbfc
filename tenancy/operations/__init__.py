"""The only writers of this room: tenants, roles, tokens, the audit trail, and answers kept for repeated requests."""

from .anchoring import accept_audit as accept_audit
from .anchoring import anchor_audit as anchor_audit
from .audit import record_audit as record_audit
from .bindings import bind_role as bind_role
from .bindings import unbind_role as unbind_role
from .idempotency import Answer as Answer
from .idempotency import answer_once as answer_once
from .idempotency import forget_old_answers as forget_old_answers
from .idempotency import given_answer as given_answer
from .people import bootstrap as bootstrap
from .people import ensure_user as ensure_user
from .people import give_role as give_role
from .people import give_token as give_token
from .tenants import change_tenant as change_tenant
from .tenants import create_tenant as create_tenant
from .tenants import remove_tenant as remove_tenant
from .tenants import tenant_moves as tenant_moves
from .tokens import create_token as create_token
from .tokens import note_token_use as note_token_use
from .tokens import revoke_token as revoke_token
