"""A pending hold counts at every limit on its path from the moment it exists, whoever writes it and in whatever order.

Also: amounts are whole numbers of known resources, and no line is dated into the past or the future.
"""

import django.db.models.lookups
from django.db import migrations, models

HOLDS = """
-- The path of each tenant from itself to its root, as it is now.
CREATE FUNCTION quotas_tenants_above(tenant uuid) RETURNS TABLE (id uuid) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE up AS (
        SELECT t.id, t.parent_id FROM tenancy_tenant AS t WHERE t.id = tenant
        UNION ALL SELECT t.id, t.parent_id FROM up JOIN tenancy_tenant AS t ON t.id = up.parent_id
    ) SELECT up.id FROM up
$$;

DROP TRIGGER quotas_hold_begins ON quotas_hold;
CREATE OR REPLACE FUNCTION quotas_guard_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'pending' THEN
            RAISE EXCEPTION 'a hold begins pending'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_begins_pending';
        END IF;
        RAISE EXCEPTION 'a hold begins now'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_begins_now';
    END IF;
    IF OLD.state <> 'pending' OR NEW.state NOT IN ('posted', 'voided')
       OR (NEW.holder_id, NEW.tenant_id, NEW.cluster_name, NEW.amounts, NEW.created_at)
          IS DISTINCT FROM (OLD.holder_id, OLD.tenant_id, OLD.cluster_name, OLD.amounts, OLD.created_at) THEN
        RAISE EXCEPTION 'a hold only ever ends, once'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_ends_once';
    END IF;
    IF NEW.ended_at NOT BETWEEN transaction_timestamp() AND clock_timestamp() THEN
        RAISE EXCEPTION 'a hold ends now'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_ends_now';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER quotas_hold_begins BEFORE INSERT ON quotas_hold FOR EACH ROW
    WHEN (NEW.state <> 'pending' OR NEW.created_at NOT BETWEEN transaction_timestamp() AND clock_timestamp())
    EXECUTE FUNCTION quotas_guard_hold();

-- Runs at the end of the statement, so a hold and its takes come in one statement (a CTE).
CREATE FUNCTION quotas_hold_is_counted() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    -- Until commit nobody moves the tenants on the path or puts a limit on them (quotas/locks.py takes the same locks).
    PERFORM 1 FROM tenancy_tenant WHERE id IN (
        SELECT up.id FROM (SELECT DISTINCT tenant_id FROM begun) AS own, quotas_tenants_above(own.tenant_id) AS up
    ) ORDER BY id FOR SHARE;
    -- Holds of one tenant, cluster and amounts are due at the same limits. The journal lets a hold take only where it is due
    -- and once, so equal numbers prove that none is left out.
    IF EXISTS (
        WITH kinds AS MATERIALIZED (
            SELECT tenant_id, cluster_name, amounts, array_agg(holder_id) AS holders FROM begun
            GROUP BY tenant_id, cluster_name, amounts
        ), due AS MATERIALIZED (
            SELECT kinds.holders, (
                SELECT count(*) FROM quotas_tenants_above(kinds.tenant_id) AS up
                JOIN quotas_quotalimit AS l ON l.tenant_id = up.id AND l.removed_at IS NULL
                WHERE (kinds.amounts ->> l.resource)::bigint > 0
                    AND (cardinality(l.clusters) = 0 OR kinds.cluster_name = ANY (l.clusters))) AS takes
            FROM kinds
        )
        SELECT 1 FROM due, unnest(due.holders) AS holder
        WHERE due.takes <> (SELECT count(*) FROM quotas_holdmovement AS m WHERE m.hold_id = holder AND m.kind = 'take')
    ) THEN
        RAISE EXCEPTION 'a hold takes at every limit on its path in the statement that writes it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pending_hold_is_counted';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_hold_is_counted AFTER INSERT ON quotas_hold
    REFERENCING NEW TABLE AS begun FOR EACH STATEMENT EXECUTE FUNCTION quotas_hold_is_counted();
"""

LIMITS = """
-- Waits for takers whose holds this limit must count; keeps new ones out until commit.
CREATE FUNCTION quotas_stop_takers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM tenancy_tenant WHERE id = NEW.tenant_id FOR NO KEY UPDATE;
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_limit_stops_takers AFTER INSERT ON quotas_quotalimit
    FOR EACH ROW EXECUTE FUNCTION quotas_stop_takers();

CREATE FUNCTION quotas_limit_counts_what_is_held() RETURNS trigger LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM tenancy_tenant AS lt
        JOIN tenancy_tenant AS t ON t.path = lt.path OR starts_with(t.path, lt.path || '/')
        JOIN quotas_hold AS h ON h.tenant_id = t.id AND h.state = 'pending'
        WHERE lt.id = NEW.tenant_id AND (h.amounts ->> NEW.resource)::bigint > 0
            AND (cardinality(NEW.clusters) = 0 OR h.cluster_name = ANY (NEW.clusters))
            AND NOT EXISTS (SELECT 1 FROM quotas_holdmovement AS m
                WHERE m.hold_id = h.holder_id AND m.limit_id = NEW.id AND m.kind = 'take')
    ) AND EXISTS (SELECT 1 FROM quotas_quotalimit WHERE id = NEW.id AND removed_at IS NULL) THEN
        RAISE EXCEPTION 'a new limit counts the pending holds below it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'limit_counts_what_is_held';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER quotas_limit_counts_what_is_held AFTER INSERT ON quotas_quotalimit
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION quotas_limit_counts_what_is_held();
"""

JOURNAL = """
CREATE FUNCTION quotas_line_is_dated_now() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a line of the journal is dated now'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'journal_line_is_dated_now';
END $$;
CREATE TRIGGER quotas_line_is_dated_now BEFORE INSERT ON quotas_holdmovement FOR EACH ROW
    WHEN (NEW.at NOT BETWEEN transaction_timestamp() AND clock_timestamp())
    EXECUTE FUNCTION quotas_line_is_dated_now();
"""

UNDO = """
DROP TRIGGER quotas_line_is_dated_now ON quotas_holdmovement;
DROP FUNCTION quotas_line_is_dated_now();
DROP TRIGGER quotas_limit_counts_what_is_held ON quotas_quotalimit;
DROP FUNCTION quotas_limit_counts_what_is_held();
DROP TRIGGER quotas_limit_stops_takers ON quotas_quotalimit;
DROP FUNCTION quotas_stop_takers();
DROP TRIGGER quotas_hold_is_counted ON quotas_hold;
DROP FUNCTION quotas_hold_is_counted();
DROP FUNCTION quotas_tenants_above(uuid);
DROP TRIGGER quotas_hold_begins ON quotas_hold;
CREATE TRIGGER quotas_hold_begins BEFORE INSERT ON quotas_hold
    FOR EACH ROW WHEN (NEW.state <> 'pending') EXECUTE FUNCTION quotas_guard_hold();
"""

WHOLE_AMOUNTS = (
    '$.keyvalue() ? (!(@.key like_regex "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory)$") || @.value.type() != "number"'
    " || @.value < 0 || @.value > 1000000000000000 || @.value != @.value.floor())"
)


class Migration(migrations.Migration):
    dependencies = [("quotas", "0002_journal"), ("tenancy", "0002_triggers")]
    operations = [
        migrations.AddConstraint(
            model_name="hold",
            constraint=models.CheckConstraint(
                condition=models.Q(("ended_at__gte", models.F("created_at"))), name="hold_ends_after_it_began"
            ),
        ),
        migrations.AddConstraint(
            model_name="hold",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    django.db.models.lookups.Exact(
                        models.Func(models.F("amounts"), function="jsonb_typeof", output_field=models.TextField()),
                        "object",
                    ),
                    models.Q(
                        models.Func(
                            models.F("amounts"),
                            models.Value(WHOLE_AMOUNTS),
                            output_field=models.BooleanField(),
                            template="jsonb_path_exists(%(expressions)s::jsonpath)",
                        ),
                        _negated=True,
                    ),
                ),
                name="hold_amounts_are_whole",
            ),
        ),
        migrations.RunSQL(HOLDS + LIMITS + JOURNAL, UNDO),
    ]
