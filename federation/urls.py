"""Paths of this room: `api_urlpatterns` below /api/v1/, `web_urlpatterns` below /."""

from django.urls import URLPattern, URLResolver, path

from .api import advice as advice_api
from .api import artifacts as artifacts_api
from .api import attestations, quotes
from .api import class_limits as class_limits_api
from .api import consolidations as consolidations_api
from .api import failure_rules as failure_rules_api
from .api import jobs as api
from .api import kept_room as kept_room_api
from .api import made_moves as made_moves_api
from .api import moves as moves_api
from .api import nodes as nodes_api
from .api import partitions as partitions_api
from .api import policies as policies_api
from .api import preemptions as preemptions_api
from .api import prepulls as prepulls_api
from .api import previews as previews_api
from .api import priority_classes as priority_classes_api
from .api import recommendations as recommendations_api
from .api import reports as reports_api
from .api import reservations as reservations_api
from .api import sessions as sessions_api
from .api import shares as shares_api
from .api import staging as staging_api
from .api import standstill as standstill_api
from .api import tree as tree_api
from .api import unit_costs as unit_costs_api
from .api.metrics import metrics
from .web import (
    attesting,
    capacity,
    class_limits,
    failure_rules,
    findings,
    home,
    jobs,
    logs,
    moves,
    nodes,
    partitions,
    policies,
    prepulls,
    previews,
    priority_classes,
    recommendations,
    reservations,
    sessions,
    shares,
    staging,
    standstill,
    submit,
    unit_costs,
)

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("jobs", api.Jobs.as_view()),
    path("jobs/bulk", api.JobsInBulk.as_view()),
    path("jobs/<uuid:job_id>", api.OneJob.as_view()),
    path("jobs/<uuid:job_id>/cancel", api.Cancellation.as_view()),
    path("jobs/<uuid:job_id>/suspend", api.Suspension.as_view()),
    path("jobs/<uuid:job_id>/resume", api.Resumption.as_view()),
    path("jobs/<uuid:job_id>/migrate", moves_api.Migration.as_view()),
    path("jobs/<uuid:job_id>/migrate/preview", moves_api.MigrationPreview.as_view()),
    path("jobs/<uuid:job_id>/attempts", api.Attempts.as_view()),
    path("jobs/<uuid:job_id>/events", api.Events.as_view()),
    path("jobs/<uuid:job_id>/explanation", api.Explanation.as_view()),
    path("jobs/<uuid:job_id>/tickets", sessions_api.Tickets.as_view()),
    path("jobs/<uuid:job_id>/logs", api.Logs.as_view()),
    path("jobs/<uuid:job_id>/preemptions", preemptions_api.Preemptions.as_view()),
    path("jobs/<uuid:job_id>/consolidations", consolidations_api.Consolidations.as_view()),
    path("jobs/<uuid:job_id>/moves", made_moves_api.MadeMoves.as_view()),
    path("jobs/<uuid:job_id>/reports", reports_api.JobReports.as_view()),
    path("jobs/<uuid:job_id>/artifacts", artifacts_api.JobArtifacts.as_view()),
    path("attempts/<uuid:attempt_id>/reports", reports_api.AttemptReports.as_view()),
    path("attempts/<uuid:attempt_id>/attestation", attestations.RunAttestation.as_view()),
    path("clusters/<uuid:cluster_id>/attestations", attestations.ClusterAttestations.as_view()),
    path("clusters/<uuid:cluster_id>/prepull-policies", prepulls_api.PrepullPoliciesView.as_view()),
    path("clusters/<uuid:cluster_id>/prepull-policies/<uuid:policy_id>", prepulls_api.PrepullPolicyView.as_view()),
    path("clusters/<uuid:cluster_id>/prepull-policies/<uuid:policy_id>/retry", prepulls_api.PrepullRetryView.as_view()),
    path("clusters/<uuid:cluster_id>/prepull-policies/<uuid:policy_id>/nodes", prepulls_api.PrepullNodesView.as_view()),
    path("clusters/<uuid:cluster_id>/nodes/<str:node>", nodes_api.NodeView.as_view()),
    path("clusters/<uuid:cluster_id>/nodes/<str:node>/history", nodes_api.NodeHistoryView.as_view()),
    path("clusters/<uuid:cluster_id>/partitions", partitions_api.PartitionsView.as_view()),
    path("clusters/<uuid:cluster_id>/staging-plans", staging_api.ClusterStagingView.as_view()),
    path("datasets/<uuid:dataset_id>/staging-plans", staging_api.StagingPlansView.as_view()),
    path("datasets/<uuid:dataset_id>/staging-plans/<uuid:plan_id>", staging_api.StagingPlanView.as_view()),
    path("datasets/<uuid:dataset_id>/staging-plans/<uuid:plan_id>/start", staging_api.StageInStartView.as_view()),
    path("datasets/<uuid:dataset_id>/staging-plans/<uuid:plan_id>/cancel", staging_api.StageInCancelView.as_view()),
    path("jobs/<uuid:job_id>/run-without-data", staging_api.RunWithoutDataView.as_view()),
    path("quotes", quotes.Quotes.as_view()),
    path("capacity", quotes.Room.as_view()),
    path("class-limits", class_limits_api.ClassLimits.as_view()),
    path("class-limits/<uuid:limit_id>", class_limits_api.OneClassLimit.as_view()),
    path("priority-classes", priority_classes_api.PriorityClasses.as_view()),
    path("priority-classes/<uuid:class_id>", priority_classes_api.OnePriorityClass.as_view()),
    path("shares", shares_api.Shares.as_view()),
    path("kept-room", kept_room_api.KeptRooms.as_view()),
    path("tree", tree_api.Tree.as_view()),
    path("tree/plan", tree_api.TreePlanView.as_view()),
    path("tree/apply", tree_api.TreeApplyView.as_view()),
    path("tree/preview", previews_api.TreePreview.as_view()),
    path("quotas/preview", previews_api.QuotaPreview.as_view()),
    path("recommendations", advice_api.StandingRecommendationsView.as_view(), name="api-recommendations"),
    path("recommendations/report", recommendations_api.RecommendationsView.as_view(), name="api-findings"),
    path("recommendations/<uuid:recommendation_id>", advice_api.StandingRecommendationView.as_view()),
    path("recommendations/<uuid:recommendation_id>/accept", advice_api.RecommendationAcceptView.as_view()),
    path("recommendations/<uuid:recommendation_id>/dismiss", advice_api.RecommendationDismissView.as_view()),
    path("recommendations/<uuid:recommendation_id>/reopen", advice_api.RecommendationReopenView.as_view()),
    path("required-labels", advice_api.RequiredLabelsView.as_view()),
    path("reservations", reservations_api.Reservations.as_view()),
    path("reservations/<uuid:reservation_id>", reservations_api.OneReservation.as_view()),
    path("tenants/<uuid:tenant_id>/policy", policies_api.PolicyOfTenant.as_view()),
    path("tenants/<uuid:tenant_id>/failure-rules", failure_rules_api.RulesOfTenant.as_view()),
    path("unit-costs", unit_costs_api.UnitCostsView.as_view(), name="api-unit-costs"),
    path("standstill", standstill_api.StandstillView.as_view()),
    path("standstill/open", standstill_api.Opening.as_view()),
]
web_urlpatterns: list[URLPattern | URLResolver] = [
    path("metrics", metrics, name="metrics"),
    path("", home.home, name="home"),
    path("jobs/", jobs.jobs, name="jobs"),
    path("jobs/new/", submit.submit, name="job-submit"),
    path("jobs/<uuid:job_id>/", jobs.job, name="job"),
    path("jobs/<uuid:job_id>/cancel/", jobs.cancel, name="job-cancel"),
    path("jobs/<uuid:job_id>/move/", moves.move, name="job-move"),
    path("jobs/<uuid:job_id>/suspend/", jobs.suspend, name="job-suspend"),
    path("jobs/<uuid:job_id>/resume/", jobs.resume, name="job-resume"),
    path("jobs/<uuid:job_id>/session/", sessions.open_session, name="job-session"),
    path("jobs/<uuid:job_id>/logs/", logs.logs, name="job-logs"),
    path("clusters/<uuid:cluster_id>/runs/", attesting.runs, name="cluster-runs"),
    path("clusters/<uuid:cluster_id>/attest/<slug:what>/", attesting.attest, name="cluster-attest"),
    path("clusters/<uuid:cluster_id>/images/", prepulls.prepulls, name="prepulls"),
    path("clusters/<uuid:cluster_id>/images/declare/", prepulls.declare, name="prepull-declare"),
    path("clusters/<uuid:cluster_id>/images/<uuid:policy_id>/<slug:verb>/", prepulls.act, name="prepull-act"),
    path("clusters/<uuid:cluster_id>/nodes/<str:node>/", nodes.node, name="node"),
    path("clusters/<uuid:cluster_id>/partitions/", partitions.partitions, name="partitions"),
    path("clusters/<uuid:cluster_id>/staging/", staging.on_cluster, name="cluster-staging"),
    path("datasets/<uuid:dataset_id>/staging/", staging.staging, name="staging"),
    path("datasets/<uuid:dataset_id>/staging/declare/", staging.declare, name="staging-declare"),
    path("datasets/<uuid:dataset_id>/staging/<uuid:plan_id>/<slug:verb>/", staging.act, name="staging-act"),
    path("jobs/<uuid:job_id>/run-without-data/", staging.without_data, name="job-without-data"),
    path("attempts/<uuid:attempt_id>/attest/", attesting.attest_one, name="attempt-attest"),
    path("usage/unit-costs/", unit_costs.unit_costs, name="unit-costs"),
    path("standstill/", standstill.shown, name="standstill"),
    path("standstill/open/", standstill.open_again, name="standstill-open"),
    path("capacity/", capacity.capacity, name="capacity"),
    path("quotas/preview/", previews.quota_preview, name="quota-preview"),
    path("shares/", shares.shares, name="shares"),
    path("shares/set/", shares.set_share, name="share-set"),
    path("usage/recommendations/", recommendations.recommendations, name="recommendations"),
    path("usage/recommendations/month/", findings.shown, name="findings"),
    path("usage/recommendations/labels/", recommendations.labels, name="required-labels"),
    path("usage/recommendations/<uuid:recommendation_id>/", recommendations.recommendation, name="recommendation"),
    path("reservations/", reservations.reservations, name="reservations"),
    path("reservations/new/", reservations.reserve, name="reserve"),
    path("reservations/<uuid:reservation_id>/", reservations.reservation, name="reservation"),
    path("reservations/<uuid:reservation_id>/cancel/", reservations.cancel, name="reservation-cancel"),
    path("quotas/classes/set/", class_limits.edit, name="class-limit-edit"),
    path("quotas/classes/<uuid:limit_id>/remove/", class_limits.remove, name="class-limit-remove"),
    path("priority-classes/", priority_classes.priority_classes, name="priority-classes"),
    path("priority-classes/new/", priority_classes.create, name="priority-class-new"),
    path("priority-classes/<uuid:class_id>/", priority_classes.edit, name="priority-class"),
    path("priority-classes/<uuid:class_id>/remove/", priority_classes.remove, name="priority-class-remove"),
    path("tenants/<uuid:tenant_id>/policy/", policies.policy, name="policy"),
    path("tenants/<uuid:tenant_id>/policy/remove/", policies.remove, name="policy-remove"),
    path("tenants/<uuid:tenant_id>/failure-rules/", failure_rules.rules, name="failure-rules"),
    path("tenants/<uuid:tenant_id>/failure-rules/rule/", failure_rules.rule, name="failure-rule"),
    path("tenants/<uuid:tenant_id>/failure-rules/change/", failure_rules.change, name="failure-rules-change"),
]
