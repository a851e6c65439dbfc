"""Paths of this room: `api_urlpatterns` below /api/v1/, `web_urlpatterns` below /."""

from django.urls import URLPattern, URLResolver, path

from .api.anomalies import AnomaliesView, AnomalyDecisionView, AnomalyView
from .api.budgets import ApprovalView, BudgetsView, BudgetView, OverridesView
from .api.carbon import CarbonApplyView, CarbonPlanView
from .api.commitments import (
    CommitmentsApplyView,
    CommitmentsPlanView,
    CommitmentsReportView,
    CommitmentsView,
)
from .api.conflicts import ConflictResolutionView, ConflictsView, ConflictView
from .api.corrections import CorrectionsView
from .api.credits import CreditPoliciesView, CreditPreviewView, LostWorkView
from .api.disputes import (
    InvoiceRemarksView,
    RemarkAnswerView,
    RemarkResolutionView,
    RemarksView,
    RemarkView,
)
from .api.egress import EgressPricesView, EgressPriceView
from .api.exchange import BillingCurrenciesView, ExchangeRatesImportView, ExchangeRatesView
from .api.exports import FocusSchemaView, FocusView, UsageFileView
from .api.forecasts import BudgetForecastView, ForecastView
from .api.hooks import (
    DeliverAgainView,
    DeliveriesView,
    HookConfirmationView,
    HookPauseView,
    HookResumeView,
    HooksView,
    HookTestView,
    HookView,
)
from .api.invoices import CreditNotesView, InvoicePdfView, InvoicesView, InvoiceTermsView, InvoiceView
from .api.journal import JournalView
from .api.node_hours import (
    NegativeNodeHoursView,
    NegativeNodeHourView,
    NodeBalancesView,
    NodeHourAcceptanceView,
)
from .api.opencost import AllocationView, AssetsView
from .api.own_costs import PriceModelView
from .api.periods import (
    PeriodCloseView,
    PeriodClosingCancelView,
    PeriodReopeningApprovalView,
    PeriodReopeningView,
    PeriodsView,
    PeriodView,
)
from .api.price_book import PriceBookApplyView, PriceBookPlanView, PriceBookView
from .api.reconciliation import (
    ProviderInvoicesImportView,
    ProviderInvoicesView,
    ReconciliationView,
    VarianceAcceptancesView,
    VarianceTolerancesView,
)
from .api.sharing import NegativeIdleAcceptanceView, NegativeIdleView, PoliciesView, SharingView
from .api.sharing_preview import SharingPreviewView
from .api.utilisation import UtilisationView
from .api.views import PricesView, PriceView, UsageView
from .web import (
    anomalies,
    budgets,
    commitments,
    confirm,
    conflicts,
    currencies,
    disputes,
    egress,
    files,
    forecasts,
    hooks,
    idle,
    invoices,
    lost_work,
    months,
    node_hours,
    overview,
    own_costs,
    price_book,
    price_corrections,
    prices,
    reconciliation,
    sharing,
    usage,
    utilisation,
)

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("alert-hooks", HooksView.as_view(), name="api-alert-hooks"),
    path("alert-hooks/<uuid:hook_id>", HookView.as_view(), name="api-alert-hook"),
    path("alert-hooks/<uuid:hook_id>/pause", HookPauseView.as_view(), name="api-alert-hook-pause"),
    path("alert-hooks/<uuid:hook_id>/resume", HookResumeView.as_view(), name="api-alert-hook-resume"),
    path("alert-hooks/<uuid:hook_id>/test", HookTestView.as_view(), name="api-alert-hook-test"),
    path("alert-hooks/<uuid:hook_id>/confirmation", HookConfirmationView.as_view(), name="api-alert-hook-confirmation"),
    path("alert-hooks/<uuid:hook_id>/deliveries", DeliveriesView.as_view(), name="api-alert-deliveries"),
    path(
        "alert-hooks/<uuid:hook_id>/deliveries/<uuid:uid>/again",
        DeliverAgainView.as_view(),
        name="api-alert-delivery-again",
    ),
    path("anomalies", AnomaliesView.as_view(), name="api-anomalies"),
    path("anomalies/<uuid:anomaly_id>", AnomalyView.as_view(), name="api-anomaly"),
    path("anomalies/<uuid:anomaly_id>/decide", AnomalyDecisionView.as_view(), name="api-anomaly-decide"),
    path("budgets", BudgetsView.as_view(), name="api-budgets"),
    path("budgets/<uuid:budget_id>", BudgetView.as_view(), name="api-budget"),
    path("budgets/<uuid:budget_id>/forecast", BudgetForecastView.as_view(), name="api-budget-forecast"),
    path("budgets/<uuid:budget_id>/overrides", OverridesView.as_view(), name="api-budget-overrides"),
    path(
        "budgets/<uuid:budget_id>/overrides/<uuid:override_id>/approve",
        ApprovalView.as_view(),
        name="api-budget-override-approve",
    ),
    path("commitments", CommitmentsView.as_view(), name="api-commitments"),
    path("commitments/apply", CommitmentsApplyView.as_view(), name="api-commitments-apply"),
    path("commitments/plan", CommitmentsPlanView.as_view(), name="api-commitments-plan"),
    path("commitments/report", CommitmentsReportView.as_view(), name="api-commitments-report"),
    path("prices", PricesView.as_view(), name="api-prices"),
    path("price-book", PriceBookView.as_view(), name="api-price-book"),
    path("price-book/apply", PriceBookApplyView.as_view(), name="api-price-book-apply"),
    path("price-book/plan", PriceBookPlanView.as_view(), name="api-price-book-plan"),
    path("prices/model", PriceModelView.as_view(), name="api-prices-model"),
    path("prices/<uuid:price_id>", PriceView.as_view(), name="api-price"),
    path("prices/<uuid:price_id>/corrections", CorrectionsView.as_view(), name="api-price-corrections"),
    path("credit-policies", CreditPoliciesView.as_view(), name="api-credit-policies"),
    path("credit-policies/preview", CreditPreviewView.as_view(), name="api-credit-policies-preview"),
    path("lost-work", LostWorkView.as_view(), name="api-lost-work"),
    path("egress-prices", EgressPricesView.as_view(), name="api-egress-prices"),
    path("egress-prices/<uuid:price_id>", EgressPriceView.as_view(), name="api-egress-price"),
    path("billing-currencies", BillingCurrenciesView.as_view(), name="api-billing-currencies"),
    path("exchange-rates", ExchangeRatesView.as_view(), name="api-exchange-rates"),
    path("exchange-rates/import", ExchangeRatesImportView.as_view(), name="api-exchange-rates-import"),
    path("exports/focus", FocusView.as_view(), name="api-exports-focus"),
    path("exports/focus/schema", FocusSchemaView.as_view(), name="api-exports-focus-schema"),
    path("exports/journal", JournalView.as_view(), name="api-exports-journal"),
    path("forecast", ForecastView.as_view(), name="api-forecast"),
    path("invoice-remarks", RemarksView.as_view(), name="api-invoice-remarks"),
    path("invoice-remarks/<uuid:remark_id>", RemarkView.as_view(), name="api-invoice-remark"),
    path("invoice-remarks/<uuid:remark_id>/answer", RemarkAnswerView.as_view(), name="api-invoice-remark-answer"),
    path("invoice-remarks/<uuid:remark_id>/resolve", RemarkResolutionView.as_view(), name="api-invoice-remark-resolve"),
    path("invoices/<uuid:invoice_id>/remarks", InvoiceRemarksView.as_view(), name="api-remarks-of-invoice"),
    path("invoice-terms", InvoiceTermsView.as_view(), name="api-invoice-terms"),
    path("invoices", InvoicesView.as_view(), name="api-invoices"),
    path("invoices/<uuid:invoice_id>", InvoiceView.as_view(), name="api-invoice"),
    path("invoices/<uuid:invoice_id>.pdf", InvoicePdfView.as_view(), name="api-invoice-pdf"),
    path("invoices/<uuid:invoice_id>/credit-notes", CreditNotesView.as_view(), name="api-credit-notes"),
    path("exports/usage", UsageFileView.as_view(), name="api-exports-usage"),
    path("periods", PeriodsView.as_view(), name="api-periods"),
    path("periods/<uuid:period_id>", PeriodView.as_view(), name="api-period"),
    path("periods/<uuid:period_id>/close", PeriodCloseView.as_view(), name="api-period-close"),
    path(
        "periods/<uuid:period_id>/cancel-closing", PeriodClosingCancelView.as_view(), name="api-period-cancel-closing"
    ),
    path("periods/<uuid:period_id>/reopening", PeriodReopeningView.as_view(), name="api-period-reopening"),
    path(
        "periods/<uuid:period_id>/reopening/approve",
        PeriodReopeningApprovalView.as_view(),
        name="api-period-reopening-approval",
    ),
    path("posting-conflicts", ConflictsView.as_view(), name="api-posting-conflicts"),
    path("posting-conflicts/<uuid:conflict_id>", ConflictView.as_view(), name="api-posting-conflict"),
    path(
        "posting-conflicts/<uuid:conflict_id>/resolve",
        ConflictResolutionView.as_view(),
        name="api-posting-conflict-resolve",
    ),
    path("carbon/plan", CarbonPlanView.as_view(), name="api-carbon-plan"),
    path("carbon/apply", CarbonApplyView.as_view(), name="api-carbon-apply"),
    path("provider-invoices", ProviderInvoicesView.as_view(), name="api-provider-invoices"),
    path("provider-invoices/import", ProviderInvoicesImportView.as_view(), name="api-provider-invoices-import"),
    path("reconciliation", ReconciliationView.as_view(), name="api-reconciliation"),
    path("variance-acceptances", VarianceAcceptancesView.as_view(), name="api-variance-acceptances"),
    path("variance-tolerances", VarianceTolerancesView.as_view(), name="api-variance-tolerances"),
    path("allocation", AllocationView.as_view(), name="api-allocation"),
    path("assets", AssetsView.as_view(), name="api-assets"),
    path("idle", SharingView.as_view(), name="api-idle"),
    path("negative-idle", NegativeIdleView.as_view(), name="api-negative-idle"),
    path("negative-idle/<uuid:row_id>/accept", NegativeIdleAcceptanceView.as_view(), name="api-negative-idle-accept"),
    path("node-hours", NegativeNodeHoursView.as_view(), name="api-node-hours"),
    path("node-hours/balance", NodeBalancesView.as_view(), name="api-node-hours-balance"),
    path("node-hours/<uuid:row_id>", NegativeNodeHourView.as_view(), name="api-node-hour"),
    path("node-hours/<uuid:row_id>/accept", NodeHourAcceptanceView.as_view(), name="api-node-hour-accept"),
    path("sharing-policies", PoliciesView.as_view(), name="api-sharing-policies"),
    path("sharing-policies/preview", SharingPreviewView.as_view(), name="api-sharing-policies-preview"),
    path("usage", UsageView.as_view(), name="api-usage"),
    path("utilisation", UtilisationView.as_view(), name="api-utilisation"),
]
web_urlpatterns: list[URLPattern | URLResolver] = [
    path("anomalies/", anomalies.anomalies, name="anomalies"),
    path("anomalies/<uuid:anomaly_id>/", anomalies.anomaly, name="anomaly"),
    path("budgets/", budgets.budgets, name="budgets"),
    path("budgets/hooks/", hooks.hooks, name="alert-hooks"),
    path("budgets/hooks/<uuid:hook_id>/", hooks.hook, name="alert-hook"),
    path("budgets/hooks/<uuid:hook_id>/confirmation/", hooks.send_confirmation, name="alert-hook-confirmation"),
    path("budgets/hooks/<uuid:hook_id>/test/", hooks.send_test, name="alert-hook-test"),
    path("budgets/hooks/<uuid:hook_id>/pause/", hooks.pause, name="alert-hook-pause"),
    path("budgets/hooks/<uuid:hook_id>/resume/", hooks.resume, name="alert-hook-resume"),
    path("budgets/hooks/<uuid:hook_id>/remove/", hooks.remove, name="alert-hook-remove"),
    path("budgets/hooks/<uuid:hook_id>/deliveries/<uuid:uid>/again/", hooks.again, name="alert-delivery-again"),
    path("budgets/set/", budgets.edit, name="budget-edit"),
    path("budgets/<uuid:budget_id>/", budgets.budget, name="budget"),
    path("budgets/<uuid:budget_id>/remove/", budgets.remove, name="budget-remove"),
    path("budgets/<uuid:budget_id>/overrides/<uuid:override_id>/approve/", budgets.approve, name="budget-approve"),
    path("commitments/", commitments.commitments, name="commitments"),
    path("confirm/address/", confirm.confirm, name="confirm-address"),
    path("currencies/", currencies.currencies, name="currencies"),
    path("lost-work/", lost_work.lost_work, name="lost-work"),
    path("forecast/", forecasts.forecast, name="forecast"),
    path("idle/", idle.idle, name="idle"),
    path("idle/policies/", sharing.policies, name="sharing-policies"),
    path("idle/node-hours/", node_hours.node_hours, name="node-hours"),
    path("idle/node-hours/<uuid:row_id>/", node_hours.node_hour, name="node-hour"),
    path("invoices/", invoices.invoices, name="invoices"),
    path("invoices/terms/", invoices.terms, name="invoice-terms"),
    path("invoices/remarks/", disputes.remarks, name="invoice-remarks"),
    path("invoices/<uuid:invoice_id>/", invoices.invoice, name="invoice"),
    path("invoices/<uuid:invoice_id>/remarks/", disputes.remarks_of, name="remarks-of-invoice"),
    path("invoices/remarks/<uuid:remark_id>/", disputes.remark, name="invoice-remark"),
    path("months/", months.months, name="months"),
    path("months/conflicts/", conflicts.conflicts, name="conflicts"),
    path("months/conflicts/<uuid:conflict_id>/", conflicts.conflict, name="conflict"),
    path("months/reconciliation/", reconciliation.reconciliation, name="reconciliation"),
    path("months/<uuid:period_id>/", months.month, name="month"),
    path("months/<uuid:period_id>/close/", months.close, name="month-close"),
    path("months/<uuid:period_id>/cancel-closing/", months.cancel, name="month-cancel-closing"),
    path("months/<uuid:period_id>/approve/", months.approve, name="month-approve"),
    path("usage/", usage.usage, name="usage"),
    path("usage/files/", files.files, name="files"),
    path("usage/overview/", overview.overview, name="cost-overview"),
    path("usage/utilisation/", utilisation.utilisation, name="utilisation"),
    path("prices/", prices.prices, name="prices"),
    path("prices/<uuid:price_id>/", price_corrections.price, name="price"),
    path("prices/own-costs/", own_costs.own_costs, name="own-costs"),
    path("prices/file/", price_book.price_book, name="price-book"),
    path("prices/egress/", egress.egress, name="egress"),
    path("prices/egress/<uuid:price_id>/end/", egress.end, name="egress-end"),
]
