-- What Django's operations cannot say of these tables, and the first rows. Functions and triggers are in `../sql/`.

ALTER TABLE tenancy_rolebinding ADD CONSTRAINT role_binding_is_a_members
    FOREIGN KEY (user_id, organisation_id) REFERENCES tenancy_membership (user_id, organisation_id) ON DELETE CASCADE;
