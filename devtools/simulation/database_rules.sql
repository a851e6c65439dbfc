-- After the migrations: the log of states, and how a world is put back to its beginning.
CREATE TRIGGER simulation_notes AFTER INSERT OR UPDATE OF state ON federation_job
    FOR EACH ROW EXECUTE FUNCTION simulation.note_state('job', 'id');
CREATE TRIGGER simulation_notes AFTER INSERT OR UPDATE OF state ON federation_attempt
    FOR EACH ROW EXECUTE FUNCTION simulation.note_state('attempt', 'id');
CREATE TRIGGER simulation_notes AFTER INSERT OR UPDATE OF state ON quotas_hold
    FOR EACH ROW EXECUTE FUNCTION simulation.note_state('hold', 'holder_id');

CREATE SCHEMA kept;

-- Keeps the rows of all tables as the beginning of every world.
CREATE FUNCTION simulation.keep() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY relname
    LOOP
        EXECUTE format('ALTER TABLE public.%I SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)', name);
        EXECUTE format('CREATE TABLE kept.%I AS TABLE public.%I', name, name);
    END LOOP;
END $$;

-- Fresh files for each table in use, so that rows lie in the same order in each run of a seed.
CREATE FUNCTION simulation.restore() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    used text[];
    name text;
BEGIN
    SET LOCAL session_replication_role = replica;
    SELECT array_agg(relname::text ORDER BY relname) INTO used FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
       AND relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
       AND pg_relation_size(oid) > 0;
    EXECUTE (SELECT 'TRUNCATE simulation.changes, ' || string_agg(format('public.%I', one), ', ') || ' CASCADE'
               FROM unnest(used) AS one);
    FOREACH name IN ARRAY used LOOP
        EXECUTE format('INSERT INTO public.%I OVERRIDING SYSTEM VALUE SELECT * FROM kept.%I', name, name);
    END LOOP;
    -- Above every number of the kept rows.
    PERFORM setval(oid::regclass, 100000, false) FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind = 'S';
    PERFORM setval('simulation.changes_number_seq', 1, false);
END $$;
