-- A pull cannot name another cluster than its policy: the slots of that cluster bound its pulls.
ALTER TABLE federation_prepullpolicy ADD CONSTRAINT prepull_policy_has_one_cluster UNIQUE (id, cluster_id);
ALTER TABLE federation_prepull ADD CONSTRAINT prepull_is_on_the_cluster_of_its_policy
    FOREIGN KEY (policy_id, cluster_id) REFERENCES federation_prepullpolicy (id, cluster_id) DEFERRABLE INITIALLY DEFERRED;
