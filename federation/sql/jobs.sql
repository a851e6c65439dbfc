-- Jobs and attempts: what has happened to them stands.

CREATE OR REPLACE FUNCTION federation_refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the timeline of jobs is append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER job_events_are_append_only BEFORE UPDATE ON federation_jobevent
    FOR EACH ROW EXECUTE FUNCTION federation_refuse_rewrite();

-- Terminal states absorb, whoever writes: application, operator or raw SQL.
CREATE OR REPLACE FUNCTION federation_absorb() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% % has ended as %; it cannot become %', TG_ARGV[0], OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER ended_jobs_stay_ended BEFORE UPDATE OF state ON federation_job FOR EACH ROW
    WHEN (OLD.state IN ('succeeded', 'failed', 'cancelled') AND NEW.state IS DISTINCT FROM OLD.state)
    EXECUTE FUNCTION federation_absorb('job');
CREATE OR REPLACE TRIGGER ended_attempts_stay_ended BEFORE UPDATE OF state ON federation_attempt FOR EACH ROW
    WHEN (OLD.state IN ('succeeded', 'failed', 'cancelled', 'preempted', 'abandoned', 'lost')
          AND NEW.state IS DISTINCT FROM OLD.state)
    EXECUTE FUNCTION federation_absorb('attempt');

CREATE OR REPLACE FUNCTION federation_keep_cluster() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM federation_attempt WHERE cluster_id = NEW.id
               AND state IN ('reserved', 'created', 'starting', 'running', 'unknown')) THEN
        RAISE EXCEPTION 'attempts live on cluster %', NEW.name
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'cluster_stays_while_attempts_live';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER cluster_stays_while_attempts_live BEFORE UPDATE OF removed_at ON clusters_cluster FOR EACH ROW
    WHEN (OLD.removed_at IS NULL AND NEW.removed_at IS NOT NULL) EXECUTE FUNCTION federation_keep_cluster();

-- Reads by index, whatever a session knew of the tables when it planned the statement: a plan for almost empty tables, kept, would
-- read them from end to end for each row.
CREATE OR REPLACE FUNCTION federation_need_cluster() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM 1 FROM clusters_cluster WHERE id = NEW.cluster_id AND removed_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'cluster % is not registered', NEW.cluster_id
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'attempts_begin_on_registered_clusters';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER attempts_begin_on_registered_clusters BEFORE INSERT ON federation_attempt FOR EACH ROW
    EXECUTE FUNCTION federation_need_cluster();

CREATE OR REPLACE FUNCTION federation_keep_instants() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Bounds what may be billed: it never changes. least() ignores null, so the others are never lost nor moved on.
    NEW.starting_at := coalesce(OLD.starting_at, NEW.starting_at);
    NEW.sent_at := least(OLD.sent_at, NEW.sent_at);
    NEW.created_at := least(OLD.created_at, NEW.created_at);
    NEW.started_at := least(OLD.started_at, NEW.started_at);
    NEW.finished_at := least(OLD.finished_at, NEW.finished_at);
    NEW.reopened_at := least(OLD.reopened_at, NEW.reopened_at);
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER an_attempts_instants_stand
    BEFORE UPDATE OF starting_at, sent_at, created_at, started_at, finished_at, reopened_at ON federation_attempt
    FOR EACH ROW WHEN (
        OLD.starting_at IS NOT NULL AND NEW.starting_at IS DISTINCT FROM OLD.starting_at
        OR OLD.sent_at IS NOT NULL AND NEW.sent_at IS DISTINCT FROM OLD.sent_at
        OR OLD.created_at IS NOT NULL AND NEW.created_at IS DISTINCT FROM OLD.created_at
        OR OLD.started_at IS NOT NULL AND NEW.started_at IS DISTINCT FROM OLD.started_at
        OR OLD.finished_at IS NOT NULL AND NEW.finished_at IS DISTINCT FROM OLD.finished_at
        OR OLD.reopened_at IS NOT NULL AND NEW.reopened_at IS DISTINCT FROM OLD.reopened_at)
    EXECUTE FUNCTION federation_keep_instants();

-- Ten minutes are `federation.queries.metering.PATIENCE`.
CREATE OR REPLACE FUNCTION federation_settle_on_evidence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.settled_at IS NULL THEN
        IF NEW.reopened_at IS NULL THEN
            RAISE EXCEPTION 'attempt % is settled; only a pod that was seen to run opens it again', OLD.id
                USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_settled_attempt_opens_for_a_pod';
        END IF;
    ELSIF NEW.starting_at IS NOT NULL AND NEW.pods_told_at IS NULL
          AND clock_timestamp() < NEW.finished_at + interval '10 minutes' THEN
        RAISE EXCEPTION 'attempt % may have run, and its cluster has not told its pods', OLD.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'what_may_have_run_settles_on_evidence';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER what_may_have_run_settles_on_evidence BEFORE UPDATE OF settled_at ON federation_attempt
    FOR EACH ROW WHEN ((OLD.settled_at IS NULL) <> (NEW.settled_at IS NULL))
    EXECUTE FUNCTION federation_settle_on_evidence();

-- Jobs and attempts end now, by every writer: an end in the past would pass for evidence that its cluster had its time to report
-- pods (`what_may_have_run_settles_on_evidence`), and bills would be bounded by it. The minute is for transactions that last.
CREATE OR REPLACE FUNCTION federation_ends_now() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.finished_at IS NOT NULL THEN
        RAISE EXCEPTION '% % has ended at %, which stands', TG_ARGV[0], OLD.id, OLD.finished_at
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'an_end_is_dated_now';
    END IF;
    IF NEW.finished_at NOT BETWEEN transaction_timestamp() - interval '1 minute' AND clock_timestamp() + interval '1 second' THEN
        RAISE EXCEPTION '% % ends now, not at %', TG_ARGV[0], OLD.id, NEW.finished_at
            USING ERRCODE = 'check_violation', CONSTRAINT = 'an_end_is_dated_now';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER jobs_end_now BEFORE UPDATE OF finished_at ON federation_job FOR EACH ROW
    WHEN (NEW.finished_at IS DISTINCT FROM OLD.finished_at) EXECUTE FUNCTION federation_ends_now('job');
CREATE OR REPLACE TRIGGER attempts_end_now BEFORE UPDATE OF finished_at ON federation_attempt FOR EACH ROW
    WHEN (NEW.finished_at IS DISTINCT FROM OLD.finished_at) EXECUTE FUNCTION federation_ends_now('attempt');
