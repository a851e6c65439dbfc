"""Read-only queries on prices, costs, reports and the consistency of the ledger."""

from .costs import CostView as CostView
from .costs import costs_of as costs_of
from .costs import costs_of_runs as costs_of_runs
from .costs import runs_not_charged as runs_not_charged
from .egress import egress_rates as egress_rates
from .prices import PriceView as PriceView
from .prices import announced_prices as announced_prices
from .prices import price_book as price_book
from .prices import price_spans as price_spans
from .prices import visible_prices as visible_prices
from .progress import closed_until as closed_until
from .proof import Place as Place
from .proof import discrepancies as discrepancies
from .proof import newest_place as newest_place
from .recorded import GROUPS as GROUPS
from .usage import UsageReport as UsageReport
from .usage import UsageRow as UsageRow
from .usage import usage_report as usage_report
