"""State and constraints of this room: tenants, users and their tokens, and the audit trail."""

from .people import LEAST_WEIGHT as LEAST_WEIGHT
from .people import MAX_DEPTH as MAX_DEPTH
from .people import MOST_WEIGHT as MOST_WEIGHT
from .people import NAME_PATTERN as NAME_PATTERN
from .people import ApiToken as ApiToken
from .people import IdempotencyRecord as IdempotencyRecord
from .people import Membership as Membership
from .people import OneTimeLink as OneTimeLink
from .people import RoleBinding as RoleBinding
from .people import Tenant as Tenant
from .people import User as User
from .people import UserManager as UserManager
from .trail import AuditEntry as AuditEntry
from .trail import AuditLink as AuditLink
from .trail import AuditWatch as AuditWatch
from .trail import RefusalCount as RefusalCount
from .trail import SignInTry as SignInTry
