"""A cluster is not removed while an attempt lives there, and no attempt begins on a removed one, however they race.

Removal locks the cluster's row FOR UPDATE; an attempt takes it FOR KEY SHARE, which waits for that and for nothing else.
"""

from django.db import migrations

FORWARD = """
CREATE FUNCTION federation_keep_cluster() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE FUNCTION federation_need_cluster() RETURNS trigger LANGUAGE plpgsql AS $$
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
"""
BACKWARD = """
DROP TRIGGER attempts_begin_on_registered_clusters ON federation_attempt;
DROP FUNCTION federation_need_cluster();
DROP TRIGGER cluster_stays_while_attempts_live ON clusters_cluster;
DROP FUNCTION federation_keep_cluster();
"""


class Migration(migrations.Migration):
    dependencies = [("federation", "0002_claims_and_append_only_events"), ("clusters", "0002_pinned")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
