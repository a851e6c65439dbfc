"""The sequence that fences workers, and a timeline that nobody rewrites."""

from django.db import migrations

FORWARD = """
CREATE SEQUENCE federation_claim_token AS bigint;

CREATE FUNCTION federation_refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the timeline of jobs is append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER job_events_are_append_only BEFORE UPDATE ON federation_jobevent
    FOR EACH ROW EXECUTE FUNCTION federation_refuse_rewrite();

-- Terminal states absorb, whoever writes: application, operator or raw SQL.
CREATE FUNCTION federation_absorb() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% % has ended as %; it cannot become %', TG_ARGV[0], OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER ended_jobs_stay_ended BEFORE UPDATE OF state ON federation_job FOR EACH ROW
    WHEN (OLD.state IN ('succeeded', 'failed', 'cancelled') AND NEW.state IS DISTINCT FROM OLD.state)
    EXECUTE FUNCTION federation_absorb('job');
CREATE TRIGGER ended_attempts_stay_ended BEFORE UPDATE OF state ON federation_attempt FOR EACH ROW
    WHEN (OLD.state IN ('succeeded', 'failed', 'cancelled', 'preempted', 'abandoned', 'lost')
          AND NEW.state IS DISTINCT FROM OLD.state)
    EXECUTE FUNCTION federation_absorb('attempt');

-- An object's identity is written once.
CREATE FUNCTION federation_keep_uid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'object % already has uid %', OLD.name, OLD.uid USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER object_uid_is_written_once BEFORE UPDATE OF uid ON federation_remoteobject FOR EACH ROW
    WHEN (OLD.uid <> '' AND NEW.uid IS DISTINCT FROM OLD.uid)
    EXECUTE FUNCTION federation_keep_uid();
"""
BACKWARD = """
DROP TRIGGER object_uid_is_written_once ON federation_remoteobject;
DROP TRIGGER ended_attempts_stay_ended ON federation_attempt;
DROP TRIGGER ended_jobs_stay_ended ON federation_job;
DROP TRIGGER job_events_are_append_only ON federation_jobevent;
DROP FUNCTION federation_keep_uid();
DROP FUNCTION federation_absorb();
DROP FUNCTION federation_refuse_rewrite();
DROP SEQUENCE federation_claim_token;
"""


class Migration(migrations.Migration):
    dependencies = [("federation", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
