"""An attempt that may have run is settled when its pods are known, or after patience; and instants stand once written.

The trigger keeps an instant instead of refusing the write: whoever writes it again, late or twice, has nothing to add.
"""

import django.contrib.postgres.indexes
from django.db import migrations, models

FORWARD = """
CREATE FUNCTION federation_keep_instants() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE FUNCTION federation_pod_instants() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE FUNCTION federation_settle_on_evidence() RETURNS trigger LANGUAGE plpgsql AS $$
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
"""
BACKWARD = """
DROP TRIGGER what_may_have_run_settles_on_evidence ON federation_attempt;
DROP FUNCTION federation_settle_on_evidence();
DROP TRIGGER a_pods_instants_stand ON federation_podrun;
DROP FUNCTION federation_pod_instants();
DROP TRIGGER an_attempts_instants_stand ON federation_attempt;
DROP FUNCTION federation_keep_instants();
"""


class Migration(migrations.Migration):
    dependencies = [("federation", "0017_upkeep_and_live_indexes")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="pods_told_at",
            field=models.DateTimeField(
                help_text="When its cluster, asked after the end, last told its pods; null: what was metered is estimated.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="attempt",
            name="settle_at",
            field=models.DateTimeField(help_text="When settlement tries again; null = at once.", null=True),
        ),
        migrations.AddField(
            model_name="attempt",
            name="settle_error",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="Why its usage cannot be recorded.", max_length=300
            ),
        ),
        migrations.AddField(
            model_name="attempt",
            name="reopened_at",
            field=models.DateTimeField(
                help_text="When a pod of it was first seen to run although it was settled.", null=True
            ),
        ),
        migrations.AddField(
            model_name="podrun",
            name="part",
            field=models.PositiveSmallIntegerField(
                db_default=0, default=0, help_text="Which of its meters counts it now."
            ),
        ),
        migrations.AddField(
            model_name="podrun",
            name="resumed_at",
            field=models.DateTimeField(help_text="From when that meter counts; null: from its start.", null=True),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("settle_error", ""), _negated=True), fields=["id"], name="attempts_in_trouble"
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=django.contrib.postgres.indexes.BrinIndex(
                autosummarize=True, fields=["settled_at"], name="attempts_by_settlement", pages_per_range=32
            ),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
