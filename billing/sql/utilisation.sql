-- What the GPUs of a meter did is of the time that the meter counts.

CREATE OR REPLACE FUNCTION billing_judge_utilisation() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    seconds numeric;
BEGIN
    SELECT extract(epoch FROM least(m.metered_until, NEW.hour + interval '1 hour') - greatest(m.metered_from, NEW.hour)) INTO seconds
      FROM billing_meter AS m WHERE m.id = NEW.meter_id AND m.gpu_units > 0;
    IF seconds IS NULL OR seconds < NEW.coverage_seconds THEN
        RAISE EXCEPTION 'utilisation of time that the meter does not count'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'utilisation_lies_within_its_meter';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_utilisation BEFORE INSERT OR UPDATE ON billing_utilisationhour
    FOR EACH ROW EXECUTE FUNCTION billing_judge_utilisation();
