"""The only writers of quota: they take and end holds in batches, and create, change and remove limits."""

from quotas.engine.holds import HoldRefusal as HoldRefusal
from quotas.engine.holds import HoldRequest as HoldRequest

from .class_limits import delete_class_limit as delete_class_limit
from .class_limits import put_class_limit as put_class_limit
from .class_limits import put_class_limits as put_class_limits
from .holds import end_holds as end_holds
from .holds import keep_half_life as keep_half_life
from .holds import take_holds as take_holds
from .kept_idle import Idle as Idle
from .kept_idle import end_idle as end_idle
from .kept_idle import keep_idle as keep_idle
from .limits import WantedLimit as WantedLimit
from .limits import delete_limit as delete_limit
from .limits import keep_limits_at as keep_limits_at
from .limits import put_limit as put_limit
from .moves import take_holds_along as take_holds_along
from .reserved import end_reserved_quota as end_reserved_quota
from .reserved import reserve_quota as reserve_quota
from .submission_limits import delete_submission_limit as delete_submission_limit
from .submission_limits import put_submission_limit as put_submission_limit
from .user_limits import delete_user_limit as delete_user_limit
from .user_limits import put_user_limit as put_user_limit
