-- What the tables of this room refuse, whoever writes: PostgreSQL itself judges, in one transaction with the write.

CREATE SEQUENCE IF NOT EXISTS federation_claim_token AS bigint;

ALTER TABLE federation_reservation
    ADD CONSTRAINT reservation_times_are_referenced UNIQUE (id, cluster_id, starts_at, until_at);
ALTER TABLE federation_reservednode
    ADD CONSTRAINT reserved_nodes_follow_their_reservation FOREIGN KEY (reservation_id, cluster_id, starts_at, until_at)
        REFERENCES federation_reservation (id, cluster_id, starts_at, until_at) ON UPDATE CASCADE,
    ADD CONSTRAINT a_node_is_reserved_once_at_a_time EXCLUDE USING gist (
        int8range(hashtextextended(cluster_id::text || '/' || node, 0),
                  hashtextextended(cluster_id::text || '/' || node, 0), '[]') WITH &&,
        tstzrange(starts_at, until_at) WITH &&);

ALTER TABLE federation_rungroup ADD CONSTRAINT run_group_seconds_are_not_negative
    CHECK (0 <= ALL (recent_seconds) AND array_position(recent_seconds, NULL) IS NULL);

CREATE OR REPLACE FUNCTION federation_refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the timeline of jobs is append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER job_events_are_append_only BEFORE UPDATE ON federation_jobevent
    FOR EACH ROW EXECUTE FUNCTION federation_refuse_rewrite();

-- Terminal states absorb, whoever writes: application, operator or raw SQL.
CREATE OR REPLACE FUNCTION federation_absorb() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE FUNCTION federation_keep_uid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'object % already has uid %', OLD.name, OLD.uid USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER object_uid_is_written_once BEFORE UPDATE OF uid ON federation_remoteobject FOR EACH ROW
    WHEN (OLD.uid <> '' AND NEW.uid IS DISTINCT FROM OLD.uid)
    EXECUTE FUNCTION federation_keep_uid();

CREATE OR REPLACE FUNCTION federation_keep_cluster() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM federation_attempt WHERE cluster_id = NEW.id
               AND state IN ('reserved', 'created', 'starting', 'running', 'unknown')) THEN
        RAISE EXCEPTION 'attempts live on cluster %', NEW.name
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'cluster_stays_while_attempts_live';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER cluster_stays_while_attempts_live BEFORE UPDATE OF removed_at ON clusters_cluster FOR EACH ROW
    WHEN (OLD.removed_at IS NULL AND NEW.removed_at IS NOT NULL) EXECUTE FUNCTION federation_keep_cluster();

CREATE OR REPLACE FUNCTION federation_need_cluster() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM clusters_cluster WHERE id = NEW.cluster_id AND removed_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'cluster % is not registered', NEW.cluster_id
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'attempts_begin_on_registered_clusters';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER attempts_begin_on_registered_clusters BEFORE INSERT ON federation_attempt FOR EACH ROW
    EXECUTE FUNCTION federation_need_cluster();

CREATE OR REPLACE FUNCTION federation_guard_reservation() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    fault text;
BEGIN
    IF (NEW.id, NEW.tenant_id, NEW.created_by_id, NEW.cluster_id, NEW.name, NEW.shape, NEW.count, NEW.starts_at,
        NEW.ends_at, NEW.created_at) IS DISTINCT FROM
       (OLD.id, OLD.tenant_id, OLD.created_by_id, OLD.cluster_id, OLD.name, OLD.shape, OLD.count, OLD.starts_at,
        OLD.ends_at, OLD.created_at) THEN
        fault := 'stays as it was asked for';
    ELSIF OLD.cancelled_at IS NOT NULL AND NEW IS DISTINCT FROM OLD THEN
        fault := 'was cancelled';
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
CREATE TRIGGER reservations_are_history BEFORE UPDATE ON federation_reservation
    FOR EACH ROW EXECUTE FUNCTION federation_guard_reservation();

CREATE OR REPLACE FUNCTION federation_guard_reserved_node() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.reservation_id, NEW.cluster_id, NEW.node) IS DISTINCT FROM
       (OLD.id, OLD.reservation_id, OLD.cluster_id, OLD.node) THEN
        RAISE EXCEPTION 'reserved node % stays in its reservation', OLD.node
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'reserved_nodes_are_history';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER reserved_nodes_are_history BEFORE UPDATE ON federation_reservednode
    FOR EACH ROW EXECUTE FUNCTION federation_guard_reserved_node();

CREATE OR REPLACE FUNCTION federation_keep_reservations() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'reservations are history and are never deleted' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER reservations_are_kept BEFORE DELETE OR TRUNCATE ON federation_reservation
    FOR EACH STATEMENT EXECUTE FUNCTION federation_keep_reservations();
CREATE TRIGGER reserved_nodes_are_kept BEFORE DELETE OR TRUNCATE ON federation_reservednode
    FOR EACH STATEMENT EXECUTE FUNCTION federation_keep_reservations();

CREATE OR REPLACE FUNCTION federation_pod_fits() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.attempt_id, NEW.cluster_id, NEW.uid, NEW.position, NEW.index)
           IS DISTINCT FROM (OLD.attempt_id, OLD.cluster_id, OLD.uid, OLD.position, OLD.index)
           OR (OLD.place IS NOT NULL AND (NEW.place, NEW.remote_object_id)
               IS DISTINCT FROM (OLD.place, OLD.remote_object_id)) THEN
            RAISE EXCEPTION 'what pod % is never changes', OLD.uid
                USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_pod_stays_what_it_is';
        END IF;
        RETURN NEW;
    END IF;
    PERFORM 1 FROM federation_remoteobject AS object
              JOIN federation_attempt AS attempt ON attempt.id = object.attempt_id
     WHERE object.id = NEW.remote_object_id AND object.attempt_id = NEW.attempt_id AND object.position = NEW.position
       AND NEW.place < object.pods AND attempt.cluster_id = NEW.cluster_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pod % fits no object of its attempt and cluster', NEW.uid
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_pod_has_a_place_of_its_object';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_pod_has_a_place_of_its_object BEFORE INSERT ON federation_podrun FOR EACH ROW
    EXECUTE FUNCTION federation_pod_fits();
CREATE TRIGGER a_pod_stays_what_it_is
    BEFORE UPDATE OF attempt_id, cluster_id, uid, position, index, place, remote_object_id ON federation_podrun
    FOR EACH ROW EXECUTE FUNCTION federation_pod_fits();

CREATE OR REPLACE FUNCTION federation_object_is_its_clusters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.cluster_id <> (SELECT cluster_id FROM federation_attempt WHERE id = NEW.attempt_id) THEN
        RAISE EXCEPTION 'object % is not on cluster %', NEW.name, NEW.cluster_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'an_object_is_on_its_attempts_cluster';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER an_object_is_on_its_attempts_cluster BEFORE INSERT OR UPDATE OF cluster_id ON federation_remoteobject
    FOR EACH ROW WHEN (NEW.cluster_id IS NOT NULL) EXECUTE FUNCTION federation_object_is_its_clusters();

CREATE OR REPLACE FUNCTION federation_promise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.promised IS DISTINCT FROM OLD.promised
           OR (NEW.flavor, NEW.pods, NEW.gpu_units, NEW.cpu_millicores, NEW.memory_mib)
              IS DISTINCT FROM (OLD.flavor, OLD.pods, OLD.gpu_units, OLD.cpu_millicores, OLD.memory_mib) THEN
            RAISE EXCEPTION 'what object % was promised never changes', OLD.name
                USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_promise_is_kept';
        END IF;
        RETURN NEW;
    END IF;
    SELECT jsonb_build_object('vendor', flavor.vendor, 'resource_name', flavor.resource_name,
                              'node_selector', flavor.node_selector, 'slice_hosts', flavor.slice_hosts,
                              'device_class', flavor.device_class, 'cel', flavor.cel,
                              'gpu_model', flavor.gpu_model, 'sharing', flavor.sharing)
      INTO NEW.promised
      FROM federation_attempt AS attempt
      JOIN clusters_flavor AS flavor ON flavor.cluster_id = attempt.cluster_id AND flavor.name = NEW.flavor
     WHERE attempt.id = NEW.attempt_id;
    RETURN NEW;
END $$;
CREATE TRIGGER a_promise_is_made BEFORE INSERT ON federation_remoteobject FOR EACH ROW
    EXECUTE FUNCTION federation_promise();
CREATE TRIGGER a_promise_is_kept
    BEFORE UPDATE OF promised, flavor, pods, gpu_units, cpu_millicores, memory_mib ON federation_remoteobject
    FOR EACH ROW EXECUTE FUNCTION federation_promise();

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
CREATE TRIGGER an_attempts_instants_stand
    BEFORE UPDATE OF starting_at, sent_at, created_at, started_at, finished_at, reopened_at ON federation_attempt
    FOR EACH ROW WHEN (
        OLD.starting_at IS NOT NULL AND NEW.starting_at IS DISTINCT FROM OLD.starting_at
        OR OLD.sent_at IS NOT NULL AND NEW.sent_at IS DISTINCT FROM OLD.sent_at
        OR OLD.created_at IS NOT NULL AND NEW.created_at IS DISTINCT FROM OLD.created_at
        OR OLD.started_at IS NOT NULL AND NEW.started_at IS DISTINCT FROM OLD.started_at
        OR OLD.finished_at IS NOT NULL AND NEW.finished_at IS DISTINCT FROM OLD.finished_at
        OR OLD.reopened_at IS NOT NULL AND NEW.reopened_at IS DISTINCT FROM OLD.reopened_at)
    EXECUTE FUNCTION federation_keep_instants();

CREATE OR REPLACE FUNCTION federation_pod_instants() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'when pod % began or ended is known and stands', OLD.uid
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_pods_instants_stand';
END $$;
CREATE TRIGGER a_pods_instants_stand BEFORE UPDATE OF started_at, finished_at, part, resumed_at ON federation_podrun
    FOR EACH ROW WHEN (
        OLD.started_at IS NOT NULL AND NEW.started_at IS DISTINCT FROM OLD.started_at
        OR OLD.finished_at IS NOT NULL AND NEW.finished_at IS DISTINCT FROM OLD.finished_at
        OR NEW.part < OLD.part
        OR NEW.part = OLD.part AND NEW.resumed_at IS DISTINCT FROM OLD.resumed_at)
    EXECUTE FUNCTION federation_pod_instants();

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
CREATE TRIGGER what_may_have_run_settles_on_evidence BEFORE UPDATE OF settled_at ON federation_attempt
    FOR EACH ROW WHEN ((OLD.settled_at IS NULL) <> (NEW.settled_at IS NULL))
    EXECUTE FUNCTION federation_settle_on_evidence();
