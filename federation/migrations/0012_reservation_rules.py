"""What keeps reservations true: no node is reserved twice at a time, and what has passed stays as it was.

A reserved node carries its reservation's times and follows them by its foreign key, so that the exclusion can judge them. It
knows a node by a digest of cluster and name, since only ranges of numbers can be compared without an extension.
"""

from django.db import migrations

FORWARD = """
ALTER TABLE federation_reservation
    ADD CONSTRAINT reservation_times_are_referenced UNIQUE (id, cluster_id, starts_at, until_at);
ALTER TABLE federation_reservednode
    ADD CONSTRAINT reserved_nodes_follow_their_reservation FOREIGN KEY (reservation_id, cluster_id, starts_at, until_at)
        REFERENCES federation_reservation (id, cluster_id, starts_at, until_at) ON UPDATE CASCADE,
    ADD CONSTRAINT a_node_is_reserved_once_at_a_time EXCLUDE USING gist (
        int8range(hashtextextended(cluster_id::text || '/' || node, 0),
                  hashtextextended(cluster_id::text || '/' || node, 0), '[]') WITH &&,
        tstzrange(starts_at, until_at) WITH &&);

CREATE FUNCTION federation_guard_reservation() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE FUNCTION federation_guard_reserved_node() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE FUNCTION federation_keep_reservations() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'reservations are history and are never deleted' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER reservations_are_kept BEFORE DELETE OR TRUNCATE ON federation_reservation
    FOR EACH STATEMENT EXECUTE FUNCTION federation_keep_reservations();
CREATE TRIGGER reserved_nodes_are_kept BEFORE DELETE OR TRUNCATE ON federation_reservednode
    FOR EACH STATEMENT EXECUTE FUNCTION federation_keep_reservations();
"""
BACKWARD = """
DROP TRIGGER reserved_nodes_are_kept ON federation_reservednode;
DROP TRIGGER reservations_are_kept ON federation_reservation;
DROP TRIGGER reserved_nodes_are_history ON federation_reservednode;
DROP TRIGGER reservations_are_history ON federation_reservation;
DROP FUNCTION federation_keep_reservations();
DROP FUNCTION federation_guard_reserved_node();
DROP FUNCTION federation_guard_reservation();
ALTER TABLE federation_reservednode
    DROP CONSTRAINT a_node_is_reserved_once_at_a_time,
    DROP CONSTRAINT reserved_nodes_follow_their_reservation;
ALTER TABLE federation_reservation DROP CONSTRAINT reservation_times_are_referenced;
"""


class Migration(migrations.Migration):
    dependencies = [("federation", "0011_reservations")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
