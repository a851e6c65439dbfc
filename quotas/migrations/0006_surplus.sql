-- When what is held beyond a limit is taken back follows from the limit itself, whoever writes it.
CREATE OR REPLACE FUNCTION quotas_guard_limit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    by_journal boolean := pg_trigger_depth() > 1;
    bound bigint;
BEGIN
    IF NEW.clusters IS DISTINCT FROM
       ARRAY(SELECT DISTINCT name COLLATE "C" FROM unnest(NEW.clusters) AS name ORDER BY 1)::varchar[] THEN
        RAISE EXCEPTION 'cluster names of a limit are sorted and distinct'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_scope_is_sorted';
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF NEW.held <> 0 OR NEW.removed_at IS NOT NULL OR NEW.cap <> NEW.nominal THEN
            RAISE EXCEPTION 'a limit begins with nothing held'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_begins_empty';
        END IF;
        NEW.parent_id := NEW.id; -- not placed yet; see quotas_place_limit
        NEW.cap := quotas_bound(NEW.nominal, NEW.parent_id, NEW.borrowing_limit);
        NEW.reclaim_at := NULL;
        RETURN NEW;
    END IF;
    -- Only this decides when a surplus is taken back: each reduction begins the delay again, and it ends with the surplus.
    bound := quotas_bound(NEW.nominal, NEW.parent_id, NEW.borrowing_limit);
    NEW.reclaim_at := CASE
        WHEN NEW.reclaim_after IS NULL OR NEW.removed_at IS NOT NULL OR NEW.held <= bound THEN NULL
        WHEN OLD.reclaim_at IS NULL OR NEW.reclaim_after IS DISTINCT FROM OLD.reclaim_after
             OR bound < quotas_bound(OLD.nominal, OLD.parent_id, OLD.borrowing_limit)
        THEN now() + make_interval(secs => NEW.reclaim_after)
        ELSE OLD.reclaim_at END;
    IF (NEW.id, NEW.tenant_id, NEW.resource, NEW.clusters) IS DISTINCT FROM (OLD.id, OLD.tenant_id, OLD.resource, OLD.clusters)
       OR (OLD.removed_at IS NOT NULL AND NEW.removed_at IS DISTINCT FROM OLD.removed_at) THEN
        RAISE EXCEPTION 'what a limit is for never changes, and a removed limit does not return'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_identity_is_fixed';
    END IF;
    IF by_journal THEN
        RETURN NEW;
    END IF;
    IF NEW.parent_id IS DISTINCT FROM OLD.parent_id THEN
        RAISE EXCEPTION 'the parent of a limit follows from the tree'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_parent_is_the_nearest';
    END IF;
    IF NEW.held <> OLD.held OR (NEW.cap <> OLD.cap
       AND NEW.cap <> greatest(quotas_bound(NEW.nominal, NEW.parent_id, NEW.borrowing_limit), NEW.held)) THEN
        RAISE EXCEPTION 'held and cap of a limit move only through the journal'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_held_moves_by_journal';
    END IF;
    NEW.cap := greatest(quotas_bound(NEW.nominal, NEW.parent_id, NEW.borrowing_limit), NEW.held);
    RETURN NEW;
END $$;

-- What a limit would hold if these holders had ended. What limits below guarantee remains claimed.
CREATE OR REPLACE FUNCTION quotas_held_without(wanted uuid, gone uuid[]) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT l.held
             - coalesce((SELECT sum(m.amount) FROM quotas_holdmovement AS m
                          WHERE m.hold_id = ANY (gone) AND m.limit_id = l.id), 0)
             - coalesce((SELECT sum(below.claim - greatest(
                                quotas_held_without(below.id, gone),
                                CASE WHEN below.removed_at IS NULL
                                     THEN below.nominal - coalesce(below.lending_limit, below.nominal) ELSE 0 END))
                           FROM quotas_quotalimit AS below WHERE below.parent_id = l.id), 0)
          FROM quotas_quotalimit AS l WHERE l.id = wanted);
END $$;
