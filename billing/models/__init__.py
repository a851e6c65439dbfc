"""State and constraints of this room: prices, metered usage and its cost, budgets."""

from .budgets import Budget as Budget
from .budgets import BudgetAlert as BudgetAlert
from .budgets import BudgetHold as BudgetHold
from .budgets import BudgetMovement as BudgetMovement
from .budgets import BudgetOverride as BudgetOverride
from .budgets import BudgetPeriod as BudgetPeriod
from .usage import MOST_INTERRUPTIONS as MOST_INTERRUPTIONS
from .usage import EgressPrice as EgressPrice
from .usage import EgressRoute as EgressRoute
from .usage import Meter as Meter
from .usage import Price as Price
from .usage import Rate as Rate
from .usage import TenantMonth as TenantMonth
from .usage import UsageSegment as UsageSegment
