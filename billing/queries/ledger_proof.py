"""Checks the money of the ledger by recomputing it from segments, prices and corrections.

Each entry: a sentence and the query whose rows fill it. No rows means no error.
"""

from uuid import UUID

from foundation.proofs import findings


def money_discrepancies(organisation_id: UUID | None = None) -> list[str]:
    """Errors in the money of the ledger, as sentences; empty if it is correct. Of one organisation, if given.

    It always checks all months: most of it compares sums, and few days are corrected.
    """
    return findings(MONEY_PROOFS, {"organisation": organisation_id}, together=organisation_id is not None)


MONEY_PROOFS = (
    (
        "the day {1} of {0} on {2} of cluster {3} costs {4} {5} by its segments, but the ledger posted {6}",
        """
        SELECT d.tenant_path, d.day, d.flavor, d.cluster_id, d.cost, d.currency, coalesce(posted.used, 0)
        FROM (
            SELECT tenant_id, day, cluster_id, flavor, tenant_path, currency, sum(cost) AS cost FROM billing_tenantday
            WHERE currency <> '' AND (%(organisation)s::uuid IS NULL OR organisation_id = %(organisation)s)
            GROUP BY 1, 2, 3, 4, 5, 6 HAVING NOT bool_or(is_due)
        ) AS d LEFT JOIN (
            SELECT e.tenant_id, e.charge_day AS day, e.cluster_id, e.flavor, e.tenant_path, l.currency, sum(l.amount) AS used
            FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
            JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
            WHERE e.kind = 'usage' AND (%(organisation)s::uuid IS NULL OR e.organisation_id = %(organisation)s) GROUP BY 1, 2, 3, 4, 5, 6
        ) AS posted USING (tenant_id, day, cluster_id, flavor, tenant_path, currency)
        WHERE d.cost <> coalesce(posted.used, 0) ORDER BY 2, 1
        """,
    ),
    (
        "the day {1} of {0} on {2} of cluster {3} is charged {4} {5}, but by the corrected prices it costs {6}",
        """
        WITH charged AS (
            SELECT e.tenant_id, e.charge_day AS day, e.cluster_id, e.flavor, e.tenant_path, l.currency,
                coalesce(sum(l.amount) FILTER (WHERE NOT billing_is_credit(e.kind, e.reverses_id)), 0) AS charged,
                sum(l.amount) FILTER (WHERE e.kind = 'usage') AS used
            FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
            JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
            WHERE e.tenant_id IS NOT NULL AND (%(organisation)s::uuid IS NULL OR e.organisation_id = %(organisation)s) GROUP BY 1, 2, 3, 4, 5, 6
        ), day AS (
            SELECT DISTINCT d.tenant_id, d.day, d.cluster_id, d.flavor, d.tenant_path
            FROM billing_tenantday AS d WHERE NOT d.is_due AND (%(organisation)s::uuid IS NULL OR d.organisation_id = %(organisation)s) AND EXISTS (
                SELECT 1 FROM billing_rate AS r JOIN billing_pricecorrection AS c ON c.rate_id = r.id
                WHERE r.cluster_id = d.cluster_id AND c.span && tstzrange(
                    d.day::timestamp AT TIME ZONE 'UTC', (d.day + 1)::timestamp AT TIME ZONE 'UTC'))
        ), due AS (
            SELECT day.*, worth.currency, worth.cost FROM day CROSS JOIN LATERAL billing_day_due(
                day.tenant_id, day.tenant_path, day.cluster_id, day.flavor, day.day) AS worth
            WHERE worth.currency <> ''
        )
        SELECT tenant_path, day, flavor, cluster_id, coalesce(charged.charged, 0), currency, coalesce(due.cost, charged.used, 0)
        FROM charged FULL JOIN due USING (tenant_id, day, cluster_id, flavor, tenant_path, currency)
        WHERE coalesce(charged.charged, 0) <> coalesce(due.cost, charged.used, 0)
            AND NOT EXISTS (
                SELECT 1 FROM billing_tenantday AS open WHERE open.is_due
                AND (open.tenant_id, open.day, open.cluster_id, open.flavor, open.tenant_path)
                    = (tenant_id, day, cluster_id, flavor, tenant_path))
        ORDER BY 2, 1
        """,
    ),
    (
        "the day {1} of {0} on {2} of cluster {3} is credited {4} {5} for lost work, but by the policy it is {6}",
        """
        WITH day AS (
            SELECT d.organisation_id, d.tenant_id, d.tenant_path, d.cluster_id, d.flavor, d.day FROM billing_tenantday AS d
            WHERE (%(organisation)s::uuid IS NULL OR d.organisation_id = %(organisation)s)
            GROUP BY 1, 2, 3, 4, 5, 6 HAVING NOT bool_or(d.is_due)
        ), credited AS (
            SELECT e.tenant_id, e.tenant_path, e.cluster_id, e.flavor, e.charge_day AS day, l.currency, -sum(l.amount) AS amount
            FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
            JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
            WHERE billing_is_credit(e.kind, e.reverses_id)
                AND (%(organisation)s::uuid IS NULL OR e.organisation_id = %(organisation)s) GROUP BY 1, 2, 3, 4, 5, 6
        ), touched AS (
            SELECT DISTINCT m.tenant_id, m.tenant_path, m.cluster_id, m.flavor, (lower(s.period) AT TIME ZONE 'UTC')::date AS day
            FROM billing_lostwork AS w JOIN billing_meter AS m ON m.run_id = w.run_id
            JOIN billing_usagesegment AS s ON s.meter_id = m.id AND upper(s.period) > w.lost_from
        ), due AS (
            SELECT day.*, c.currency, sum(c.cost) AS amount
            FROM day JOIN touched USING (tenant_id, tenant_path, cluster_id, flavor, day)
            CROSS JOIN LATERAL billing_day_credit(
                day.organisation_id, day.tenant_id, day.tenant_path, day.cluster_id, day.flavor, day.day) AS c
            GROUP BY 1, 2, 3, 4, 5, 6, 7
        )
        SELECT tenant_path, day, flavor, cluster_id, coalesce(credited.amount, 0), currency, coalesce(due.amount, 0)
        FROM (SELECT credited.* FROM credited JOIN day USING (tenant_id, tenant_path, cluster_id, flavor, day)) AS credited
        FULL JOIN due USING (tenant_id, tenant_path, cluster_id, flavor, day, currency)
        WHERE coalesce(credited.amount, 0) <> coalesce(due.amount, 0) ORDER BY 2, 1
        """,
    ),
    (
        "entry {0} has lines that add up to {2} {1}, not to zero",
        """
        SELECT e.key, l.currency, sum(l.amount) FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
        WHERE (%(organisation)s::uuid IS NULL OR e.organisation_id = %(organisation)s) GROUP BY e.id, e.key, l.currency HAVING sum(l.amount) <> 0 ORDER BY e.id
        """,
    ),
    (
        "entry {0} is not what its digest says",
        """
        SELECT e.key FROM billing_ledgerentry AS e
        WHERE e.digest <> encode(sha256(convert_to(billing_entry_text(e.id), 'UTF8')), 'hex')
            AND (%(organisation)s::uuid IS NULL OR e.organisation_id = %(organisation)s) ORDER BY e.id
        """,
    ),
    (
        "period {1} of {0} was closed with the checksum {2}, but its lines have {3}",
        """
        SELECT tenant.path, to_char(p.month, 'YYYY-MM'), p.checksum, actual.checksum
        FROM billing_ledgerperiod AS p JOIN tenancy_tenant AS tenant ON tenant.id = p.organisation_id
        CROSS JOIN LATERAL billing_period_checksum(p.id) AS actual(checksum)
        WHERE p.state = 'closed' AND p.checksum <> actual.checksum AND (%(organisation)s::uuid IS NULL OR p.organisation_id = %(organisation)s) ORDER BY p.month
        """,
    ),
    (
        "the commitment {1} of {0} has {4} amortised and {5} unused on {2}, but the ledger has {6} and {7} {3}",
        """
        WITH split AS (
            SELECT DISTINCT ON (d.commitment_id, d.day) c.organisation_id AS payer_id, d.commitment_id, d.day, d.amortised, d.unused, v.currency
            FROM billing_commitmentday AS d JOIN billing_commitment AS c ON c.id = d.commitment_id
            JOIN billing_commitmentversion AS v ON v.id = d.version_id
            WHERE (%(organisation)s::uuid IS NULL OR c.organisation_id = %(organisation)s) ORDER BY d.commitment_id, d.day, d.revision DESC
        ), posted AS (
            SELECT e.organisation_id AS payer_id, split_part(coalesce(r.key, e.key), '/', 2)::uuid AS commitment_id, e.charge_day AS day, l.currency,
                -coalesce(sum(l.amount) FILTER (WHERE a.kind = 'commitment'), 0) AS amortised,
                coalesce(sum(l.amount) FILTER (WHERE a.kind IN ('commitment_unused', 'idle')), 0) AS unused
            FROM billing_ledgerentry AS e LEFT JOIN billing_ledgerentry AS r ON r.id = e.reverses_id
            JOIN billing_ledgerline AS l ON l.entry_id = e.id
            JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind IN ('commitment', 'commitment_unused', 'idle')
            WHERE coalesce(r.kind, e.kind) = 'commitment' AND (%(organisation)s::uuid IS NULL OR e.organisation_id = %(organisation)s)
            GROUP BY 1, 2, 3, 4
        )
        SELECT tenant.path, c.name, day, currency, coalesce(split.amortised, 0), coalesce(split.unused, 0), coalesce(posted.amortised, 0),
            coalesce(posted.unused, 0)
        FROM split FULL JOIN posted USING (payer_id, commitment_id, day, currency)
        JOIN billing_commitment AS c ON c.id = commitment_id JOIN tenancy_tenant AS tenant ON tenant.id = payer_id
        WHERE (coalesce(split.amortised, 0), coalesce(split.unused, 0)) <> (coalesce(posted.amortised, 0), coalesce(posted.unused, 0))
        ORDER BY 3, 2
        """,
    ),
    (
        "the pools of {1} of {0} have {2} {4} {5} of {3}, but the ledger has {6}",
        """
        SELECT tenant.path, to_char(p.month, 'YYYY-MM'), wrong.what, wrong.place, wrong.kept, wrong.currency, wrong.posted
        FROM billing_ledgerperiod AS p JOIN tenancy_tenant AS tenant ON tenant.id = p.organisation_id
        CROSS JOIN LATERAL billing_sharing_errors(p.id) AS wrong
        WHERE p.state = 'closed' AND (%(organisation)s::uuid IS NULL OR p.organisation_id = %(organisation)s) ORDER BY p.month
        """,
    ),
    (
        "period {1} of {0} was closed with charges of {2} in {3} that are not converted",
        """
        SELECT tenant.path, to_char(p.month, 'YYYY-MM'), rest.day, rest.currency
        FROM billing_ledgerperiod AS p JOIN tenancy_tenant AS tenant ON tenant.id = p.organisation_id
        CROSS JOIN LATERAL billing_unconverted(p.id) AS rest
        WHERE p.state = 'closed' AND (%(organisation)s::uuid IS NULL OR p.organisation_id = %(organisation)s) ORDER BY p.month
        """,
    ),
    (
        "the conversion {0} has the rate {1} of {2}, but the rate that counts is {3}",
        """
        SELECT e.key, l.rate, l.rate_day, x.rate
        FROM billing_ledgerentry AS e JOIN billing_ledgerperiod AS p ON p.id = e.period_id AND p.state <> 'closed'
        JOIN billing_ledgerline AS l ON l.entry_id = e.id AND l.priced_currency <> ''
        LEFT JOIN LATERAL billing_exchange_rate(e.organisation_id, l.priced_currency, l.currency, e.charge_day) AS x ON true
        WHERE e.kind = 'conversion' AND (%(organisation)s::uuid IS NULL OR e.organisation_id = %(organisation)s)
            AND (l.rate, l.rate_day, l.rate_source::text) IS DISTINCT FROM (x.rate, x.rate_day, x.source)
            AND NOT EXISTS (SELECT 1 FROM billing_ledgerentry AS r WHERE r.reverses_id = e.id)
            AND NOT EXISTS (SELECT 1 FROM billing_conversionday AS d WHERE (d.organisation_id, d.day) = (e.organisation_id, e.charge_day))
        ORDER BY e.id
        """,
    ),
    (
        "document {0} of {1} is not what its digest says",
        """
        SELECT i.number, tenant.path FROM billing_invoice AS i JOIN tenancy_tenant AS tenant ON tenant.id = i.organisation_id
        WHERE i.digest <> encode(sha256(convert_to(i.document, 'UTF8')), 'hex')
            AND (%(organisation)s::uuid IS NULL OR i.organisation_id = %(organisation)s) ORDER BY i.sequence
        """,
    ),
    (
        "document {0} of {1} says {2} {3}, but its lines add up to {4} and the ledger charges {5}",
        """
        SELECT i.number, tenant.path, i.exact, i.currency, coalesce(lines.exact, 0), coalesce(charged.amount, 0)
        FROM billing_invoice AS i JOIN tenancy_tenant AS tenant ON tenant.id = i.organisation_id
        JOIN billing_ledgerperiod AS p ON p.id = i.period_id
        CROSS JOIN LATERAL (SELECT sum(l.exact) AS exact FROM billing_invoiceline AS l WHERE l.invoice_id = i.id) AS lines
        LEFT JOIN LATERAL (SELECT sum(c.amount) AS amount FROM billing_invoice_charges(
            i.period_id, i.currency, CASE WHEN i.kind = 'statement' THEN i.tenant_path ELSE '' END) AS c) AS charged ON true
        WHERE (coalesce(lines.exact, 0) <> i.exact
                OR (i.kind <> 'credit_note' AND i.revision = p.revision AND p.state = 'closed' AND coalesce(charged.amount, 0) <> i.exact))
            AND (%(organisation)s::uuid IS NULL OR i.organisation_id = %(organisation)s) ORDER BY i.sequence
        """,
    ),
    (
        "line {0} of document {1} is credited {2}, but its credit notes add up to {3}",
        """
        SELECT l.number, i.number, b.credited + b.credited_tax, coalesce(sum(c.amount + c.tax), 0)
        FROM billing_invoicebalance AS b JOIN billing_invoiceline AS l ON l.id = b.line_id JOIN billing_invoice AS i ON i.id = l.invoice_id
        LEFT JOIN billing_invoiceline AS c ON c.credits_id = l.id
        WHERE (%(organisation)s::uuid IS NULL OR i.organisation_id = %(organisation)s)
        GROUP BY l.number, i.number, i.sequence, l.id, b.line_id
        HAVING (b.credited, b.credited_tax) <> (-coalesce(sum(c.amount), 0), -coalesce(sum(c.tax), 0)) ORDER BY i.sequence, l.number
        """,
    ),
)
SUM_OF_A_DAY = """
        SELECT coalesce(kept.tenant_path, due.tenant_path), day, coalesce(kept.cost, 0), currency, coalesce(kept.segments, 0),
            coalesce(due.cost, 0), coalesce(due.segments, 0), coalesce(kept.gpu, 0), coalesce(due.gpu, 0),
            coalesce(kept.cpu, 0), coalesce(due.cpu, 0), coalesce(kept.memory, 0), coalesce(due.memory, 0)
        FROM (
            SELECT m.tenant_id, m.tenant_path, m.cluster_id, m.flavor, {day} AS day, s.currency, m.gpu_numerator, m.gpu_denominator,
                sum(s.cost) AS cost, {count} AS segments, sum({milliseconds} * m.gpu_units) AS gpu,
                sum({milliseconds} * m.cpu_millicores) AS cpu, sum({milliseconds} * m.memory_mib) AS memory
            FROM {table} AS s JOIN billing_meter AS m ON m.id = s.meter_id
            WHERE {only} GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
        ) AS due FULL JOIN (
            SELECT tenant_id, tenant_path, cluster_id, flavor, day, currency, gpu_numerator, gpu_denominator, cost, {kept} AS segments,
                gpu_milliseconds AS gpu, cpu_millicore_milliseconds AS cpu, memory_mib_milliseconds AS memory
            FROM billing_tenantday WHERE {among}
        ) AS kept USING (tenant_id, tenant_path, cluster_id, flavor, day, currency, gpu_numerator, gpu_denominator)
        WHERE (coalesce(kept.cost, 0), coalesce(kept.segments, 0), coalesce(kept.gpu, 0), coalesce(kept.cpu, 0), coalesce(kept.memory, 0))
            <> (coalesce(due.cost, 0), coalesce(due.segments, 0), coalesce(due.gpu, 0), coalesce(due.cpu, 0), coalesce(due.memory, 0))
        ORDER BY 2, 1
        """
DAY_SENTENCE = (
    "the sum of {0} on {1} is {2} {3} of {4} segments, but its segments add up to {5} of {6}; GPU-ms {7} and {8}, millicore-ms"
    " {9} and {10}, MiB-ms {11} and {12}"
)
DAY_SUMS = (
    (
        "the ledger says that {0} used {2} on {1}, but its segments add up to {3}",
        """
        SELECT used.tenant_path, used.day, used.quantity, coalesce(due.quantity, 0)
        FROM (
            SELECT e.tenant_id, e.tenant_path, e.cluster_id, e.flavor, e.charge_day AS day, sum(l.quantity) AS quantity
            FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
            JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
            WHERE e.kind = 'usage' GROUP BY 1, 2, 3, 4, 5
        ) AS used LEFT JOIN (
            SELECT m.tenant_id, m.tenant_path, m.cluster_id, m.flavor, (lower(s.period) AT TIME ZONE 'UTC')::date AS day,
                sum(CASE m.unit WHEN 'gpu' THEN s.gpu_milliseconds * 1000 ELSE s.cpu_millicore_milliseconds END) AS quantity
            FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
            WHERE isfinite(lower(s.period)) GROUP BY 1, 2, 3, 4, 5
        ) AS due USING (tenant_id, tenant_path, cluster_id, flavor, day)
        WHERE used.quantity > coalesce(due.quantity, 0) AND NOT EXISTS (
            SELECT 1 FROM billing_tenantday AS open WHERE open.is_due
            AND (open.tenant_id, open.day, open.cluster_id, open.flavor, open.tenant_path)
                = (used.tenant_id, used.day, used.cluster_id, used.flavor, used.tenant_path))
        ORDER BY 2, 1
        """,
    ),
    (
        DAY_SENTENCE,
        SUM_OF_A_DAY.format(
            day="(lower(s.period) AT TIME ZONE 'UTC')::date",
            count="count(*)",
            milliseconds="trunc(extract(epoch FROM upper(s.period) - lower(s.period)) * 1000)",
            table="billing_usagesegment",
            only="isfinite(lower(s.period)) AND isfinite(upper(s.period))",
            kept="segments",
            among="true",
        ),
    ),
)
"""The stored sums of a tenant's day against its segments. It reads all segments, so only a full check runs it."""
TOUCHED_DAYS = """
    day IN (SELECT DISTINCT (lower(period) AT TIME ZONE 'UTC')::date FROM billing_usagesegment
            WHERE id > %(segment)s AND isfinite(lower(period))
            UNION SELECT (lower(r.period) AT TIME ZONE 'UTC')::date FROM billing_replacedsegment AS r
            JOIN billing_meterrevision AS v ON v.id = r.revision_id AND v.recorded_at > now() - interval '7 days')
"""
DAY_SUMS_OF_CHANGES = (
    (
        DAY_SENTENCE.replace(" of {4} segments", "").replace(" of {6}", "").replace("segments add", "meters add"),
        SUM_OF_A_DAY.format(
            day="s.day", count="0", milliseconds="s.milliseconds::numeric", table="billing_meterday", only=TOUCHED_DAYS,
            kept="0", among=TOUCHED_DAYS,
        ),
    ),
)  # fmt: skip
"""The same for the days of new segments, against the sums of meters, which the same check has compared with segments."""
