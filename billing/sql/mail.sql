-- What hooks that mail alerts, their confirmations and deliveries refuse, whoever writes.

-- A hook keeps its form and address, and its address is confirmed once, by a link that was mailed to it.
CREATE OR REPLACE FUNCTION billing_judge_hook() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.form, NEW.address) IS DISTINCT FROM (OLD.form, OLD.address) THEN
        RAISE EXCEPTION 'a hook keeps its form and its address'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hook_keeps_its_address';
    END IF;
    IF NEW.confirmed_at IS DISTINCT FROM OLD.confirmed_at AND (OLD.confirmed_at IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM billing_addressconfirmation AS c
         WHERE c.hook_id = NEW.id AND c.address = NEW.address AND c.used_at IS NOT NULL)) THEN
        RAISE EXCEPTION 'an address is confirmed once, by its link'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'address_is_confirmed_by_its_link';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_hook BEFORE UPDATE OF form, address, confirmed_at ON billing_alerthook
    FOR EACH ROW EXECUTE FUNCTION billing_judge_hook();

-- A new hook's address is not confirmed yet.
CREATE OR REPLACE FUNCTION billing_judge_new_hook() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.confirmed_at IS NOT NULL THEN
        RAISE EXCEPTION 'an address is confirmed once, by its link'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'address_is_confirmed_by_its_link';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_new_hook BEFORE INSERT ON billing_alerthook
    FOR EACH ROW EXECUTE FUNCTION billing_judge_new_hook();

-- To an address that is not confirmed goes its confirmation alone; to a server, none.
CREATE OR REPLACE FUNCTION billing_judge_delivery() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hook record;
BEGIN
    SELECT form, confirmed_at INTO hook FROM billing_alerthook WHERE id = NEW.hook_id;
    IF FOUND AND (hook.form = 'mail' AND hook.confirmed_at IS NULL AND NEW.kind <> 'confirmation'
                  OR hook.form <> 'mail' AND NEW.kind = 'confirmation') THEN
        RAISE EXCEPTION 'only its confirmation is mailed to an address that is not confirmed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'only_confirmed_addresses_get_alerts';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_delivery BEFORE INSERT OR UPDATE OF hook_id, kind, attempts ON billing_alertdelivery
    FOR EACH ROW EXECUTE FUNCTION billing_judge_delivery();

-- A link that was used or has ended does not work again, and stays what it was made for; a deleted hook alone is forgotten.
CREATE OR REPLACE FUNCTION billing_judge_confirmation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.digest, NEW.organisation_id, NEW.address, NEW.expires_at) IS DISTINCT FROM (OLD.digest, OLD.organisation_id, OLD.address, OLD.expires_at)
       OR NEW.hook_id IS DISTINCT FROM OLD.hook_id AND NEW.hook_id IS NOT NULL
       OR OLD.used_at IS NOT NULL AND NEW.used_at IS DISTINCT FROM OLD.used_at
       OR OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at
       OR NEW.used_at > OLD.expires_at THEN
        RAISE EXCEPTION 'a link works once, until it expires, for its own address'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'confirmation_works_once';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_confirmation BEFORE UPDATE ON billing_addressconfirmation
    FOR EACH ROW EXECUTE FUNCTION billing_judge_confirmation();
