-- The maintenance windows that an attempt meets at a time: those in force, and, if it is still to be released, those that
-- begin before it has ended by its deadline and so many seconds. It is where its pods are; pods that were not seen yet are
-- where they were placed.
CREATE OR REPLACE FUNCTION federation_windows_met(asked_attempt uuid, asked_at timestamptz, stopping_seconds double precision)
RETURNS TABLE (window_id uuid) LANGUAGE sql STABLE AS $$
    WITH used AS (
        SELECT pod.node FROM federation_podrun AS pod
         WHERE pod.attempt_id = asked_attempt AND pod.node <> '' AND pod.finished_at IS NULL AND NOT pod.is_gone
         UNION
        SELECT jsonb_object_keys(object.assumed_nodes) FROM federation_remoteobject AS object
         WHERE object.attempt_id = asked_attempt AND object.outcome = ''
           AND NOT EXISTS (SELECT FROM federation_podrun AS pod
                            WHERE pod.attempt_id = asked_attempt AND pod.position = object.position AND pod.node <> '')
    )
    SELECT planned.id
      FROM federation_attempt AS attempt
      JOIN federation_job AS job ON job.id = attempt.job_id
      JOIN clusters_maintenancewindow AS planned ON planned.cluster_id = attempt.cluster_id
     WHERE attempt.id = asked_attempt AND planned.cancelled_at IS NULL AND planned.ends_at > asked_at
       AND (planned.starts_at <= asked_at
            OR stopping_seconds IS NOT NULL
               AND planned.starts_at < coalesce(
                   asked_at + make_interval(secs => (job.spec->>'deadline_seconds')::double precision + stopping_seconds),
                   'infinity'))
       AND (planned.nodes = '[]' AND planned.flavor = ''
            OR EXISTS (SELECT FROM used WHERE planned.nodes ? used.node)
            OR planned.flavor <> ''
               AND EXISTS (SELECT FROM used
                             JOIN clusters_node AS node ON node.cluster_id = planned.cluster_id AND node.name = used.node
                            WHERE node.devices @> jsonb_build_array(jsonb_build_object('flavor', planned.flavor))))
     ORDER BY planned.starts_at, planned.id
$$;
