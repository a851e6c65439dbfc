-- Members of organisations, and the roles that they have there.

CREATE OR REPLACE FUNCTION tenancy_binding_organisation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT root.id INTO NEW.organisation_id
      FROM tenancy_tenant AS tenant JOIN tenancy_tenant AS root ON root.path = split_part(tenant.path, '/', 1)
     WHERE tenant.id = NEW.tenant_id;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER tenancy_binding_organisation BEFORE INSERT OR UPDATE OF tenant_id, organisation_id ON tenancy_rolebinding
    FOR EACH ROW EXECUTE FUNCTION tenancy_binding_organisation();

CREATE OR REPLACE FUNCTION tenancy_membership_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        RAISE check_violation USING MESSAGE = 'a membership is made and removed, never changed', CONSTRAINT = 'membership_is_fixed';
    END IF;
    IF EXISTS (SELECT FROM tenancy_tenant WHERE id = NEW.organisation_id AND parent_id IS NOT NULL) THEN
        RAISE check_violation USING MESSAGE = 'people belong to organisations', CONSTRAINT = 'membership_is_of_an_organisation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER tenancy_membership_place BEFORE INSERT OR UPDATE ON tenancy_membership
    FOR EACH ROW EXECUTE FUNCTION tenancy_membership_place();
