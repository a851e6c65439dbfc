"""Checks the budgets: their counters against the journal, and the journal against metered usage and corrections."""

from foundation.proofs import findings


def discrepancies(*, is_full: bool) -> tuple[str, ...]:
    """Errors in the budgets, as sentences. In part: without the comparison with all segments of all periods."""
    return tuple(findings(FULL_PROOFS if is_full else PROOFS, {}))


PROOFS = (
    (
        "budget period {0} counts {1} held and {2} spent, but its journal has {3} and {4}",
        """
        SELECT p.id, p.held, p.spent, coalesce(sum(m.held), 0), coalesce(sum(m.spent), 0) FROM billing_budgetperiod AS p
        LEFT JOIN billing_budgetmovement AS m ON m.period_id = p.id
        GROUP BY p.id HAVING (p.held, p.spent) IS DISTINCT FROM (coalesce(sum(m.held), 0), coalesce(sum(m.spent), 0)) ORDER BY p.id
        """,
    ),
    (
        "budget period {0} allows {1}, but {2} is spent and held",
        "SELECT id, cap, spent + held FROM billing_budgetperiod WHERE cap < spent + held OR held < 0 ORDER BY id",
    ),
    (
        "the budget hold of run {0} is {1} and still holds {2} in period {3}",
        """
        SELECT m.run_id, coalesce(h.state, 'missing'), sum(m.held), m.period_id FROM billing_budgetmovement AS m
        LEFT JOIN billing_budgethold AS h ON h.holder_id = m.run_id
        GROUP BY m.run_id, h.state, m.period_id
        HAVING sum(m.held) < 0 OR sum(m.held) > 0 AND h.state IS DISTINCT FROM 'pending' ORDER BY m.run_id, m.period_id
        """,
    ),
    (
        "pending budget hold {0} is not counted at budget {1}",
        """
        SELECT h.holder_id, b.id FROM billing_budgethold AS h CROSS JOIN LATERAL quotas_tenants_above(h.tenant_id) AS up
        JOIN billing_budget AS b ON b.tenant_id = up.id AND b.removed_at IS NULL
        WHERE h.state = 'pending'
            AND lower(billing_budget_window(b.period, b.starts_at, b.ends_at, h.starts_at)) >= b.counts_from
            AND NOT EXISTS (SELECT 1 FROM billing_budgetmovement AS m JOIN billing_budgetperiod AS p ON p.id = m.period_id
                WHERE m.run_id = h.holder_id AND p.budget_id = b.id AND m.kind IN ('take', 'open'))
        ORDER BY h.holder_id, b.id
        """,
    ),
    (
        "budgets of {0} count nothing that was charged in {1} on {3}: no rate into {2} was known",
        """
        SELECT t.path, k.base, k.quote, k.day FROM billing_budgetrate AS k JOIN tenancy_tenant AS t ON t.id = k.organisation_id
        WHERE k.rate = 0 ORDER BY 1, 4, 2, 3
        """,
    ),
)
"""Each entry: a sentence and the query whose rows fill it. No rows means no error."""
FULL_PROOFS = (
    *PROOFS,
    (
        "run {0} spent {1} of budget period {2} by the journal, but {3} by its segments",
        """
        WITH runs AS MATERIALIZED (
            SELECT m.run_id, m.tenant_id, t.path FROM billing_meter AS m JOIN tenancy_tenant AS t ON t.id = m.tenant_id
            GROUP BY m.run_id, m.tenant_id, t.path HAVING bool_and(m.tenant_path = t.path)
        ), due AS (
            SELECT runs.run_id, p.id AS period_id, sum(billing_budget_use(
                b.measure, b.currency, billing_cost_in(b.currency, b.tenant_id, s.cost, s.currency, lower(s.period)), b.currency,
                s.gpu_milliseconds, m.gpu_numerator, m.gpu_denominator)) AS spent
            FROM runs CROSS JOIN LATERAL quotas_tenants_above(runs.tenant_id) AS up
            JOIN billing_budget AS b ON b.tenant_id = up.id AND b.removed_at IS NULL
            JOIN billing_meter AS m ON m.run_id = runs.run_id JOIN billing_usagesegment AS s ON s.meter_id = m.id
                AND isfinite(lower(s.period)) AND lower(s.period) >= b.counts_from
            JOIN billing_budgetperiod AS p ON p.budget_id = b.id AND lower(s.period) >= p.starts_at AND lower(s.period) < p.ends_at
            GROUP BY runs.run_id, p.id
        ), kept AS (
            SELECT line.run_id, line.period_id, sum(line.spent) AS spent FROM billing_budgetmovement AS line
            JOIN billing_budgetperiod AS p ON p.id = line.period_id JOIN billing_budget AS b ON b.id = p.budget_id AND b.removed_at IS NULL
            JOIN runs ON runs.run_id = line.run_id JOIN tenancy_tenant AS bt ON bt.id = b.tenant_id
                AND (runs.path = bt.path OR starts_with(runs.path, bt.path || '/'))
            GROUP BY line.run_id, line.period_id
        )
        SELECT run_id, coalesce(kept.spent, 0), period_id, coalesce(due.spent, 0) FROM due FULL JOIN kept USING (run_id, period_id)
        WHERE coalesce(due.spent, 0) <> coalesce(kept.spent, 0) ORDER BY run_id, period_id
        """,
    ),
    (
        "run {0} spent {1} of budget period {2} by the journal, more than the {3} of all its segments",
        """
        SELECT kept.run_id, kept.spent, kept.period_id, coalesce(due.spent, 0) FROM (
            SELECT run_id, period_id, sum(spent) AS spent FROM billing_budgetmovement WHERE kind <> 'correct' GROUP BY run_id, period_id
        ) AS kept JOIN billing_budgetperiod AS p ON p.id = kept.period_id JOIN billing_budget AS b ON b.id = p.budget_id AND b.removed_at IS NULL
        CROSS JOIN LATERAL (
            SELECT sum(billing_budget_use(
                b.measure, b.currency, billing_cost_in(b.currency, b.tenant_id, s.cost, s.currency, lower(s.period)), b.currency,
                s.gpu_milliseconds, m.gpu_numerator, m.gpu_denominator)) AS spent
            FROM billing_meter AS m JOIN billing_usagesegment AS s ON s.meter_id = m.id
            WHERE m.run_id = kept.run_id AND isfinite(lower(s.period))
                AND lower(s.period) >= p.starts_at AND lower(s.period) < p.ends_at
        ) AS due
        WHERE kept.spent > coalesce(due.spent, 0) ORDER BY kept.run_id, kept.period_id
        """,
    ),
    (
        "line {0} of the ledger corrects {1}, but budget {2} counts {3} of it",
        """
        SELECT due.line_id, due.amount, due.budget_id, coalesce(sum(m.spent), 0)
        FROM billing_corrections_due((
            SELECT array_agg(l.id) FROM billing_ledgerline AS l JOIN billing_ledgerentry AS e ON e.id = l.entry_id
            JOIN tenancy_tenant AS t ON t.id = e.tenant_id AND t.path = e.tenant_path WHERE e.kind IN ('reversal', 'reentry', 'credit')
        )) AS due
        LEFT JOIN billing_budgetperiod AS p ON p.budget_id = due.budget_id AND p.starts_at = lower(due.span)
        LEFT JOIN billing_budgetmovement AS m ON m.line_id = due.line_id AND m.period_id = p.id
        GROUP BY due.line_id, due.amount, due.budget_id HAVING coalesce(sum(m.spent), 0) <> due.amount ORDER BY 1, 3
        """,
    ),
)
"""Likewise, with the journal against all segments. In the first, runs of tenants that were moved or renamed since are left out: a
segment counts at the budgets above its tenant when it was recorded, and a correction above its tenant when it was posted."""
