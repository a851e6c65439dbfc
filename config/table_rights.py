"""The rights of the gateway's processes on each table, besides reading it. All grants follow from this one list.

A table without an entry allows SELECT, INSERT, UPDATE and DELETE. No table may be truncated or altered.
"""

from collections.abc import Mapping

ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")
READ = ("SELECT",)
GROWS = ("SELECT", "INSERT")
KEPT = ("SELECT", "INSERT", "UPDATE")

TABLE_RIGHTS: Mapping[str, tuple[str, ...]] = {
    # Written by migrations.
    "django_migrations": READ,
    "django_content_type": READ,
    "auth_permission": READ,
    # Written by a trigger of the owner at commit.
    "tenancy_auditlink": READ,
    "tenancy_auditentry": GROWS,
    "tenancy_auditwatch": KEPT,
    "django_admin_log": GROWS,
    "quotas_holdmovement": GROWS,
    "quotas_hold": KEPT,
    "quotas_reservedquota": KEPT,
    "quotas_keptidle": KEPT,
    # Written by a trigger of the owner with the end of each hold.
    "quotas_pastuse": READ,
    "quotas_pasthalflife": KEPT,
    # Begun at zero by takers; changed by triggers of the owner with holds and limits.
    "quotas_userholding": GROWS,
    "billing_usagesegment": GROWS,
    "billing_meter": KEPT,
    "billing_meterrevision": GROWS,
    # Written by a trigger of the owner with each revision, which also deletes the segments that it replaces.
    "billing_replacedsegment": READ,
    "billing_budget": KEPT,
    "billing_budgetperiod": KEPT,
    "billing_budgethold": KEPT,
    "billing_budgetmovement": GROWS,
    "billing_budgetrate": GROWS,
    "billing_budgetalert": GROWS,
    "billing_budgetforecastalert": GROWS,
    "billing_budgetoverride": KEPT,
    "billing_spendanomaly": KEPT,
    "billing_recommendation": KEPT,
    "billing_requiredlabels": GROWS,
    # Written by a trigger of the owner with each segment.
    "billing_tenantmonth": READ,
    "billing_tenantday": READ,
    "billing_meterday": READ,
    "billing_pricecorrection": GROWS,
    "billing_ledgeraccount": GROWS,
    "billing_ledgerentry": GROWS,
    "billing_ledgerline": GROWS,
    "billing_ledgerstep": GROWS,
    "billing_postingconflict": KEPT,
    "billing_ledgerperiod": KEPT,
    # Written by a trigger of the owner when a period closes.
    "billing_periodclose": READ,
    "billing_periodreopening": KEPT,
    "billing_sharingpolicy": GROWS,
    "billing_poolday": GROWS,
    "billing_providerinvoiceline": KEPT,
    "billing_variancetolerance": GROWS,
    "billing_acceptedvariance": GROWS,
    "billing_reconciledcluster": GROWS,
    "billing_creditpolicy": GROWS,
    "billing_billingcurrency": GROWS,
    "billing_exchangerate": GROWS,
    "billing_lostwork": GROWS,
    "billing_gridintensity": GROWS,
    "billing_powerrating": GROWS,
    "billing_carbonsite": GROWS,
    "billing_measuredenergy": GROWS,
    "billing_commitment": GROWS,
    "billing_commitmentversion": GROWS,
    "billing_commitmentday": GROWS,
    "billing_commitmenthour": GROWS,
    "billing_negativeidle": KEPT,
    "billing_negativenodehour": KEPT,
    "billing_utilisationhour": KEPT,
    "billing_invoiceterms": KEPT,
    "billing_invoice": GROWS,
    "billing_invoiceline": GROWS,
    "billing_invoiceremark": KEPT,
    # Written by a trigger of the owner with each line of a document.
    "billing_invoicebalance": READ,
    "federation_jobevent": GROWS,
    "federation_job": KEPT,
    "federation_datawait": KEPT,
    "federation_attempt": KEPT,
    "federation_remoteobject": KEPT,
    "federation_podrun": KEPT,
    "federation_reservation": KEPT,
    "federation_reservednode": KEPT,
    "federation_standstill": KEPT,
    "federation_databasehistory": KEPT,
    "federation_comparedcluster": KEPT,
    "federation_retrybrake": KEPT,
    "federation_preemption": KEPT,
    "federation_preemptionvictim": GROWS,
    # Deleted only as a trigger allows: with the stop of a run that goes on.
    "federation_move": ("SELECT", "INSERT", "DELETE"),
    "federation_keptroom": KEPT,
    "federation_keptplace": KEPT,
    "federation_consolidation": KEPT,
    "federation_artifact": KEPT,
    "federation_sessionuse": KEPT,
    "clusters_avoidednode": KEPT,
    # Written by triggers of the owner with each change of nodes.
    "clusters_nodeoffer": READ,
    "clusters_nodespan": READ,
    "clusters_maintenancewindow": KEPT,
}
# Triggers that write tables which the processes may only read. They run as their owner, the only role that may change
# them.
OWNERS_TRIGGERS = (
    "tenancy_audit_chain",
    "billing_add_to_months",
    "billing_add_to_days",
    "billing_add_to_meter_days",
    "billing_revise_meter",
    "billing_take_step",
    "billing_mark_corrected_days",
    "billing_mark_lost_days",
    "billing_mark_policy_days",
    "billing_record_close",
    "billing_balance_line",
    "clusters_record_history",
    "clusters_record_silence",
    "quotas_add_past_use",
    "quotas_count_past_use",
    "quotas_users_take",
    "quotas_users_give_back",
    "quotas_guard_user_limit",
    "quotas_count_users",
)
