-- What the numbers that energy and emissions are computed from refuse, whoever writes.

CREATE OR REPLACE FUNCTION billing_refuse_part_of_an_hour() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'energy and emissions are counted by whole hours in UTC'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'carbon_counts_by_whole_hours';
END $$;
CREATE OR REPLACE TRIGGER billing_whole_hours BEFORE INSERT ON billing_gridintensity FOR EACH ROW
    WHEN (date_trunc('hour', NEW.valid_from, 'UTC') <> NEW.valid_from OR date_trunc('hour', NEW.valid_until, 'UTC') <> NEW.valid_until)
    EXECUTE FUNCTION billing_refuse_part_of_an_hour();
CREATE OR REPLACE TRIGGER billing_whole_hours BEFORE INSERT ON billing_powerrating FOR EACH ROW
    WHEN (date_trunc('hour', NEW.since, 'UTC') <> NEW.since) EXECUTE FUNCTION billing_refuse_part_of_an_hour();
CREATE OR REPLACE TRIGGER billing_whole_hours BEFORE INSERT ON billing_carbonsite FOR EACH ROW
    WHEN (date_trunc('hour', NEW.since, 'UTC') <> NEW.since) EXECUTE FUNCTION billing_refuse_part_of_an_hour();
CREATE OR REPLACE TRIGGER billing_whole_hours BEFORE INSERT ON billing_measuredenergy FOR EACH ROW
    WHEN (date_trunc('hour', NEW.hour, 'UTC') <> NEW.hour) EXECUTE FUNCTION billing_refuse_part_of_an_hour();

-- A measured hour is one of its meter, which no longer changes in it: a meter only runs on, and stands still once closed.
CREATE OR REPLACE FUNCTION billing_judge_measured() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM added AS e JOIN billing_meter AS m ON m.id = e.meter_id
                WHERE e.hour >= m.metered_until OR e.hour + interval '1 hour' <= m.metered_from
                   OR NOT (m.is_closed OR m.metered_until >= e.hour + interval '1 hour')) THEN
        RAISE EXCEPTION 'only an hour that is metered is measured'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'measured_hour_is_metered';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_measured AFTER INSERT ON billing_measuredenergy
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_judge_measured();

CREATE OR REPLACE FUNCTION billing_judge_carbon_organisation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM tenancy_tenant WHERE id = NEW.organisation_id AND parent_id IS NOT NULL) THEN
        RAISE EXCEPTION 'numbers for emissions are of an organisation, or of all'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'carbon_is_of_an_organisation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_carbon_organisation BEFORE INSERT ON billing_gridintensity
    FOR EACH ROW WHEN (NEW.organisation_id IS NOT NULL) EXECUTE FUNCTION billing_judge_carbon_organisation();
CREATE OR REPLACE TRIGGER billing_judge_carbon_organisation BEFORE INSERT ON billing_powerrating
    FOR EACH ROW WHEN (NEW.organisation_id IS NOT NULL) EXECUTE FUNCTION billing_judge_carbon_organisation();
CREATE OR REPLACE TRIGGER billing_keep_grid_intensities BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_gridintensity
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_power_ratings BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_powerrating
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_carbon_sites BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_carbonsite
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_measured_energy BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_measuredenergy
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
