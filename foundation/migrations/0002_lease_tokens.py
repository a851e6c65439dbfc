"""Fencing tokens come from one sequence, and a lease never goes back to an older one."""

from django.db import migrations

FORWARD = """
CREATE SEQUENCE foundation_lease_token AS bigint;

CREATE FUNCTION foundation_lease_token_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.token < OLD.token OR (NEW.holder <> OLD.holder AND NEW.token = OLD.token) THEN
        RAISE EXCEPTION 'lease %: token % may not follow %', OLD.name, NEW.token, OLD.token
            USING ERRCODE = 'check_violation', CONSTRAINT = 'lease_token_grows';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER lease_token_grows BEFORE UPDATE ON foundation_lease
    FOR EACH ROW EXECUTE FUNCTION foundation_lease_token_grows();
"""
REVERSE = """
DROP TRIGGER lease_token_grows ON foundation_lease;
DROP FUNCTION foundation_lease_token_grows();
DROP SEQUENCE foundation_lease_token;
"""


class Migration(migrations.Migration):
    dependencies = [("foundation", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
