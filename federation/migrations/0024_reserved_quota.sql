-- The quota of a reservation has its times: to end one sooner, end its quota, and the reservation and its nodes follow.
ALTER TABLE federation_reservation ADD CONSTRAINT reservation_times_follow_its_quota
    FOREIGN KEY (quota_id, starts_at, until_at) REFERENCES quotas_reservedquota (id, starts_at, until_at) ON UPDATE CASCADE;

CREATE OR REPLACE FUNCTION federation_guard_reservation() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    fault text;
BEGIN
    IF (NEW.id, NEW.tenant_id, NEW.created_by_id, NEW.cluster_id, NEW.name, NEW.shape, NEW.count, NEW.starts_at,
        NEW.ends_at, NEW.created_at, NEW.quota_id, NEW.recall_seconds, NEW.no_show_seconds) IS DISTINCT FROM
       (OLD.id, OLD.tenant_id, OLD.created_by_id, OLD.cluster_id, OLD.name, OLD.shape, OLD.count, OLD.starts_at,
        OLD.ends_at, OLD.created_at, OLD.quota_id, OLD.recall_seconds, OLD.no_show_seconds) THEN
        fault := 'stays as it was asked for';
    ELSIF OLD.cancelled_at IS NOT NULL AND NEW IS DISTINCT FROM OLD THEN
        fault := 'was cancelled';
    ELSIF OLD.released_at IS NOT NULL AND NEW IS DISTINCT FROM OLD THEN
        fault := 'was released';
    ELSIF NEW.until_at > OLD.until_at THEN
        fault := 'only ever ends sooner';
    ELSIF NEW.until_at < OLD.until_at AND OLD.until_at <= statement_timestamp() THEN
        fault := 'is over';
    ELSIF NEW.until_at < OLD.until_at AND NEW.until_at < statement_timestamp() AND OLD.starts_at < statement_timestamp() THEN
        fault := 'was in force until now';
    END IF;
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'reservation % %', OLD.id, fault
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'reservations_are_history';
    END IF;
    RETURN NEW;
END $$;
