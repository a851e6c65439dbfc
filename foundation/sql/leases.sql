-- Leases: whoever takes one over has a larger token.

CREATE OR REPLACE FUNCTION foundation_lease_token_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.token < OLD.token OR (NEW.holder <> OLD.holder AND NEW.token = OLD.token) THEN
        RAISE EXCEPTION 'lease %: token % may not follow %', OLD.name, NEW.token, OLD.token
            USING ERRCODE = 'check_violation', CONSTRAINT = 'lease_token_grows';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER lease_token_grows BEFORE UPDATE ON foundation_lease
    FOR EACH ROW EXECUTE FUNCTION foundation_lease_token_grows();
