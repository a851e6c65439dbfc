-- Revisions: a report that a run ended earlier than was assumed takes the time after that end back, in one step with all sums.

-- Replaces the tail of the meter's chain. Only what no one observed is replaced, and only once: the end is certain afterwards.
CREATE OR REPLACE FUNCTION billing_revise_meter() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off AS $$
DECLARE
    m billing_meter;
BEGIN
    -- The order of all who meter (billing/locks.py): the price book, then the meter.
    PERFORM pg_advisory_xact_lock_shared(1398233424);
    SELECT * INTO m FROM billing_meter WHERE id = NEW.meter_id FOR NO KEY UPDATE;
    IF NOT FOUND OR NOT m.is_closed OR NEW.number <> m.revisions + 1 OR NEW.counted_until <> m.metered_until
       OR NEW.until < m.metered_from OR NEW.until <> date_trunc('milliseconds', NEW.until)
       OR NEW.recorded_at NOT BETWEEN transaction_timestamp() AND clock_timestamp() THEN
        RAISE EXCEPTION 'a revision shortens what its closed meter counts now'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'revision_is_of_what_is_counted';
    END IF;
    IF NEW.until < m.certain_until OR m.certain_until IS NULL AND EXISTS (
        SELECT 1 FROM billing_usagesegment AS s
         WHERE s.meter_id = m.id AND upper(s.period) > NEW.until AND NOT s.is_estimated) THEN
        RAISE EXCEPTION 'what was observed of meter % stands', m.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'only_estimates_are_revised';
    END IF;
    INSERT INTO billing_replacedsegment (revision_id, segment_id, meter_id, period, gpu_milliseconds, cpu_millicore_milliseconds,
                                         price_id, cost, currency, is_estimated, recorded_at)
    SELECT NEW.id, s.id, s.meter_id, s.period, s.gpu_milliseconds, s.cpu_millicore_milliseconds, s.price_id, s.cost, s.currency,
           s.is_estimated, s.recorded_at
      FROM billing_usagesegment AS s WHERE s.meter_id = m.id AND upper(s.period) > NEW.until ORDER BY lower(s.period);
    DELETE FROM billing_usagesegment WHERE meter_id = m.id AND upper(period) > NEW.until;
    -- The part of the first of them that was used, by the same price and arithmetic.
    INSERT INTO billing_usagesegment (meter_id, period, gpu_milliseconds, cpu_millicore_milliseconds, price_id, cost, currency, is_estimated)
    SELECT m.id, part.period, m.gpu_units * part.milliseconds, m.cpu_millicores * part.milliseconds, r.price_id,
           CASE WHEN p.id IS NULL THEN 0 ELSE billing_cost(
               m.unit = 'core' OR rate.flavor <> m.flavor, m.gpu_units, m.cpu_millicores, m.memory_mib, m.metered_from, p.unit_price,
               p.cpu_price, p.memory_price, p.valid, part.period) END,
           r.currency, NEW.is_estimated
      FROM billing_replacedsegment AS r
     CROSS JOIN LATERAL (
        SELECT tstzrange(lower(r.period), NEW.until) AS period,
               round(extract(epoch FROM NEW.until - lower(r.period)) * 1000)::bigint AS milliseconds) AS part
      LEFT JOIN billing_price AS p ON p.id = r.price_id LEFT JOIN billing_rate AS rate ON rate.id = p.rate_id
     WHERE r.revision_id = NEW.id AND lower(r.period) < NEW.until;
    PERFORM billing_unspend(NEW.id, m.id);
    UPDATE billing_meter
       SET metered_until = NEW.until, certain_until = NEW.until, revisions = NEW.number,
           redone_from = CASE WHEN redone_from < NEW.until THEN redone_from END
     WHERE id = m.id;
    IF NEW.until > m.metered_from AND NEW.until IS DISTINCT FROM (
        SELECT max(upper(s.period)) FROM billing_usagesegment AS s WHERE s.meter_id = m.id) THEN
        RAISE EXCEPTION 'the segments of meter % leave a gap', m.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'meter_has_no_gaps';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_revise_meter AFTER INSERT ON billing_meterrevision
    FOR EACH ROW EXECUTE FUNCTION billing_revise_meter();
CREATE OR REPLACE TRIGGER billing_keep_revisions BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_meterrevision
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

-- A copy is of a segment that a revision replaces now; and only a segment with a copy goes.
CREATE OR REPLACE FUNCTION billing_admit_replaced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM billing_meterrevision AS r JOIN billing_meter AS m ON m.id = r.meter_id AND r.number = m.revisions + 1
          JOIN billing_usagesegment AS s ON s.meter_id = m.id AND s.id = NEW.segment_id
         WHERE r.id = NEW.revision_id AND m.id = NEW.meter_id AND upper(s.period) > r.until
           AND (s.period, s.gpu_milliseconds, s.cpu_millicore_milliseconds, s.cost, s.currency, s.is_estimated, s.recorded_at)
             = (NEW.period, NEW.gpu_milliseconds, NEW.cpu_millicore_milliseconds, NEW.cost, NEW.currency, NEW.is_estimated, NEW.recorded_at)
           AND s.price_id IS NOT DISTINCT FROM NEW.price_id) THEN
        RAISE EXCEPTION 'a replaced segment is one that its revision replaces'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'replaced_segment_was_one';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_replaced BEFORE INSERT ON billing_replacedsegment
    FOR EACH ROW EXECUTE FUNCTION billing_admit_replaced();
CREATE OR REPLACE TRIGGER billing_keep_replaced BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_replacedsegment
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE FUNCTION billing_keep_unreplaced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM billing_replacedsegment AS r WHERE r.segment_id = OLD.id) THEN
        RAISE EXCEPTION '% of % is refused: it is kept as it was written', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'ledger_is_append_only';
    END IF;
    RETURN OLD;
END $$;
CREATE OR REPLACE TRIGGER billing_keep_unreplaced BEFORE DELETE ON billing_usagesegment
    FOR EACH ROW EXECUTE FUNCTION billing_keep_unreplaced();

-- What goes leaves the sums that it came into (sql/days.sql), and its days have to be posted again.
CREATE OR REPLACE FUNCTION billing_take_from_sums() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- In the order of what adds: days, meters' days, months; and the days in their order.
    PERFORM 1 FROM billing_tenantday AS kept
      WHERE (kept.tenant_id, kept.day, kept.cluster_id, kept.flavor, kept.tenant_path) IN (
        SELECT m.tenant_id, (lower(s.period) AT TIME ZONE 'UTC')::date, m.cluster_id, m.flavor, m.tenant_path
          FROM taken AS s JOIN billing_meter AS m ON m.id = s.meter_id)
      ORDER BY kept.tenant_id, kept.day, kept.cluster_id, kept.flavor, kept.tenant_path, kept.currency, kept.gpu_numerator,
               kept.gpu_denominator FOR NO KEY UPDATE;
    UPDATE billing_tenantday AS kept
       SET cost = kept.cost - gone.cost, gpu_milliseconds = kept.gpu_milliseconds - gone.gpu,
           cpu_millicore_milliseconds = kept.cpu_millicore_milliseconds - gone.cpu,
           memory_mib_milliseconds = kept.memory_mib_milliseconds - gone.memory, segments = kept.segments - gone.segments, is_due = true
      FROM (
        SELECT m.tenant_id, m.tenant_path, m.cluster_id, m.flavor, (lower(s.period) AT TIME ZONE 'UTC')::date AS day, s.currency,
               m.gpu_numerator, m.gpu_denominator, sum(s.cost) AS cost, sum(s.gpu_milliseconds) AS gpu,
               sum(s.cpu_millicore_milliseconds) AS cpu,
               sum(m.memory_mib * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000) AS memory, count(*) AS segments
          FROM taken AS s JOIN billing_meter AS m ON m.id = s.meter_id GROUP BY 1, 2, 3, 4, 5, 6, 7, 8) AS gone
     WHERE (kept.tenant_id, kept.day, kept.cluster_id, kept.flavor, kept.tenant_path, kept.currency, kept.gpu_numerator, kept.gpu_denominator)
         = (gone.tenant_id, gone.day, gone.cluster_id, gone.flavor, gone.tenant_path, gone.currency, gone.gpu_numerator, gone.gpu_denominator);
    UPDATE billing_meterday AS kept SET milliseconds = kept.milliseconds - gone.milliseconds, cost = kept.cost - gone.cost
      FROM (
        SELECT s.meter_id, (lower(s.period) AT TIME ZONE 'UTC')::date AS day, s.price_id,
               sum(extract(epoch FROM upper(s.period) - lower(s.period)) * 1000) AS milliseconds, sum(s.cost) AS cost
          FROM taken AS s GROUP BY 1, 2, 3) AS gone
     WHERE (kept.meter_id, kept.day) = (gone.meter_id, gone.day) AND kept.price_id IS NOT DISTINCT FROM gone.price_id;
    UPDATE billing_tenantmonth AS kept SET cost = kept.cost - gone.cost, gpu_milliseconds = kept.gpu_milliseconds - gone.gpu
      FROM (
        SELECT m.tenant_id, date_trunc('month', lower(s.period) AT TIME ZONE 'UTC')::date AS month, s.currency, m.gpu_numerator,
               m.gpu_denominator, sum(s.cost) AS cost, sum(s.gpu_milliseconds) AS gpu
          FROM taken AS s JOIN billing_meter AS m ON m.id = s.meter_id GROUP BY 1, 2, 3, 4, 5) AS gone
     WHERE (kept.tenant_id, kept.month, kept.currency, kept.gpu_numerator, kept.gpu_denominator)
         = (gone.tenant_id, gone.month, gone.currency, gone.gpu_numerator, gone.gpu_denominator);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_take_from_sums AFTER DELETE ON billing_usagesegment
    REFERENCING OLD TABLE AS taken FOR EACH STATEMENT EXECUTE FUNCTION billing_take_from_sums();

-- Budgets get back what they counted of it, and no budget counts the part that was used again (billing_spend): it counts where it
-- did, also if its tenant has moved since. Never more than the run spent there.
CREATE OR REPLACE FUNCTION billing_unspend(of_revision bigint, of_meter bigint) RETURNS void LANGUAGE sql
    SET enable_seqscan = off AS $$
    WITH moved AS MATERIALIZED (
        SELECT r.period, r.cost, r.currency, r.gpu_milliseconds, 1 AS sign FROM billing_replacedsegment AS r WHERE r.revision_id = of_revision
        UNION ALL
        SELECT s.period, s.cost, s.currency, s.gpu_milliseconds, -1
          FROM billing_replacedsegment AS r JOIN billing_usagesegment AS s ON s.meter_id = of_meter AND lower(s.period) = lower(r.period)
         WHERE r.revision_id = of_revision
    )
    INSERT INTO billing_budgetmovement (run_id, period_id, kind, held, spent)
    SELECT used.run_id, used.period_id, 'revise', 0, -least(used.amount, used.spent)
      FROM (
        SELECT m.run_id, p.id AS period_id, own.spent, sum(moved.sign * billing_budget_use(
                   b.measure, b.currency, billing_cost_in(b.currency, b.tenant_id, moved.cost, moved.currency, lower(moved.period)),
                   b.currency, moved.gpu_milliseconds, m.gpu_numerator, m.gpu_denominator)) AS amount
          FROM billing_meter AS m
         CROSS JOIN LATERAL (
            SELECT line.period_id, sum(line.spent) AS spent FROM billing_budgetmovement AS line
             WHERE line.run_id = m.run_id GROUP BY line.period_id) AS own
          JOIN billing_budgetperiod AS p ON p.id = own.period_id
          JOIN billing_budget AS b ON b.id = p.budget_id AND b.removed_at IS NULL
          JOIN moved ON lower(moved.period) >= p.starts_at AND lower(moved.period) < p.ends_at AND lower(moved.period) >= b.counts_from
         WHERE m.id = of_meter GROUP BY m.run_id, p.id, own.spent) AS used
     WHERE least(used.amount, used.spent) > 0 ORDER BY used.run_id, used.period_id
$$;

CREATE OR REPLACE FUNCTION billing_only_revisions_return() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Written by the trigger of a revision, and by nothing else.
    IF pg_trigger_depth() < 2 THEN
        RAISE EXCEPTION 'only a revision returns what a run spent'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'only_revisions_return_what_was_spent';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_only_revisions_return BEFORE INSERT ON billing_budgetmovement
    FOR EACH ROW WHEN (NEW.kind = 'revise') EXECUTE FUNCTION billing_only_revisions_return();
