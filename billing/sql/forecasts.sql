-- Alerts on what is expected, and anomalies: what their tables refuse, whoever writes.

CREATE OR REPLACE FUNCTION billing_guard_forecast_thresholds() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.notify_forecast_at IS DISTINCT FROM
       ARRAY(SELECT DISTINCT percent FROM unnest(NEW.notify_forecast_at) AS percent WHERE percent BETWEEN 1 AND 1000 ORDER BY 1)::smallint[] THEN
        RAISE EXCEPTION 'thresholds are distinct percentages from 1 to 1000, in order'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_forecast_thresholds_are_in_order';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_forecast_thresholds BEFORE INSERT OR UPDATE OF notify_forecast_at ON billing_budget
    FOR EACH ROW EXECUTE FUNCTION billing_guard_forecast_thresholds();

CREATE OR REPLACE FUNCTION billing_guard_forecast_alert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM billing_budgetperiod AS p JOIN billing_budget AS b ON b.id = p.budget_id AND b.removed_at IS NULL
         WHERE p.id = NEW.period_id AND NEW.percent = ANY(b.notify_forecast_at)
           AND NEW.amount = p.amount AND NEW.expected > 0 AND NEW.expected * 100 >= NEW.percent * NEW.amount
           AND NEW.reached_on >= (p.starts_at AT TIME ZONE 'UTC')::date AND NEW.reached_on < (p.ends_at AT TIME ZONE 'UTC')::date
           AND NEW.at >= p.starts_at AND NEW.at < p.ends_at AND NEW.at BETWEEN transaction_timestamp() AND clock_timestamp()
    ) THEN
        RAISE EXCEPTION 'an alert is of a threshold of the budget that is expected to be reached in this period'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'forecast_alert_is_of_a_threshold';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_forecast_alert BEFORE INSERT ON billing_budgetforecastalert
    FOR EACH ROW EXECUTE FUNCTION billing_guard_forecast_alert();
CREATE OR REPLACE TRIGGER billing_keep_forecast_alerts BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_budgetforecastalert
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

CREATE OR REPLACE FUNCTION billing_guard_anomaly() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'open' OR NEW.day >= (clock_timestamp() AT TIME ZONE 'UTC')::date THEN
            RAISE EXCEPTION 'an anomaly begins open, after its day'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'anomaly_begins_open';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.organisation_id, NEW.tenant_id, NEW.tenant_path, NEW.cluster_id, NEW.flavor, NEW.currency, NEW.day, NEW.found_at)
       IS DISTINCT FROM
       (OLD.id, OLD.organisation_id, OLD.tenant_id, OLD.tenant_path, OLD.cluster_id, OLD.flavor, OLD.currency, OLD.day, OLD.found_at)
       OR OLD.state IN ('explained', 'dismissed')
       OR (NEW.state IN ('explained', 'dismissed') AND (OLD.state <> 'open'
           OR (NEW.cost, NEW.usual, NEW.spread) IS DISTINCT FROM (OLD.cost, OLD.usual, OLD.spread)))
       OR (OLD.state = 'closed' AND NEW.state <> 'open') THEN
        RAISE EXCEPTION 'an anomaly is decided once, and its day does not change'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'anomaly_goes_its_way';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_anomaly BEFORE INSERT OR UPDATE ON billing_spendanomaly
    FOR EACH ROW EXECUTE FUNCTION billing_guard_anomaly();
CREATE OR REPLACE TRIGGER billing_keep_anomalies BEFORE DELETE OR TRUNCATE ON billing_spendanomaly
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
