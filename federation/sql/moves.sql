-- A move leads to another cluster, or, as part of a plan, also to other nodes of the same one. A job that grows stays on its cluster, and
-- asks for it. Of a plan, a move makes room only for a waiting job of the same organisation that is strictly larger and at least as
-- urgent: so two jobs never move each other in turn.
-- Only jobs that ask for it move to a cheaper place, twice a day, or for the deadline that they have. Both may lead to the same cluster.
-- The gateway itself moves a job at most three times in a day. Callers lock the jobs.
CREATE OR REPLACE FUNCTION federation_check_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM federation_attempt AS attempt
      WHERE attempt.id = NEW.attempt_id AND attempt.job_id = NEW.job_id AND attempt.finished_at IS NULL
        AND attempt.stop_reason = 'migrated'
        AND (NEW.cause IN ('consolidation', 'price', 'deadline') OR (attempt.cluster_id = NEW.expected_id) = (NEW.cause = 'growth'))
        AND NOT attempt.cluster_id = ANY(NEW.clusters);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job % is not being moved away from there', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_move_leads_away';
    END IF;
    IF NEW.cause = 'growth' AND NOT EXISTS (
        SELECT FROM federation_job AS job
          JOIN federation_remoteobject AS object ON object.attempt_id = NEW.attempt_id
         WHERE job.id = NEW.job_id AND job.spec @> '{"elastic": {"grow": true}}'
           AND job.spec -> 'pod_sets' -> object.position::int ->> 'name' = job.spec -> 'elastic' ->> 'pod_set'
           AND object.pods < (job.spec -> 'pod_sets' -> object.position::int ->> 'count')::int
    ) THEN
        RAISE EXCEPTION 'job % does not ask to grow', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'only_jobs_that_ask_for_it_grow';
    END IF;
    IF NEW.cause = 'consolidation' AND NOT EXISTS (
        SELECT FROM federation_consolidation AS plan
          JOIN federation_job AS larger ON larger.id = plan.beneficiary_id
          JOIN tenancy_tenant AS its_tenant ON its_tenant.id = larger.tenant_id
          JOIN federation_job AS moved ON moved.id = NEW.job_id
          JOIN tenancy_tenant AS tenant ON tenant.id = moved.tenant_id
         WHERE plan.id = NEW.consolidation_id AND plan.ended_at IS NULL AND larger.state = 'queued'
           AND moved.priority <= larger.priority AND NEW.size_milli < plan.size_milli
           AND split_part(tenant.path, '/', 1) = split_part(its_tenant.path, '/', 1)
    ) THEN
        RAISE EXCEPTION 'job % does not move for this one', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'jobs_move_only_for_larger_ones';
    END IF;
    IF NEW.cause = 'price' AND NOT EXISTS (
        SELECT FROM federation_job AS job WHERE job.id = NEW.job_id AND job.spec ->> 'moves' = 'when_cheaper'
    ) OR NEW.cause = 'deadline' AND NOT EXISTS (
        SELECT FROM federation_job AS job
         WHERE job.id = NEW.job_id AND job.spec ->> 'moves' IN ('when_needed', 'when_cheaper')
           AND NEW.finish_by = job.created_at + make_interval(secs => (job.spec ->> 'finish_within_seconds')::int)
    ) THEN
        RAISE EXCEPTION 'job % does not ask for a move like this', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'only_jobs_that_ask_for_it_move_to_save';
    END IF;
    IF NEW.cause = 'price' AND (SELECT count(*) FROM federation_move AS earlier
                                 WHERE earlier.job_id = NEW.job_id AND earlier.cause = 'price'
                                   AND earlier.created_at > now() - interval '1 day') >= 2 THEN
        RAISE EXCEPTION 'the gateway has moved job % for its price twice within a day', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'the_gateway_moves_a_job_for_its_price_twice_a_day';
    END IF;
    IF NEW.cause <> 'user' AND (SELECT count(*) FROM federation_move AS earlier
                                 WHERE earlier.job_id = NEW.job_id AND earlier.cause <> 'user'
                                   AND earlier.created_at > now() - interval '1 day') >= 3 THEN
        RAISE EXCEPTION 'the gateway has moved job % three times within a day', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'the_gateway_moves_a_job_a_few_times_a_day';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_move_leads_away BEFORE INSERT ON federation_move FOR EACH ROW EXECUTE FUNCTION federation_check_move();
