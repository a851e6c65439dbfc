-- Users' sessions, and links that work once.

-- Who is deactivated comes back, if ever, without the sessions, tokens and links of before.
CREATE OR REPLACE FUNCTION tenancy_user_deactivated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.session_epoch := OLD.session_epoch + 1;
    UPDATE tenancy_apitoken SET revoked_at = now() WHERE user_id = NEW.id AND revoked_at IS NULL;
    UPDATE tenancy_onetimelink SET ended_at = now()
     WHERE (user_id = NEW.id OR made_by_id = NEW.id) AND used_at IS NULL AND ended_at IS NULL;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER tenancy_user_deactivated BEFORE UPDATE OF is_active ON tenancy_user
    FOR EACH ROW WHEN (OLD.is_active AND NOT NEW.is_active) EXECUTE FUNCTION tenancy_user_deactivated();

CREATE OR REPLACE FUNCTION tenancy_epoch_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A row that was read before the sessions ended, and is saved whole after, must not bring them back.
    NEW.session_epoch := greatest(NEW.session_epoch, OLD.session_epoch);
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER tenancy_epoch_grows BEFORE UPDATE OF session_epoch ON tenancy_user
    FOR EACH ROW EXECUTE FUNCTION tenancy_epoch_grows();

CREATE OR REPLACE FUNCTION tenancy_link_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE TRIGGER tenancy_link_guard BEFORE UPDATE ON tenancy_onetimelink
    FOR EACH ROW EXECUTE FUNCTION tenancy_link_guard();
