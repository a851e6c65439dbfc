-- What Django's operations cannot say of these tables, and the first rows. Functions and triggers are in `../sql/`.

CREATE SEQUENCE IF NOT EXISTS federation_claim_token AS bigint;

ALTER TABLE federation_reservation
    ADD CONSTRAINT reservation_times_are_referenced UNIQUE (id, cluster_id, starts_at, until_at);

ALTER TABLE federation_reservednode
    ADD CONSTRAINT reserved_nodes_follow_their_reservation FOREIGN KEY (reservation_id, cluster_id, starts_at, until_at)
        REFERENCES federation_reservation (id, cluster_id, starts_at, until_at) ON UPDATE CASCADE,
    ADD CONSTRAINT a_node_is_reserved_once_at_a_time EXCLUDE USING gist (
        int8range(hashtextextended(cluster_id::text || '/' || node, 0),
                  hashtextextended(cluster_id::text || '/' || node, 0), '[]') WITH &&,
        tstzrange(starts_at, until_at) WITH &&);

ALTER TABLE federation_rungroup ADD CONSTRAINT run_group_seconds_are_not_negative
    CHECK (0 <= ALL (recent_seconds) AND array_position(recent_seconds, NULL) IS NULL);

ALTER TABLE federation_tenantfailurerules ADD CONSTRAINT tenants_failure_rules_are_a_short_list
    CHECK (jsonb_typeof(rules) = 'array' AND jsonb_array_length(rules) BETWEEN 1 AND 20);

-- The first classes. Everyone who may submit may use them.
INSERT INTO federation_priorityclass (id, name, value, description, is_open, is_default) VALUES
    ('01990000-0000-7000-8000-000000000001', 'low', -100, 'Work that can wait.', true, false),
    ('01990000-0000-7000-8000-000000000002', 'normal', 0, 'The usual priority.', true, true),
    ('01990000-0000-7000-8000-000000000003', 'high', 100, 'Work that goes before other work.', true, false);

-- The quota of a reservation has its times: to end one sooner, end its quota, and the reservation and its nodes follow.
ALTER TABLE federation_reservation ADD CONSTRAINT reservation_times_follow_its_quota
    FOREIGN KEY (quota_id, starts_at, until_at) REFERENCES quotas_reservedquota (id, starts_at, until_at) ON UPDATE CASCADE;

-- A pull cannot name another cluster than its policy: the slots of that cluster bound its pulls.
ALTER TABLE federation_prepullpolicy ADD CONSTRAINT prepull_policy_has_one_cluster UNIQUE (id, cluster_id);

ALTER TABLE federation_prepull ADD CONSTRAINT prepull_is_on_the_cluster_of_its_policy
    FOREIGN KEY (policy_id, cluster_id) REFERENCES federation_prepullpolicy (id, cluster_id) DEFERRABLE INITIALLY DEFERRED;
