-- Before, a pending hold had a line at every limit on its path. Now it keeps one for each resource and scope: at the nearest
-- limit in force, or at the newest removed one if none is. The other lines end; what limits in force hold does not change,
-- because the line that ends there comes back as the claim of the limit below.
ALTER TABLE quotas_holdmovement DISABLE TRIGGER USER;
ALTER TABLE quotas_quotalimit DISABLE TRIGGER USER;
INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount)
SELECT hold_id, limit_id, 'end', -amount FROM (
    SELECT m.hold_id, m.limit_id, m.amount, row_number() OVER (
        PARTITION BY m.hold_id, l.resource, l.clusters ORDER BY l.removed_at IS NOT NULL, t.depth DESC, l.id DESC) AS place
    FROM quotas_hold AS h JOIN quotas_holdmovement AS m ON m.hold_id = h.holder_id AND m.kind = 'take'
    JOIN quotas_quotalimit AS l ON l.id = m.limit_id JOIN tenancy_tenant AS t ON t.id = l.tenant_id
    WHERE h.state = 'pending'
) AS line WHERE place > 1;
UPDATE quotas_quotalimit AS l SET held = kept.amount, cap = greatest(l.nominal, kept.amount)
    FROM (
        SELECT r.id, coalesce(sum(m.amount), 0)::bigint AS amount FROM quotas_quotalimit AS r
        LEFT JOIN quotas_holdmovement AS m ON m.limit_id = r.id WHERE r.removed_at IS NOT NULL GROUP BY r.id
    ) AS kept WHERE kept.id = l.id;
UPDATE quotas_quotalimit AS l SET parent_id = quotas_nearest_limit(
    CASE WHEN l.removed_at IS NULL THEN t.parent_id ELSE t.id END, l.resource, l.clusters)
    FROM tenancy_tenant AS t WHERE t.id = l.tenant_id;
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE quotas_quotalimit ENABLE TRIGGER USER;
ALTER TABLE quotas_holdmovement ENABLE TRIGGER USER;
