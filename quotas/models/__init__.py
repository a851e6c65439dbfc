"""Limits on tenants and users, holds against them, the journal that changes the counters, and past use."""

from .classes import ClassLimit as ClassLimit
from .holds import Hold as Hold
from .holds import HoldMovement as HoldMovement
from .holds import ReservedQuota as ReservedQuota
from .limits import BORROWED_AT_MOST as BORROWED_AT_MOST
from .limits import MOST_RECLAIM_SECONDS as MOST_RECLAIM_SECONDS
from .limits import QuotaLimit as QuotaLimit
from .past_use import KeptIdle as KeptIdle
from .past_use import PastHalfLife as PastHalfLife
from .past_use import PastUse as PastUse
from .people import MOST_PER_MINUTE as MOST_PER_MINUTE
from .people import MOST_WAITING as MOST_WAITING
from .people import SubmissionLimit as SubmissionLimit
from .people import UserHolding as UserHolding
from .people import UserLimit as UserLimit
