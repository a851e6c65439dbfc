-- What infrastructure lost of ended attempts: why, and from when on. The time is the last checkpoint that the run reported, else the
-- last that its job's interval implies, else its start. An attempt that was given up, or whose pods vanished, lost nothing if all
-- its pods turn out to have ended on their own.
CREATE OR REPLACE FUNCTION federation_lost_work(attempts uuid[])
    RETURNS TABLE(attempt_id uuid, cause text, lost_from timestamp with time zone) LANGUAGE sql STABLE AS $$
    WITH ran AS (
        SELECT p.attempt_id, min(p.started_at) AS began, max(greatest(p.started_at, coalesce(p.finished_at, p.observed_at))) AS ended,
               bool_and(p.exit_code IS NOT NULL AND p.disruption = '') AS on_their_own
          FROM federation_podrun AS p WHERE p.attempt_id = ANY(attempts) AND p.started_at IS NOT NULL GROUP BY 1
    ), saved AS (
        SELECT DISTINCT ON (c.attempt_id) c.attempt_id, c.written_at
          FROM federation_checkpoint AS c WHERE c.attempt_id = ANY(attempts) ORDER BY c.attempt_id, c.sequence DESC, c.id DESC
    ), blamed AS (
        SELECT a.id, CASE
            WHEN a.state = 'lost' THEN CASE WHEN ran.on_their_own THEN '' ELSE 'cluster_lost' END
            WHEN a.state NOT IN ('failed', 'preempted') THEN ''
            WHEN a.end_reason = 'maintenance_began' THEN 'maintenance'
            WHEN a.end_reason = 'migrated' THEN coalesce((
                SELECT CASE WHEN moved.cause IN ('user', 'growth', 'price', 'deadline') THEN '' WHEN moved.cause = 'spot' THEN 'spot' ELSE 'maintenance' END
                  FROM federation_move AS moved WHERE moved.attempt_id = a.id), '')
            WHEN a.end_reason = 'pods_gone' THEN CASE WHEN ran.on_their_own THEN '' ELSE 'infrastructure' END
            WHEN a.end_reason = 'started_in_part' THEN 'infrastructure'
            WHEN a.end_reason IN ('node_lost', 'spot', 'preempted') THEN a.end_reason
            WHEN a.end_reason = 'infrastructure' THEN CASE WHEN d.own_class = 'node' THEN 'evicted' ELSE 'infrastructure' END
            WHEN d.own_class = 'device' THEN 'device'
            WHEN d.own_class = 'node' THEN 'node_lost'
            WHEN d.own_class = 'infrastructure' THEN 'infrastructure'
            WHEN d.own_class IN ('program', 'unknown') AND a.finished_at - a.started_at < interval '2 minutes' AND EXISTS (
                SELECT FROM clusters_avoidednode AS bad
                 WHERE bad.cluster_id = a.cluster_id AND bad.node = d.node AND d.node <> ''
                   AND a.finished_at BETWEEN bad.began_at - interval '24 hours' AND coalesce(bad.ended_at, bad.until_at))
            THEN 'bad_node' ELSE '' END AS cause
          FROM federation_attempt AS a JOIN ran ON ran.attempt_id = a.id
          LEFT JOIN federation_diagnosis AS d ON d.attempt_id = a.id AND d.judged_at IS NOT NULL
         WHERE a.finished_at IS NOT NULL
    )
    SELECT a.id, coalesce(blamed.cause, ''), CASE WHEN blamed.cause <> '' THEN date_trunc('milliseconds', CASE
               WHEN saved.written_at IS NOT NULL THEN greatest(ran.began, least(ran.ended, saved.written_at))
               WHEN (job.spec->>'checkpoint_seconds') IS NULL THEN ran.began
               ELSE ran.ended - (extract(epoch FROM ran.ended - ran.began)::bigint % (job.spec->>'checkpoint_seconds')::bigint)
                    * interval '1 second' END) END
      FROM federation_attempt AS a JOIN federation_job AS job ON job.id = a.job_id
      LEFT JOIN blamed ON blamed.id = a.id LEFT JOIN ran ON ran.attempt_id = a.id LEFT JOIN saved ON saved.attempt_id = a.id
     WHERE a.id = ANY(attempts)
$$;

-- What is recorded of an attempt is what its rows say. Runs of no attempt are not of this gateway, and have no meters.
CREATE OR REPLACE FUNCTION federation_judge_lost_work() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM federation_lost_work(ARRAY[NEW.run_id]) AS due
                WHERE (due.cause, due.lost_from) IS DISTINCT FROM (NEW.cause::text, NEW.lost_from)) THEN
        RAISE EXCEPTION 'attempt % did not lose this work', NEW.run_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'lost_work_is_what_its_attempt_lost';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER federation_judge_lost_work BEFORE INSERT ON billing_lostwork
    FOR EACH ROW EXECUTE FUNCTION federation_judge_lost_work();
