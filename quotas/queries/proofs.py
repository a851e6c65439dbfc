"""What the quota records have to agree on, as statements whose rows are errors."""

AMOUNT = "CASE jsonb_typeof(h.amounts -> l.resource) WHEN 'number' THEN (h.amounts ->> l.resource)::numeric ELSE 0 END"
"""The amount that a hold requests of a limit's resource; zero if it is not a number."""
CHANGED = """
SELECT hold_id FROM quotas_holdmovement WHERE id > %(since)s
UNION SELECT holder_id FROM quotas_hold WHERE state = 'pending' OR %(since)s = 0
"""
DUE = """
SELECT t.id AS tenant, l.id, l.resource, l.clusters, above.path
FROM tenancy_tenant AS t CROSS JOIN LATERAL (SELECT string_to_array(t.path, '/') AS names) AS split
CROSS JOIN LATERAL generate_series(1, cardinality(split.names)) AS length
JOIN tenancy_tenant AS above ON above.path = array_to_string(split.names[1:length], '/')
JOIN quotas_quotalimit AS l ON l.tenant_id = above.id AND l.removed_at IS NULL
WHERE EXISTS (SELECT 1 FROM quotas_hold WHERE tenant_id = t.id AND state = 'pending')
"""
"""The limits that count for each tenant with holds. It matches equal paths instead of comparing every pair."""
CLAIMED = """
LEFT JOIN (SELECT parent_id, sum(claim::numeric) AS amount FROM quotas_quotalimit GROUP BY parent_id)
    AS claimed ON claimed.parent_id = l.id
"""
"""What the limits below a limit claim of it."""
PROOFS = (
    (
        "limit {0} counts {1} held, but its pending holds and the claims of limits below it are {2}",
        f"""
        SELECT l.id, l.held, coalesce(taken.amount, 0) + coalesce(claimed.amount, 0) FROM quotas_quotalimit AS l {CLAIMED}
        LEFT JOIN (SELECT m.limit_id, sum(m.amount::numeric) AS amount FROM quotas_hold AS h
            JOIN quotas_holdmovement AS m ON m.hold_id = h.holder_id
            WHERE h.state = 'pending' GROUP BY m.limit_id) AS taken ON taken.limit_id = l.id
        WHERE l.held <> coalesce(taken.amount, 0) + coalesce(claimed.amount, 0) ORDER BY l.id
        """,
    ),
    (
        "limit {0} claims {1} of the limit above it, but should claim {2}",
        """
        SELECT id, claim, due FROM quotas_quotalimit CROSS JOIN LATERAL (SELECT CASE
            WHEN removed_at IS NULL THEN greatest(held, nominal - coalesce(lending_limit, nominal)) ELSE held END AS due) AS law
        WHERE claim <> due ORDER BY id
        """,
    ),
    (
        "limit {0} borrows from limit {1}, but the nearest one above it is {2}",
        """
        SELECT l.id, l.parent_id, due.id FROM quotas_quotalimit AS l JOIN tenancy_tenant AS t ON t.id = l.tenant_id
        CROSS JOIN LATERAL (SELECT quotas_nearest_limit(
            CASE WHEN l.removed_at IS NULL THEN t.parent_id ELSE t.id END, l.resource, l.clusters) AS id) AS due
        WHERE l.parent_id IS DISTINCT FROM due.id ORDER BY l.id
        """,
    ),
    (
        "user {1} holds {2} under limit {0}, but the user's pending holds there are {3}",
        f"""
        SELECT due.limit_id, due.user_id, coalesce(own.held, 0), due.amount FROM (
            SELECT l.id AS limit_id, h.user_id, sum({AMOUNT}) AS amount FROM quotas_userlimit AS l
            JOIN tenancy_tenant AS lt ON lt.id = l.tenant_id
            JOIN tenancy_tenant AS t ON t.path = lt.path OR starts_with(t.path, lt.path || '/')
            JOIN quotas_hold AS h ON h.tenant_id = t.id AND h.state = 'pending'
            WHERE h.user_id IS NOT NULL GROUP BY l.id, h.user_id
        ) AS due LEFT JOIN quotas_userholding AS own USING (limit_id, user_id)
        WHERE coalesce(own.held, 0) <> due.amount
        UNION ALL SELECT own.limit_id, own.user_id, own.held, 0 FROM quotas_userholding AS own
            JOIN quotas_userlimit AS l ON l.id = own.limit_id JOIN tenancy_tenant AS lt ON lt.id = l.tenant_id
            WHERE own.held <> 0 AND NOT EXISTS (
                SELECT 1 FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id
                WHERE h.user_id = own.user_id AND h.state = 'pending'
                    AND (t.path = lt.path OR starts_with(t.path, lt.path || '/')))
        ORDER BY 1, 2
        """,
    ),
    (
        "class {0} holds {2} {1}, but its pending holds are {3}",
        f"""
        SELECT l.class_name || coalesce(' in ' || lt.path, ''), l.resource, l.held, due.amount FROM quotas_classlimit AS l
        LEFT JOIN tenancy_tenant AS lt ON lt.id = l.tenant_id CROSS JOIN LATERAL (
            SELECT coalesce(sum({AMOUNT}), 0) AS amount FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id
            WHERE h.state = 'pending' AND h.class_name = l.class_name
                AND (lt.id IS NULL OR t.path = lt.path OR starts_with(t.path, lt.path || '/'))) AS due
        WHERE l.held <> due.amount ORDER BY 1, 2
        """,
    ),
    (
        "limit {0} holds {1}, more than its cap {2}",
        "SELECT id, held, cap FROM quotas_quotalimit WHERE held > cap OR held < 0 ORDER BY id",
    ),
    (
        "{1} hold {0} holds {2}, but its journal lines sum to {3}",
        f"""
        SELECT h.holder_id, h.state, due.amount, due.counted FROM ({CHANGED}) AS changed
        JOIN quotas_hold AS h ON h.holder_id = changed.hold_id
        CROSS JOIN LATERAL (
            SELECT CASE WHEN h.state <> 'pending' OR (bool_or(m.kind = 'move') AND sum(m.amount::numeric) = 0)
                   THEN 0 ELSE max({AMOUNT}) END AS amount, sum(m.amount::numeric) AS counted
            FROM quotas_holdmovement AS m JOIN quotas_quotalimit AS l ON l.id = m.limit_id
            WHERE m.hold_id = h.holder_id GROUP BY l.resource, l.clusters) AS due
        WHERE due.amount <> due.counted ORDER BY h.holder_id
        """,
    ),
    (
        "pending hold {0} is not counted at limit {1}",
        f"""
        WITH due AS MATERIALIZED ({DUE}) SELECT h.holder_id, l.id FROM due AS l
        JOIN quotas_hold AS h ON h.tenant_id = l.tenant AND (cardinality(l.clusters) = 0 OR h.cluster_name = ANY (l.clusters))
        WHERE h.state = 'pending' AND {AMOUNT} > 0 AND {AMOUNT} IS DISTINCT FROM (
            SELECT sum(m.amount::numeric) FROM quotas_holdmovement AS m JOIN quotas_quotalimit AS at ON at.id = m.limit_id
            JOIN tenancy_tenant AS t ON t.id = at.tenant_id
            WHERE m.hold_id = h.holder_id AND at.resource = l.resource AND at.clusters = l.clusters
                AND (t.path = l.path OR starts_with(t.path, l.path || '/')) AND t.id IN (
                    SELECT id FROM quotas_tenants_above(h.tenant_id)))
        ORDER BY h.holder_id, l.id
        """,
    ),
    (
        "hold {0} asks for amounts that are not whole numbers: {1}",
        f"""
        SELECT h.holder_id, left(h.amounts::text, 200) FROM ({CHANGED}) AS changed
        JOIN quotas_hold AS h ON h.holder_id = changed.hold_id
        WHERE jsonb_typeof(h.amounts) <> 'object' OR EXISTS (
            SELECT 1 FROM jsonb_each(CASE jsonb_typeof(h.amounts) WHEN 'object' THEN h.amounts ELSE '{{}}' END) AS asked
            WHERE jsonb_typeof(asked.value) <> 'number' OR asked.value::text !~ '^[0-9]+$')
        ORDER BY h.holder_id
        """,
    ),
    (
        "hold {0} began at {1} and ended at {2}",
        f"""
        SELECT h.holder_id, h.created_at, h.ended_at FROM ({CHANGED}) AS changed
        JOIN quotas_hold AS h ON h.holder_id = changed.hold_id
        WHERE h.ended_at < h.created_at OR h.ended_at > now() + interval '1 day' OR NOT isfinite(h.created_at)
            OR (h.state = 'pending') <> (h.ended_at IS NULL)
        ORDER BY h.holder_id
        """,
    ),
)
"""Each entry: a sentence and the query whose rows fill it. No rows means no error. The number of pending holds stays
small however long the history is.
"""
FULL_PROOFS = (
    (
        "limit {0} counts {1} held, but its journal and the claims of limits below it have {2}",
        f"""
        SELECT l.id, l.held, coalesce(lines.amount, 0) + coalesce(claimed.amount, 0) FROM quotas_quotalimit AS l {CLAIMED}
        LEFT JOIN (SELECT limit_id, sum(amount::numeric) AS amount FROM quotas_holdmovement GROUP BY limit_id)
            AS lines ON lines.limit_id = l.id
        WHERE l.held <> coalesce(lines.amount, 0) + coalesce(claimed.amount, 0) ORDER BY l.id
        """,
    ),
    *PROOFS[1:],
    (
        "past use of {1} by tenant {0} is {2}, but its ended holds and what was kept idle for it make {3}",
        """
        SELECT coalesce(p.tenant_id, made.tenant_id), coalesce(p.resource, made.resource), p.level, made.level
        FROM quotas_pastuse AS p FULL JOIN quotas_past_use_of_holds() AS made
            ON made.tenant_id = p.tenant_id AND made.resource = p.resource
        WHERE p.at IS DISTINCT FROM made.at
            OR abs(p.level - made.level) > 1e-6 * greatest(1, abs(p.level), abs(made.level))
        ORDER BY 1, 2
        """,
    ),
)
"""The same checks over all records: the counters against the whole journal."""
