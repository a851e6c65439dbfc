"""The only writers of this room: tenants, roles, tokens, the audit trail, and responses stored for repeated
requests.
"""

from .access import change_password as change_password
from .access import end_sessions as end_sessions
from .aging import forget_what_is_over as forget_what_is_over
from .anchoring import accept_audit as accept_audit
from .anchoring import anchor_audit as anchor_audit
from .audit import record_audit as record_audit
from .bindings import bind_role as bind_role
from .bindings import unbind_role as unbind_role
from .idempotency import Answer as Answer
from .idempotency import Slot as Slot
from .idempotency import answer_once as answer_once
from .idempotency import claim_keys as claim_keys
from .idempotency import forget_old_answers as forget_old_answers
from .idempotency import given_answer as given_answer
from .idempotency import kept_answers as kept_answers
from .links import accept_as_new as accept_as_new
from .links import accept_invitation as accept_invitation
from .links import invite as invite
from .links import make_link as make_link
from .links import open_link as open_link
from .links import set_password_by_link as set_password_by_link
from .links import withdraw_invitation as withdraw_invitation
from .memberships import remove_member as remove_member
from .people import bootstrap as bootstrap
from .people import ensure_user as ensure_user
from .people import give_role as give_role
from .people import give_token as give_token
from .refusals import note_stranger_refused as note_stranger_refused
from .refusals import tell_counted_refusals as tell_counted_refusals
from .sign_in_tries import WINDOW as WINDOW
from .sign_in_tries import forget_old_tries as forget_old_tries
from .sign_in_tries import refill as refill
from .sign_in_tries import return_try as return_try
from .sign_in_tries import take_try as take_try
from .tenants import change_tenant as change_tenant
from .tenants import create_tenant as create_tenant
from .tenants import remove_tenant as remove_tenant
from .tenants import tenant_moves as tenant_moves
from .tokens import create_token as create_token
from .tokens import note_token_use as note_token_use
from .tokens import revoke_token as revoke_token
