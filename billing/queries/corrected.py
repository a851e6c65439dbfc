"""The part of a report that corrections of prices make: what metered time costs by the corrected prices, less what it
was charged when it was metered. Segments do not change.
"""

HAS_CORRECTION = """
    (SELECT EXISTS (SELECT 1 FROM billing_pricecorrection)) AND EXISTS (
        SELECT 1 FROM billing_rate AS r JOIN billing_pricecorrection AS k ON k.rate_id = r.id
        WHERE r.cluster_id = m.cluster_id AND r.capacity_type = m.capacity_type AND r.flavor IN (m.flavor, m.cpu_flavor)
            AND k.span && s.period)
"""
"""Whether a correction is of a time of segment `s` of meter `m`. Without any correction, it costs one look."""
CORRECTED = f"""
WITH cut AS MATERIALIZED (
    SELECT s.meter_id, s.currency, s.cost, greatest(lower(s.period), %(start)s) AS start,
        least(upper(s.period), %(until)s) AS until, lower(s.period) AS begins,
        extract(epoch FROM upper(s.period) - lower(s.period)) * 1000 AS length
    FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
    LEFT JOIN unnest(%(clusters)s::uuid[], %(uids)s::text[], %(ends)s::timestamptz[]) AS known(cluster_id, source_uid, until)
        ON known.cluster_id = m.cluster_id AND known.source_uid = m.source_uid
    WHERE lower(s.period) > %(day_before)s AND lower(s.period) < %(until)s AND upper(s.period) > %(start)s
        AND m.tenant_id = ANY(%(tenants)s) AND (known.until IS NULL OR lower(s.period) < known.until)
        AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
        AND {HAS_CORRECTION}
), part AS (
    SELECT cut.meter_id, cut.start, moved.currency, moved.cost, moved.milliseconds
    FROM cut CROSS JOIN LATERAL (
        SELECT currency, cost, milliseconds FROM billing_corrected(cut.meter_id, tstzrange(cut.start, cut.until))
        UNION ALL
        SELECT cut.currency,
            round(cut.cost * extract(epoch FROM cut.start - cut.begins) * 1000 / cut.length, 12)
            - round(cut.cost * extract(epoch FROM cut.until - cut.begins) * 1000 / cut.length, 12),
            - extract(epoch FROM cut.until - cut.start) * 1000
    ) AS moved
)
SELECT {{keys}} part.currency, m.gpu_numerator, m.gpu_denominator,
    coalesce(sum(part.milliseconds * m.gpu_units) FILTER (WHERE part.currency = ''), 0),
    coalesce(sum(part.milliseconds * m.cpu_millicores) FILTER (WHERE part.currency = ''), 0),
    coalesce(sum(part.milliseconds * m.memory_mib) FILTER (WHERE part.currency = ''), 0), sum(part.cost)
FROM part JOIN billing_meter AS m ON m.id = part.meter_id JOIN clusters_cluster AS c ON c.id = m.cluster_id
GROUP BY {{groups}} LIMIT %(most)s
"""
"""Takes what was charged away and adds the corrected cost, by the same keys as the report of usage."""
