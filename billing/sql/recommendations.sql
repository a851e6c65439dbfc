-- Recommendations: which way each goes, whoever writes. Required labels only grow.

CREATE OR REPLACE FUNCTION billing_guard_recommendation() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    is_a_person boolean;
BEGIN
    IF NEW.last_found_on > today THEN
        RAISE EXCEPTION 'a recommendation is found no later than today'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'recommendation_is_found_in_time';
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'open' OR NEW.decided_at IS NOT NULL OR NEW.decided_by_name <> '' THEN
            RAISE EXCEPTION 'a recommendation begins open'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'recommendation_begins_open';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.organisation_id, NEW.tenant_id, NEW.kind, NEW.subject, NEW.currency, NEW.found_on)
       IS DISTINCT FROM (OLD.id, OLD.organisation_id, OLD.tenant_id, OLD.kind, OLD.subject, OLD.currency, OLD.found_on)
       OR NEW.last_found_on < OLD.last_found_on THEN
        RAISE EXCEPTION 'what a recommendation is about does not change'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'recommendation_keeps_its_subject';
    END IF;
    is_a_person := NEW.decided_by_name <> '' AND NEW.decided_at > OLD.decided_at;
    IF NEW.state = OLD.state THEN
        IF (NEW.reason, NEW.until, NEW.decided_high, NEW.decided_by_id, NEW.decided_by_name, NEW.decided_at)
           IS DISTINCT FROM (OLD.reason, OLD.until, OLD.decided_high, OLD.decided_by_id, OLD.decided_by_name, OLD.decided_at) THEN
            RAISE EXCEPTION 'a decision does not change; it is opened again first'
                USING ERRCODE = 'restrict_violation', CONSTRAINT = 'recommendation_goes_its_way';
        END IF;
    ELSIF NOT coalesce(CASE OLD.state
        WHEN 'open' THEN CASE NEW.state
            WHEN 'expired' THEN OLD.last_found_on < today
            WHEN 'accepted' THEN NEW.decided_high = NEW.high
            WHEN 'dismissed' THEN NEW.decided_high = NEW.high AND NEW.until > today
        END
        WHEN 'accepted' THEN (NEW.state = 'open' AND is_a_person)
            OR (NEW.state = 'done' AND OLD.last_found_on <= today - 14 AND NEW.decided_at = OLD.decided_at)
        WHEN 'dismissed' THEN (NEW.state = 'open' AND (is_a_person OR (NEW.last_found_on >= today - 1
                AND (OLD.until <= NEW.last_found_on OR NEW.high >= 1.5 * OLD.decided_high))))
            OR (NEW.state = 'expired' AND OLD.until <= today AND OLD.last_found_on < today)
        ELSE NEW.state = 'open' AND NEW.last_found_on > OLD.last_found_on
    END, false) THEN
        RAISE EXCEPTION 'a recommendation does not go from % to % like this', OLD.state, NEW.state
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'recommendation_goes_its_way';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_recommendation BEFORE INSERT OR UPDATE ON billing_recommendation
    FOR EACH ROW EXECUTE FUNCTION billing_guard_recommendation();
CREATE OR REPLACE TRIGGER billing_keep_recommendations BEFORE DELETE OR TRUNCATE ON billing_recommendation
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

CREATE OR REPLACE FUNCTION billing_guard_required_labels() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.keys <> ARRAY(SELECT DISTINCT key FROM unnest(NEW.keys) AS key ORDER BY 1)::varchar[] OR '' = ANY(NEW.keys) THEN
        RAISE EXCEPTION 'the keys of labels are distinct, and in order'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'required_labels_are_distinct';
    END IF;
    IF EXISTS (SELECT 1 FROM tenancy_tenant AS t WHERE t.id = NEW.organisation_id AND t.parent_id IS NOT NULL) THEN
        RAISE EXCEPTION 'labels are required by an organisation'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'labels_are_required_by_an_organisation';
    END IF;
    IF NEW.effective_from < (clock_timestamp() AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'labels are required from today on, or later'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'labels_are_required_from_today';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_required_labels BEFORE INSERT ON billing_requiredlabels
    FOR EACH ROW EXECUTE FUNCTION billing_guard_required_labels();
CREATE OR REPLACE TRIGGER billing_keep_required_labels BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_requiredlabels
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
