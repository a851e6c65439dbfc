-- The history of the database, and standstills after it changed.

-- What names the history of this database: the data of its server, its timeline, the database itself, and the history's table.
-- Recovery to a point in time and each promotion begin a timeline. A dump is restored as other tables, in another database, or
-- on another server. A part that the server does not tell is '?'. The function then raises no error, because the statements that
-- place and start jobs call it.
CREATE OR REPLACE FUNCTION federation_database_history() RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    server text := '?';
    timeline text := '?';
BEGIN
    BEGIN
        SELECT system_identifier::text INTO server FROM pg_control_system();
    EXCEPTION WHEN OTHERS THEN
        server := '?';
    END;
    BEGIN
        timeline := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    EXCEPTION WHEN OTHERS THEN
        timeline := '?';
    END;
    RETURN concat_ws('/', coalesce(server, '?'), coalesce(timeline, '?'),
                     (SELECT oid FROM pg_database WHERE datname = current_database()),
                     'federation_databasehistory'::regclass::oid);
END $$;

-- The accepted history changes only to the present one, and only while a standstill is open. Rows that a restore inserts are of an
-- earlier history: they close dispatch.
CREATE OR REPLACE FUNCTION federation_check_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.accepted IS DISTINCT FROM federation_database_history() THEN
        RAISE EXCEPTION 'the history % is not the present one', NEW.accepted
            USING ERRCODE = 'check_violation', CONSTRAINT = 'only_the_present_history_is_accepted';
    END IF;
    IF NEW.accepted <> OLD.accepted AND NOT EXISTS (SELECT FROM federation_standstill WHERE ended_at IS NULL) THEN
        RAISE EXCEPTION 'no standstill is open'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'another_history_is_accepted_in_a_standstill';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER an_accepted_history_is_the_present_one BEFORE UPDATE ON federation_databasehistory
    FOR EACH ROW EXECUTE FUNCTION federation_check_history();

-- A standstill that needs an operator needs one to its end. Another ends only when each registered cluster was compared with this
-- history and nothing was found.
CREATE OR REPLACE FUNCTION federation_check_standstill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.needs_operator AND NOT NEW.needs_operator THEN
        RAISE EXCEPTION 'standstill % needs an operator', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_standstill_needs_its_operator_to_the_end';
    END IF;
    IF OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL AND NOT NEW.needs_operator AND EXISTS (
        SELECT FROM clusters_cluster AS cluster
         WHERE cluster.removed_at IS NULL AND NOT EXISTS (
               SELECT FROM federation_comparedcluster AS compared
                WHERE compared.standstill_id = NEW.id AND compared.cluster_id = cluster.id
                  AND compared.history = federation_database_history()
                  AND compared.strangers + compared.adopted + compared.vanished = 0)) THEN
        RAISE EXCEPTION 'not every cluster was compared, or something was found'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_standstill_ends_itself_when_nothing_was_found';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_standstill_is_ended_with_reason BEFORE UPDATE ON federation_standstill
    FOR EACH ROW EXECUTE FUNCTION federation_check_standstill();
