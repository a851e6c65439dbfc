-- After the migrations: the log of states, and how a world is put back to its beginning.
CREATE TRIGGER simulation_notes AFTER INSERT OR UPDATE OF state ON federation_job
    FOR EACH ROW EXECUTE FUNCTION simulation.note_state('job', 'id');
CREATE TRIGGER simulation_notes AFTER INSERT OR UPDATE OF state ON federation_attempt
    FOR EACH ROW EXECUTE FUNCTION simulation.note_state('attempt', 'id');
CREATE TRIGGER simulation_notes AFTER INSERT OR UPDATE OF state ON quotas_hold
    FOR EACH ROW EXECUTE FUNCTION simulation.note_state('hold', 'holder_id');

CREATE FUNCTION simulation.note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO simulation.changes (at, what, id, before, after)
    VALUES (simulation.clock_timestamp(), 'claim', NEW.id::text, OLD.claim_token::text, NEW.claim_token::text);
    RETURN NULL;
END $$;
CREATE TRIGGER simulation_claims AFTER UPDATE OF claim_token ON federation_attempt
    FOR EACH ROW WHEN (OLD.claim_token <> NEW.claim_token) EXECUTE FUNCTION simulation.note_claim();

-- Images that the gateway noted as pulled to a node.
CREATE FUNCTION simulation.note_pull() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO simulation.changes (at, what, id, before, after)
    VALUES (simulation.clock_timestamp(), 'pull', NEW.cluster_id::text, NULL, NEW.image || ' ' || NEW.node);
    RETURN NULL;
END $$;
CREATE TRIGGER simulation_notes AFTER UPDATE OF pulls ON federation_prepull
    FOR EACH ROW WHEN (OLD.pulls <> NEW.pulls) EXECUTE FUNCTION simulation.note_pull();

-- Replicas that the gateway recorded, with the Job that its copy had then.
CREATE FUNCTION simulation.note_replica() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO simulation.changes (at, what, id, before, after)
    VALUES (simulation.clock_timestamp(), 'replica', NEW.plan_id::text, NULL,
            coalesce((SELECT uid FROM federation_stagein WHERE plan_id = NEW.plan_id), ''));
    RETURN NULL;
END $$;
CREATE TRIGGER simulation_notes AFTER INSERT ON clusters_datasetreplica
    FOR EACH ROW EXECUTE FUNCTION simulation.note_replica();

-- Attempts that were placed where data that their jobs want is not, although its copy is planned there and nothing excuses it
-- (`data_copies.py`). A cycle reads a few seconds before it writes. `before` says that nodes were kept for the job: it does not wait.
CREATE FUNCTION simulation.note_unstaged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO simulation.changes (at, what, id, before, after)
    SELECT simulation.clock_timestamp(), 'unstaged', NEW.id::text,
           CASE WHEN EXISTS (SELECT FROM federation_preemption AS made WHERE made.beneficiary_id = job.id
                                AND coalesce(made.ended_at, made.deadline_at) > simulation.clock_timestamp() - interval '10 seconds')
                  OR EXISTS (SELECT FROM federation_consolidation AS plan WHERE plan.beneficiary_id = job.id
                                AND coalesce(plan.ended_at, plan.deadline_at) > simulation.clock_timestamp() - interval '10 seconds')
                  OR EXISTS (SELECT FROM federation_attempt AS stopped
                               LEFT JOIN federation_move AS move ON move.attempt_id = stopped.id AND move.nodes <> '[]'
                               LEFT JOIN federation_preemptionvictim AS victim ON victim.attempt_id = stopped.id AND victim.nodes <> '[]'
                              WHERE stopped.job_id = job.id AND stopped.number = NEW.number - 1
                                AND (move.attempt_id IS NOT NULL OR victim.attempt_id IS NOT NULL))
                THEN 'kept' END, NEW.job_id::text
      FROM federation_job AS job
     CROSS JOIN LATERAL jsonb_path_query(job.spec, '$.data[*] ? (@.stage == true)') AS need
      JOIN clusters_dataset AS dataset ON dataset.name = need ->> 'name'
      JOIN clusters_stagingplan AS plan ON plan.dataset_id = dataset.id AND plan.cluster_id = NEW.cluster_id
      -- For a copy into what is read-only, no job waits.
      JOIN clusters_storage AS target ON target.id = plan.target_id AND target.mode = 'read_write'
      LEFT JOIN federation_stagein AS copy ON copy.plan_id = plan.id
      LEFT JOIN clusters_datasetreplica AS replica ON replica.plan_id = plan.id
     WHERE job.id = NEW.job_id AND replica.id IS NULL
       AND greatest(plan.created_at, target.changed_at) < simulation.clock_timestamp() - interval '10 seconds'
       AND (copy.id IS NULL OR copy.changed_at < simulation.clock_timestamp() - interval '10 seconds'
            AND NOT (copy.phase = 'idle' AND (copy.failures >= 3 OR NOT copy.is_wanted)))
       -- Without its access key, no copy from an object store begins, and nothing waits for it.
       AND (coalesce(copy.phase, 'idle') <> 'idle'
            OR NOT EXISTS (SELECT FROM clusters_storage AS source WHERE source.id = plan.source_id AND source.kind = 'object_store')
            OR EXISTS (SELECT FROM clusters_storage AS source JOIN clusters_tenantsecret AS secret ON secret.name = source.secret
                        WHERE source.id = plan.source_id AND secret.kind = 'access_key'
                          AND secret.created_at < simulation.clock_timestamp() - interval '10 seconds'))
       AND NOT EXISTS (
           SELECT FROM federation_datawait AS wait
            WHERE wait.job_id = job.id
              AND (wait.outcome IN ('late', 'failed', 'skipped')
                   OR wait.made_at + make_interval(secs => coalesce((job.spec ->> 'stage_within_seconds')::int, 3600))
                      <= simulation.clock_timestamp()));
    RETURN NULL;
END $$;
CREATE TRIGGER simulation_unstaged AFTER INSERT ON federation_attempt
    FOR EACH ROW EXECUTE FUNCTION simulation.note_unstaged();

-- For the steps of the dispatch protocol (`steps.py`): what each transaction left in the rows, numbered with the changes.
CREATE TABLE simulation.steps (
    number bigint PRIMARY KEY DEFAULT nextval('simulation.changes_number_seq'), at timestamptz NOT NULL,
    transaction text NOT NULL DEFAULT pg_current_xact_id()::text,
    actor text DEFAULT current_setting('simulation.actor', true), what text NOT NULL, found jsonb NOT NULL
);
CREATE FUNCTION simulation.note_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO simulation.steps (at, what, found) VALUES (simulation.clock_timestamp(), TG_TABLE_NAME, to_jsonb(NEW));
    RETURN NULL;
END $$;
CREATE TRIGGER simulation_made AFTER INSERT ON federation_job FOR EACH ROW EXECUTE FUNCTION simulation.note_step();
CREATE TRIGGER simulation_made AFTER INSERT ON federation_attempt FOR EACH ROW EXECUTE FUNCTION simulation.note_step();
CREATE TRIGGER simulation_made AFTER INSERT ON federation_remoteobject FOR EACH ROW EXECUTE FUNCTION simulation.note_step();
CREATE TRIGGER simulation_made AFTER INSERT OR UPDATE ON federation_standstill
    FOR EACH ROW EXECUTE FUNCTION simulation.note_step();
CREATE TRIGGER simulation_steps AFTER UPDATE OF state ON federation_job
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION simulation.note_step();
CREATE TRIGGER simulation_steps AFTER UPDATE ON federation_attempt
    FOR EACH ROW WHEN (OLD.state <> NEW.state OR OLD.stop_reason <> NEW.stop_reason OR OLD.claim_token <> NEW.claim_token
                       OR (OLD.stop_requested_at IS NULL) <> (NEW.stop_requested_at IS NULL)
                       OR (OLD.settled_at IS NULL) <> (NEW.settled_at IS NULL))
    EXECUTE FUNCTION simulation.note_step();
CREATE TRIGGER simulation_steps AFTER UPDATE OF uid ON federation_remoteobject
    FOR EACH ROW WHEN (OLD.uid <> NEW.uid) EXECUTE FUNCTION simulation.note_step();

-- Attempts of which no usage, or no pod, can be written (`spoiling.py`).
CREATE TABLE simulation.spoiled (attempt text NOT NULL, what text NOT NULL, PRIMARY KEY (attempt, what));
CREATE FUNCTION simulation.refuse_spoiled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM simulation.spoiled WHERE attempt = NEW.run_id::text AND what = 'meters') THEN
        RAISE EXCEPTION 'the row is spoiled' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER simulation_refuses BEFORE INSERT OR UPDATE ON billing_meter
    FOR EACH ROW EXECUTE FUNCTION simulation.refuse_spoiled();
CREATE FUNCTION simulation.refuse_spoiled_pods() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM simulation.spoiled WHERE attempt = NEW.attempt_id::text AND what = 'pods') THEN
        RAISE EXCEPTION 'the row is spoiled' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER simulation_refuses BEFORE INSERT OR UPDATE ON federation_podrun
    FOR EACH ROW EXECUTE FUNCTION simulation.refuse_spoiled_pods();

-- When limits were set that are enforced, by the database's own clock: the audit trail has the clocks of hosts.
CREATE TABLE simulation.enforced (limit_id text NOT NULL, at timestamptz NOT NULL, reclaim_after int NOT NULL);
CREATE FUNCTION simulation.note_enforced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO simulation.enforced VALUES (NEW.id::text, simulation.now(), NEW.reclaim_after);
    RETURN NULL;
END $$;
CREATE TRIGGER simulation_notes AFTER INSERT OR UPDATE OF reclaim_after ON quotas_quotalimit
    FOR EACH ROW WHEN (NEW.reclaim_after IS NOT NULL) EXECUTE FUNCTION simulation.note_enforced();

-- Days that cannot be posted (`bad_days.py`).
CREATE FUNCTION simulation.refuse_bad_day() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM simulation.spoiled WHERE attempt = NEW.tenant_path || ' ' || NEW.cluster_id || ' ' || NEW.charge_day AND what = 'day') THEN
        RAISE EXCEPTION 'the day is spoiled' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER simulation_refuses BEFORE INSERT ON billing_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION simulation.refuse_bad_day();

CREATE SCHEMA kept;
-- What a backup of the gateway's database contains.
CREATE SCHEMA backup;
CREATE TABLE simulation.backup_sequences (name text NOT NULL, value bigint NOT NULL, is_called boolean NOT NULL);

-- Keeps the rows of all tables as the beginning of every world.
CREATE FUNCTION simulation.keep() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY relname
    LOOP
        EXECUTE format('ALTER TABLE public.%I SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)', name);
        EXECUTE format('CREATE TABLE kept.%I AS TABLE public.%I', name, name);
        EXECUTE format('CREATE TABLE backup.%I AS TABLE public.%I WITH NO DATA', name, name);
    END LOOP;
END $$;

-- The columns of a table that can be written: not those that the database generates.
CREATE FUNCTION simulation.columns_of(name text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
     WHERE attrelid = format('public.%I', name)::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
$$;

-- What is committed now, with the numbers that sequences give next.
CREATE FUNCTION simulation.back_up() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    used oid[] := simulation.used();
    name text;
    value bigint;
    is_called boolean;
BEGIN
    DELETE FROM simulation.backup_sequences;
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S' ORDER BY relname
    LOOP
        EXECUTE format('SELECT one.last_value, one.is_called FROM public.%I AS one', name) INTO value, is_called;
        INSERT INTO simulation.backup_sequences VALUES (name, value, is_called);
    END LOOP;
    FOR name IN SELECT relname FROM pg_class
                 WHERE relnamespace = 'backup'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0 ORDER BY relname
    LOOP
        EXECUTE format('TRUNCATE backup.%I', name);
    END LOOP;
    FOR name IN SELECT relname FROM pg_class WHERE oid = ANY (used) ORDER BY relname LOOP
        EXECUTE format('INSERT INTO backup.%1$I SELECT * FROM public.%1$I AS one ORDER BY one.*::text', name);
    END LOOP;
END $$;

-- The tables that have rows now, or at the beginning of a world.
CREATE FUNCTION simulation.used() RETURNS oid[] LANGUAGE sql STABLE AS $$
    SELECT array_agg(one.oid) FROM pg_class AS one
      JOIN pg_class AS begun ON begun.relname = one.relname AND begun.relnamespace = 'kept'::regnamespace
     WHERE one.relnamespace = 'public'::regnamespace AND one.relkind = 'r'
       AND one.relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
       AND (pg_relation_size(one.oid) > 0 OR pg_relation_size(begun.oid) > 0)
$$;

-- Fresh files for each table in use, so that rows lie in the same order in each run of a seed, and their rows from `kept` or `backup`.
-- TRUNCATE wants tables that refer to these too. Theirs are empty, and to make new files for all of them would take as long again:
-- meanwhile, their references count as none.
CREATE FUNCTION simulation.fill_from(schema text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    used oid[] := simulation.used();
    of_empty_ones oid[];
    name text;
BEGIN
    SET LOCAL session_replication_role = replica;
    SELECT array_agg(oid) INTO of_empty_ones FROM pg_constraint
     WHERE contype = 'f' AND confrelid = ANY (used) AND NOT conrelid = ANY (used) AND pg_relation_size(conrelid) = 0;
    UPDATE pg_constraint SET contype = '-' WHERE oid = ANY (of_empty_ones);
    EXECUTE (SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ' ORDER BY relname) FROM pg_class WHERE oid = ANY (used));
    UPDATE pg_constraint SET contype = 'f' WHERE oid = ANY (of_empty_ones);
    FOR name IN SELECT relname FROM pg_class WHERE oid = ANY (used) ORDER BY relname LOOP
        EXECUTE format('INSERT INTO public.%2$I (%3$s) OVERRIDING SYSTEM VALUE SELECT %3$s FROM %1$I.%2$I', schema, name, simulation.columns_of(name));
    END LOOP;
END $$;

-- Puts the rows and sequences of the backup in place of the present ones.
CREATE FUNCTION simulation.put_back() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM simulation.fill_from('backup');
    PERFORM setval(format('public.%I', one.name)::regclass, one.value, one.is_called)
       FROM simulation.backup_sequences AS one;
END $$;

-- Puts the world back to its beginning.
CREATE FUNCTION simulation.restore() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE simulation.changes, simulation.steps, simulation.spoiled, simulation.enforced;
    PERFORM simulation.fill_from('kept');
    -- Above every number of the kept rows.
    PERFORM setval(oid::regclass, 100000, false) FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind = 'S';
    PERFORM setval('simulation.changes_number_seq', 1, false);
    PERFORM setval('simulation.history', 1);
END $$;

-- Limits of classes that were exceeded, by a count of our own: of paths, at the commit of whatever added to them. `before` is the
-- limit, `after` what its class held.
CREATE FUNCTION simulation.note_class_limits(place text, but_above text, held_by uuid[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO simulation.changes (at, what, id, before, after)
    SELECT simulation.clock_timestamp(), 'class_limit', l.class_name || ' ' || l.resource || coalesce(' in ' || lt.path, ''),
           l.most::text, counted.amount::text
      FROM quotas_classlimit AS l LEFT JOIN tenancy_tenant AS lt ON lt.id = l.tenant_id
     CROSS JOIN LATERAL (
           SELECT sum((h.amounts ->> l.resource)::bigint) AS amount,
                  max((h.amounts ->> l.resource)::bigint) FILTER (WHERE h.holder_id = ANY (held_by)) AS added
             FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id
            WHERE h.state = 'pending' AND h.class_name = l.class_name
              AND (lt.id IS NULL OR t.path = lt.path OR starts_with(t.path, lt.path || '/'))) AS counted
     WHERE (lt.id IS NULL OR starts_with(place || '/', lt.path || '/'))
       AND NOT coalesce(starts_with(but_above || '/', coalesce(lt.path || '/', '')), false)
       AND counted.added > 0 AND counted.amount > l.most
$$;
CREATE FUNCTION simulation.note_class_of_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM simulation.note_class_limits(path, NULL, ARRAY[NEW.holder_id]) FROM tenancy_tenant WHERE id = NEW.tenant_id;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER simulation_class_limits AFTER INSERT ON quotas_hold DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.class_name <> '') EXECUTE FUNCTION simulation.note_class_of_hold();
CREATE FUNCTION simulation.note_class_of_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM simulation.note_class_limits(own.path, OLD.path, (
        SELECT array_agg(h.holder_id) FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id
         WHERE starts_with(t.path || '/', own.path || '/')))
      FROM tenancy_tenant AS own WHERE own.id = NEW.id;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER simulation_class_limits AFTER UPDATE ON tenancy_tenant DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id) EXECUTE FUNCTION simulation.note_class_of_moved();
