"""People belong to organisations: who holds a role there now is a member of it, and from here on the database sees to it."""

import django.db.models.deletion
from django.db import migrations, models

FILL = """
UPDATE tenancy_rolebinding AS binding SET organisation_id = root.id
  FROM tenancy_tenant AS tenant JOIN tenancy_tenant AS root ON root.path = split_part(tenant.path, '/', 1)
 WHERE tenant.id = binding.tenant_id;
INSERT INTO tenancy_membership (id, user_id, organisation_id)
SELECT gen_random_uuid(), user_id, organisation_id FROM (
    SELECT user_id, organisation_id FROM tenancy_rolebinding WHERE user_id IS NOT NULL
    UNION
    SELECT person.user_id, binding.organisation_id FROM tenancy_rolebinding AS binding
      JOIN tenancy_user_groups AS person ON person.group_id = binding.group_id
) AS belonging;
SET CONSTRAINTS ALL IMMEDIATE;
"""

RULES = """
CREATE FUNCTION tenancy_binding_organisation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT root.id INTO NEW.organisation_id
      FROM tenancy_tenant AS tenant JOIN tenancy_tenant AS root ON root.path = split_part(tenant.path, '/', 1)
     WHERE tenant.id = NEW.tenant_id;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_binding_organisation BEFORE INSERT OR UPDATE OF tenant_id, organisation_id ON tenancy_rolebinding
    FOR EACH ROW EXECUTE FUNCTION tenancy_binding_organisation();
ALTER TABLE tenancy_rolebinding ADD CONSTRAINT role_binding_is_a_members
    FOREIGN KEY (user_id, organisation_id) REFERENCES tenancy_membership (user_id, organisation_id) ON DELETE CASCADE;

CREATE FUNCTION tenancy_membership_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        RAISE check_violation USING MESSAGE = 'a membership is made and removed, never changed', CONSTRAINT = 'membership_is_fixed';
    END IF;
    IF EXISTS (SELECT FROM tenancy_tenant WHERE id = NEW.organisation_id AND parent_id IS NOT NULL) THEN
        RAISE check_violation USING MESSAGE = 'people belong to organisations', CONSTRAINT = 'membership_is_of_an_organisation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_membership_place BEFORE INSERT OR UPDATE ON tenancy_membership
    FOR EACH ROW EXECUTE FUNCTION tenancy_membership_place();

CREATE FUNCTION tenancy_tenant_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.parent_id IS NULL OR NEW.parent_id IS NULL OR NOT EXISTS (
        SELECT FROM tenancy_tenant AS here JOIN tenancy_tenant AS there
            ON split_part(here.path, '/', 1) = split_part(there.path, '/', 1)
         WHERE here.id = OLD.parent_id AND there.id = NEW.parent_id
    ) THEN
        RAISE check_violation USING
            MESSAGE = 'a tenant stays in its organisation', CONSTRAINT = 'tenant_stays_in_its_organisation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_tenant_stays BEFORE UPDATE OF parent_id ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id) EXECUTE FUNCTION tenancy_tenant_stays();

-- Who is deactivated comes back, if ever, without the sessions, tokens and links of before.
CREATE FUNCTION tenancy_user_deactivated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.session_epoch := OLD.session_epoch + 1;
    UPDATE tenancy_apitoken SET revoked_at = now() WHERE user_id = NEW.id AND revoked_at IS NULL;
    UPDATE tenancy_onetimelink SET ended_at = now()
     WHERE (user_id = NEW.id OR made_by_id = NEW.id) AND used_at IS NULL AND ended_at IS NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_user_deactivated BEFORE UPDATE OF is_active ON tenancy_user
    FOR EACH ROW WHEN (OLD.is_active AND NOT NEW.is_active) EXECUTE FUNCTION tenancy_user_deactivated();

CREATE FUNCTION tenancy_epoch_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A row that was read before the sessions ended, and is saved whole after, must not bring them back.
    NEW.session_epoch := greatest(NEW.session_epoch, OLD.session_epoch);
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_epoch_grows BEFORE UPDATE OF session_epoch ON tenancy_user
    FOR EACH ROW EXECUTE FUNCTION tenancy_epoch_grows();

CREATE FUNCTION tenancy_link_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.purpose, NEW.prefix, NEW.digest, NEW.made_by_id, NEW.user_id, NEW.email, NEW.tenant_id, NEW.role,
        NEW.role_expires_at, NEW.created_at, NEW.expires_at) IS DISTINCT FROM
       (OLD.id, OLD.purpose, OLD.prefix, OLD.digest, OLD.made_by_id, OLD.user_id, OLD.email, OLD.tenant_id, OLD.role,
        OLD.role_expires_at, OLD.created_at, OLD.expires_at) THEN
        RAISE check_violation USING MESSAGE = 'what a link is for never changes', CONSTRAINT = 'one_time_link_is_fixed';
    END IF;
    IF OLD.used_at IS NOT NULL OR OLD.ended_at IS NOT NULL THEN
        RAISE check_violation USING
            MESSAGE = 'a link that was used or ended stays so', CONSTRAINT = 'one_time_link_works_once';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_link_guard BEFORE UPDATE ON tenancy_onetimelink
    FOR EACH ROW EXECUTE FUNCTION tenancy_link_guard();
"""

REMOVE = """
DROP TRIGGER tenancy_link_guard ON tenancy_onetimelink;
DROP TRIGGER tenancy_epoch_grows ON tenancy_user;
DROP TRIGGER tenancy_user_deactivated ON tenancy_user;
DROP TRIGGER tenancy_tenant_stays ON tenancy_tenant;
DROP TRIGGER tenancy_membership_place ON tenancy_membership;
ALTER TABLE tenancy_rolebinding DROP CONSTRAINT role_binding_is_a_members;
DROP TRIGGER tenancy_binding_organisation ON tenancy_rolebinding;
DROP FUNCTION tenancy_link_guard(), tenancy_epoch_grows(), tenancy_user_deactivated(), tenancy_tenant_stays(), tenancy_membership_place(),
    tenancy_binding_organisation();
"""


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0004_people")]
    operations = [
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="rolebinding",
            name="organisation",
            field=models.ForeignKey(
                editable=False,
                help_text="The tenant's (a trigger fills it).",
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="tenancy.tenant",
            ),
        ),
        migrations.RunSQL(RULES, REMOVE),
    ]
