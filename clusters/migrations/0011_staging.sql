-- A plan copies between storages of its own cluster, and a replica is what its plan says.
ALTER TABLE clusters_storage ADD CONSTRAINT storage_has_one_cluster UNIQUE (id, cluster_id);
ALTER TABLE clusters_stagingplan ADD CONSTRAINT staged_source_is_on_the_cluster
    FOREIGN KEY (source_id, cluster_id) REFERENCES clusters_storage (id, cluster_id) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE clusters_stagingplan ADD CONSTRAINT staged_target_is_on_the_cluster
    FOREIGN KEY (target_id, cluster_id) REFERENCES clusters_storage (id, cluster_id) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE clusters_stagingplan ADD CONSTRAINT staging_plan_has_one_target UNIQUE (id, dataset_id, cluster_id, target_id);
ALTER TABLE clusters_datasetreplica ADD CONSTRAINT replica_is_what_its_plan_says
    FOREIGN KEY (plan_id, dataset_id, cluster_id, storage_id)
    REFERENCES clusters_stagingplan (id, dataset_id, cluster_id, target_id) DEFERRABLE INITIALLY DEFERRED;
