"""State and constraints of this room: prices, metered usage, the ledger of money with its periods, and budgets."""

from .budgets import Budget as Budget
from .budgets import BudgetAlert as BudgetAlert
from .budgets import BudgetHold as BudgetHold
from .budgets import BudgetMovement as BudgetMovement
from .budgets import BudgetOverride as BudgetOverride
from .budgets import BudgetPeriod as BudgetPeriod
from .ledger import LedgerAccount as LedgerAccount
from .ledger import LedgerEntry as LedgerEntry
from .ledger import LedgerLine as LedgerLine
from .ledger import LedgerStep as LedgerStep
from .ledger import PostingConflict as PostingConflict
from .ledger import PriceCorrection as PriceCorrection
from .ledger import TenantDay as TenantDay
from .metering import MOST_INTERRUPTIONS as MOST_INTERRUPTIONS
from .metering import EgressPrice as EgressPrice
from .metering import EgressRoute as EgressRoute
from .metering import Meter as Meter
from .metering import Price as Price
from .metering import Rate as Rate
from .metering import TenantMonth as TenantMonth
from .metering import UsageSegment as UsageSegment
from .periods import LedgerPeriod as LedgerPeriod
from .periods import PeriodClose as PeriodClose
from .periods import PeriodReopening as PeriodReopening
