-- A copy cannot name another cluster than its plan: the slots of that cluster bound its copies.
ALTER TABLE federation_stagein ADD CONSTRAINT stage_in_is_on_the_cluster_of_its_plan
    FOREIGN KEY (plan_id, cluster_id) REFERENCES clusters_stagingplan (id, cluster_id) DEFERRABLE INITIALLY DEFERRED;
