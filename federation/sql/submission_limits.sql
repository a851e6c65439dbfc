-- Limits on submission (quotas/sql/people.sql), for every statement that adds jobs. The limits' rows are locked
-- first, so of two submissions one counts what the other added.
CREATE OR REPLACE FUNCTION federation_keep_submission_limits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    over record;
BEGIN
    IF NOT EXISTS (SELECT FROM quotas_submissionlimit) THEN
        RETURN NULL;
    END IF;
    PERFORM quotas_spend_submissions(array_agg(arrived.tenant_id), array_agg(arrived.number), clock_timestamp())
        FROM (SELECT tenant_id, count(*)::integer AS number FROM added GROUP BY tenant_id) AS arrived;
    SELECT t.path, l.most_waiting AS most INTO over
        FROM quotas_submissionlimit AS l JOIN tenancy_tenant AS t ON t.id = l.tenant_id
        WHERE l.most_waiting IS NOT NULL AND l.tenant_id IN (
            SELECT up.id FROM (SELECT DISTINCT tenant_id FROM added) AS own, quotas_tenants_above(own.tenant_id) AS up
        ) AND l.most_waiting < (SELECT count(*) FROM (
            SELECT FROM tenancy_tenant AS below CROSS JOIN LATERAL (
                SELECT FROM federation_job AS job WHERE job.tenant_id = below.id AND job.state = 'queued'
                UNION ALL SELECT FROM federation_job AS job WHERE job.tenant_id = below.id AND job.state = 'suspended'
            ) AS waiting WHERE below.path = t.path OR starts_with(below.path, t.path || '/') LIMIT l.most_waiting + 1
        ) AS counted) ORDER BY t.depth LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% may have at most % waiting jobs', over.path, over.most
            USING ERRCODE = 'check_violation', CONSTRAINT = 'waiting_jobs_are_limited',
                DETAIL = json_build_object('tenant', over.path, 'most', over.most)::text;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER federation_keep_submission_limits AFTER INSERT ON federation_job
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION federation_keep_submission_limits();
