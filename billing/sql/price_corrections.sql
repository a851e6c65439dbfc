-- Corrections of prices that have counted already.

CREATE OR REPLACE FUNCTION billing_judge_correction() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF upper(NEW.span) > clock_timestamp() THEN
        RAISE EXCEPTION 'a correction is of past time'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'correction_is_of_the_past';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM billing_price WHERE rate_id = NEW.rate_id AND currency = NEW.currency) THEN
        RAISE EXCEPTION 'a correction is in the currency of its rate'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'correction_is_in_its_rates_currency';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_correction BEFORE INSERT ON billing_pricecorrection
    FOR EACH ROW EXECUTE FUNCTION billing_judge_correction();

-- What a meter costs in a span within one day, by the prices as they are corrected: the same arithmetic as
-- billing.engine.corrected. Empty currency: no price.
CREATE OR REPLACE FUNCTION billing_corrected(meter bigint, span tstzrange)
    RETURNS TABLE(currency character varying, cost numeric, milliseconds numeric)
    LANGUAGE sql STABLE AS $$
    WITH m AS MATERIALIZED (
        SELECT * FROM billing_meter WHERE id = meter
    ), terms AS MATERIALIZED (
        SELECT r.flavor, p.valid, p.unit_price, p.cpu_price, p.memory_price, p.currency, 0::bigint AS number
          FROM m JOIN billing_rate AS r ON r.cluster_id = m.cluster_id AND r.capacity_type = m.capacity_type
               AND r.flavor IN (m.flavor, m.cpu_flavor)
          JOIN billing_price AS p ON p.rate_id = r.id AND p.valid && span
        UNION ALL
        SELECT r.flavor, c.span, c.unit_price, c.cpu_price, c.memory_price, c.currency, c.id
          FROM m JOIN billing_rate AS r ON r.cluster_id = m.cluster_id AND r.capacity_type = m.capacity_type
               AND r.flavor IN (m.flavor, m.cpu_flavor)
          JOIN billing_pricecorrection AS c ON c.rate_id = r.id AND c.span && billing_corrected.span
    ), cuts AS (
        SELECT lower(span) AS at UNION SELECT upper(span)
        UNION SELECT lower(valid) FROM terms WHERE lower(valid) > lower(span) AND lower(valid) < upper(span)
        UNION SELECT upper(valid) FROM terms WHERE upper(valid) > lower(span) AND upper(valid) < upper(span)
    ), pieces AS (
        SELECT at, lead(at) OVER (ORDER BY at) AS until FROM cuts
    )
    SELECT coalesce(chosen.currency, ''), sum(coalesce(billing_cost(
               m.unit = 'core' OR chosen.rank = 2, m.gpu_units, m.cpu_millicores, m.memory_mib, m.metered_from,
               chosen.unit_price, chosen.cpu_price, chosen.memory_price, chosen.valid,
               tstzrange(pieces.at, pieces.until)), 0)),
           sum(trunc(extract(epoch FROM pieces.until - pieces.at) * 1000))
      FROM pieces CROSS JOIN m LEFT JOIN LATERAL (
          SELECT latest.*, rank FROM (
              SELECT DISTINCT ON (terms.flavor) terms.* FROM terms WHERE terms.valid @> pieces.at
               ORDER BY terms.flavor, terms.number DESC
          ) AS latest CROSS JOIN LATERAL billing_rank(
              m.flavor, m.cpu_flavor, m.unit, m.gpu_units, latest.flavor, latest.cpu_price, latest.memory_price) AS rank
          WHERE rank IS NOT NULL ORDER BY rank LIMIT 1
      ) AS chosen ON true
     WHERE pieces.until IS NOT NULL GROUP BY 1
$$;
CREATE OR REPLACE TRIGGER billing_keep_corrections BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_pricecorrection
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
