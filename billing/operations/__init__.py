"""The only writers of prices, usage and budgets."""

from billing.engine.runs import ObservedRun as ObservedRun
from billing.engine.runs import TrueEnd as TrueEnd

from .budget_holds import Takers as Takers
from .budget_holds import adjust_budget_holds as adjust_budget_holds
from .budget_holds import end_budget_holds as end_budget_holds
from .credits import record_lost_work as record_lost_work
from .metering import correct_ends as correct_ends
from .metering import record_runs as record_runs
from .prices import create_price as create_price
