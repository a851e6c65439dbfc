-- Prices from own costs: a price that keeps a model costs what the model gives.

-- The same arithmetic as billing.engine.own_costs, formula 1: one fraction of exact numbers, rounded half-even to six decimals.
-- All amounts of a month are multiplied by 240000 times the months of life. Null if an input is missing.
CREATE OR REPLACE FUNCTION billing_own_cost_rate(m jsonb)
    RETURNS numeric
    LANGUAGE sql IMMUTABLE AS $$
    WITH given AS (
        SELECT (m->>'purchase_price')::numeric AS new, (m->>'residual_value')::numeric AS old,
               (m->>'life_months')::numeric AS life, (m->>'nodes')::numeric AS nodes,
               (m->>'units_per_node')::numeric AS units, 100 + (m->>'spares_percent')::numeric AS bought,
               (m->>'power_watts')::numeric * (m->>'load_percent')::numeric * (m->>'pue')::numeric AS power,
               (m->>'electricity_price')::numeric AS kwh, (m->>'space_cost')::numeric + (m->>'network_cost')::numeric AS place,
               (m->>'support_cost')::numeric AS support, (m->>'support_percent')::numeric AS support_percent,
               (m->>'staff_cost')::numeric AS staff, (m->>'capital_percent')::numeric AS capital,
               (m->>'utilisation_percent')::numeric AS sold, 100 + (m->>'margin_percent')::numeric AS margin
    ), fraction AS (
        SELECT ((new - old) * nodes * bought * 2400 + (new + old) * capital * nodes * bought * life
                + power * kwh * nodes * 1752 * life + place * nodes * bought * 2400 * life
                + CASE WHEN support IS NULL THEN new * support_percent * nodes * bought * 2 * life
                       WHEN support_percent IS NULL THEN support * 20000 * life END
                + staff * 240000 * life) * margin * 1000000 AS above,
               240000 * life * nodes * 730 * units * sold AS below
          FROM given WHERE life > 0 AND nodes > 0 AND units > 0 AND sold > 0
    ), rounded AS (
        SELECT above, below, div(above, below) AS whole FROM fraction
    )
    SELECT 0.000001 * CASE WHEN 2 * (above - whole * below) > below THEN whole + 1
                           WHEN 2 * (above - whole * below) = below THEN whole + whole % 2 ELSE whole END
      FROM rounded
$$;

-- The order of the conditions matters: after them, every input can be read as a number.
CREATE OR REPLACE FUNCTION billing_judge_own_costs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (CASE
        WHEN jsonb_typeof(NEW.own_costs) <> 'object' THEN true
        WHEN (NEW.own_costs->'formula', NEW.own_costs->>'currency') IS DISTINCT FROM ('1'::jsonb, NEW.currency::text) THEN true
        WHEN EXISTS (SELECT 1 FROM jsonb_each(NEW.own_costs - 'formula' - 'currency') AS input
                     WHERE jsonb_typeof(input.value) <> 'string' OR input.value #>> '{}' !~ '^[0-9]{1,9}(\.[0-9]{1,6})?$') THEN true
        ELSE NOT coalesce(billing_own_cost_rate(NEW.own_costs) = NEW.unit_price AND NEW.unit_price < 1000000000, false)
    END) THEN
        RAISE EXCEPTION 'the price is not what its own costs give'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'price_is_what_its_costs_give';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_own_costs BEFORE INSERT ON billing_price
    FOR EACH ROW WHEN (NEW.own_costs IS NOT NULL) EXECUTE FUNCTION billing_judge_own_costs();
