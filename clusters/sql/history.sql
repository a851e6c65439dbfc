-- What nodes offered when: follows every change of nodes, and is never rewritten.

-- What these nodes offer now: a row for each flavor. Cores and memory are split by units, in whole numbers that add up.
CREATE OR REPLACE FUNCTION clusters_offers(of_cluster uuid, names text[])
    RETURNS TABLE(node character varying, uid character varying, flavor character varying, capacity_type character varying,
                  gpu_model character varying, sharing character varying, units bigint, cpu_millicores bigint,
                  memory_mib bigint, is_available boolean)
    LANGUAGE sql STABLE AS $$
    WITH device AS (
        SELECT n.id, d.flavor, sum(d.units) AS units, sum(sum(d.units)) OVER (PARTITION BY n.id) AS of_node
          FROM clusters_node AS n CROSS JOIN LATERAL jsonb_to_recordset(n.devices) AS d(flavor text, units bigint)
         WHERE n.cluster_id = of_cluster AND n.name = ANY(names) GROUP BY n.id, d.flavor
    ), reached AS (
        SELECT device.*, sum(CASE WHEN of_node = 0 THEN 1 ELSE units END) OVER (PARTITION BY id ORDER BY flavor COLLATE "C") AS upto,
               CASE WHEN of_node = 0 THEN 1 ELSE units END AS weight,
               CASE WHEN of_node = 0 THEN count(*) OVER (PARTITION BY id) ELSE of_node END AS whole
          FROM device
    )
    SELECT n.name, n.uid, reached.flavor::character varying, coalesce(f.capacity_type, 'on_demand'), coalesce(f.gpu_model, ''),
           coalesce(f.sharing, 'whole'), reached.units::bigint,
           (div(n.cpu_millicores * upto, whole) - div(n.cpu_millicores * (upto - weight), whole))::bigint,
           (div(n.memory_mib * upto, whole) - div(n.memory_mib * (upto - weight), whole))::bigint,
           n.is_ready AND n.is_schedulable
      FROM reached JOIN clusters_node AS n ON n.id = reached.id
      LEFT JOIN clusters_flavor AS f ON f.cluster_id = n.cluster_id AND f.name = reached.flavor
$$;

-- Ends the open spans of these nodes that no longer say what the nodes offer, and begins those that are missing. A span is
-- at least a millisecond, also if the clock went back.
CREATE OR REPLACE FUNCTION clusters_follow(of_cluster uuid, names text[], since timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    at timestamptz := date_trunc('milliseconds', since AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    assumed boolean := (SELECT silent_since IS NOT NULL FROM clusters_cluster WHERE id = of_cluster);
BEGIN
    -- Once: the planner may not know how many nodes there are, and would ask again for each span.
    WITH now AS MATERIALIZED (SELECT * FROM clusters_offers(of_cluster, names))
    UPDATE clusters_nodespan AS s
       SET period = tstzrange(lower(s.period), greatest(at, lower(s.period) + interval '1 millisecond'))
      FROM clusters_nodeoffer AS o
     WHERE o.id = s.offer_id AND o.cluster_id = of_cluster AND o.node = ANY(names) AND upper_inf(s.period)
       AND NOT EXISTS (
           SELECT 1 FROM now AS n
            WHERE (n.node, n.flavor, n.uid, n.capacity_type, n.gpu_model, n.sharing, n.units, n.cpu_millicores, n.memory_mib, n.is_available)
                = (o.node, o.flavor, s.uid, s.capacity_type, s.gpu_model, s.sharing, s.units, s.cpu_millicores, s.memory_mib, s.is_available)
              AND s.is_assumed = assumed);
    INSERT INTO clusters_nodeoffer (cluster_id, node, flavor)
    SELECT of_cluster, n.node, n.flavor FROM clusters_offers(of_cluster, names) AS n ORDER BY 2, 3
    ON CONFLICT (cluster_id, node, flavor) DO NOTHING;
    WITH now AS MATERIALIZED (SELECT * FROM clusters_offers(of_cluster, names))
    INSERT INTO clusters_nodespan (offer_id, period, uid, capacity_type, gpu_model, sharing, units, cpu_millicores, memory_mib,
                                   is_available, is_assumed)
    SELECT o.id, tstzrange(greatest(at, (SELECT max(upper(s.period)) FROM clusters_nodespan AS s WHERE s.offer_id = o.id)), NULL),
           n.uid, n.capacity_type, n.gpu_model, n.sharing, n.units, n.cpu_millicores, n.memory_mib, n.is_available, assumed
      FROM now AS n
      JOIN clusters_nodeoffer AS o ON (o.cluster_id, o.node, o.flavor) = (of_cluster, n.node, n.flavor)
     WHERE NOT EXISTS (SELECT 1 FROM clusters_nodespan AS s WHERE s.offer_id = o.id AND upper_inf(s.period));
END $$;

CREATE OR REPLACE FUNCTION clusters_record_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    touched record;
BEGIN
    IF TG_OP = 'INSERT' THEN
        FOR touched IN SELECT cluster_id, array_agg(name::text) AS names FROM arrived GROUP BY 1 ORDER BY 1 LOOP
            PERFORM clusters_follow(touched.cluster_id, touched.names, clock_timestamp());
        END LOOP;
    ELSIF TG_OP = 'DELETE' THEN
        FOR touched IN SELECT cluster_id, array_agg(name::text) AS names FROM departed GROUP BY 1 ORDER BY 1 LOOP
            PERFORM clusters_follow(touched.cluster_id, touched.names, clock_timestamp());
        END LOOP;
    ELSE
        FOR touched IN
            SELECT changed.cluster_id, array_agg(changed.name::text) AS names FROM (
                SELECT cluster_id, name, uid, devices, labels, cpu_millicores, memory_mib, is_ready, is_schedulable FROM arrived
                EXCEPT
                SELECT cluster_id, name, uid, devices, labels, cpu_millicores, memory_mib, is_ready, is_schedulable FROM departed
            ) AS changed GROUP BY 1 ORDER BY 1
        LOOP
            PERFORM clusters_follow(touched.cluster_id, touched.names, clock_timestamp());
        END LOOP;
        FOR touched IN
            SELECT left_over.cluster_id, array_agg(left_over.name::text) AS names
              FROM (SELECT cluster_id, name FROM departed EXCEPT SELECT cluster_id, name FROM arrived) AS left_over GROUP BY 1 ORDER BY 1
        LOOP
            PERFORM clusters_follow(touched.cluster_id, touched.names, clock_timestamp());
        END LOOP;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER clusters_record_arrivals AFTER INSERT ON clusters_node
    REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION clusters_record_history();
CREATE OR REPLACE TRIGGER clusters_record_changes AFTER UPDATE ON clusters_node
    REFERENCING OLD TABLE AS departed NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION clusters_record_history();
CREATE OR REPLACE TRIGGER clusters_record_departures AFTER DELETE ON clusters_node
    REFERENCING OLD TABLE AS departed FOR EACH STATEMENT EXECUTE FUNCTION clusters_record_history();

-- While a cluster is silent, what its nodes offer is assumed: from the last contact on.
CREATE OR REPLACE FUNCTION clusters_record_silence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM clusters_follow(NEW.id, (SELECT coalesce(array_agg(name::text), '{}') FROM clusters_node WHERE cluster_id = NEW.id),
                            coalesce(NEW.silent_since, clock_timestamp()));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER clusters_record_silence AFTER UPDATE OF silent_since ON clusters_cluster FOR EACH ROW
    WHEN ((OLD.silent_since IS NULL) <> (NEW.silent_since IS NULL)) EXECUTE FUNCTION clusters_record_silence();

CREATE OR REPLACE FUNCTION clusters_guard_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT upper_inf(OLD.period) OR upper_inf(NEW.period) OR lower(NEW.period) <> lower(OLD.period)
       OR (NEW.id, NEW.offer_id, NEW.uid, NEW.capacity_type, NEW.gpu_model, NEW.sharing, NEW.units, NEW.cpu_millicores,
           NEW.memory_mib, NEW.is_available, NEW.is_assumed)
          IS DISTINCT FROM
          (OLD.id, OLD.offer_id, OLD.uid, OLD.capacity_type, OLD.gpu_model, OLD.sharing, OLD.units, OLD.cpu_millicores,
           OLD.memory_mib, OLD.is_available, OLD.is_assumed) THEN
        RAISE EXCEPTION 'a span of a node only ends, once'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'fleet_history_stands';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER clusters_guard_spans BEFORE UPDATE ON clusters_nodespan
    FOR EACH ROW EXECUTE FUNCTION clusters_guard_history();

CREATE OR REPLACE FUNCTION clusters_keep_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: the history of the fleet is kept', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'fleet_history_stands';
END $$;
CREATE OR REPLACE TRIGGER clusters_keep_spans BEFORE DELETE OR TRUNCATE ON clusters_nodespan
    FOR EACH STATEMENT EXECUTE FUNCTION clusters_keep_history();
CREATE OR REPLACE TRIGGER clusters_keep_offers BEFORE UPDATE OR DELETE OR TRUNCATE ON clusters_nodeoffer
    FOR EACH STATEMENT EXECUTE FUNCTION clusters_keep_history();
