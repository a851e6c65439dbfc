-- Invoices, statements and credit notes.

-- Whether credit notes took back all lines of an invoice.
CREATE OR REPLACE FUNCTION billing_is_credited(invoice uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (
        SELECT 1 FROM billing_invoiceline AS l JOIN billing_invoicebalance AS b ON b.line_id = l.id
         WHERE l.invoice_id = invoice AND (b.credited, b.credited_tax) <> (b.amount, b.tax))
$$;

-- The digits of a currency's minor unit, as billing.engine.currencies has them.
CREATE OR REPLACE FUNCTION billing_minor_digits(currency character varying) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN currency IN ('BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX', 'UYI', 'VND', 'VUV',
                          'XAF', 'XOF', 'XPF') THEN 0
        WHEN currency IN ('BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN 3
        WHEN currency IN ('CLF', 'UYW') THEN 4 ELSE 2 END
$$;

-- A document is numbered without a gap, and of a closed month; a credit note is of an invoice. The unique number makes
-- a second session wait for the first one, which commits or leaves the number free.
CREATE OR REPLACE FUNCTION billing_admit_invoice() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    its_period billing_ledgerperiod;
    referred billing_invoice;
    earlier billing_invoice;
    prefix text := CASE NEW.kind WHEN 'invoice' THEN 'INV-' WHEN 'statement' THEN 'STM-' ELSE 'CN-' END;
BEGIN
    IF NEW.sequence <> 1 + coalesce((SELECT max(i.sequence) FROM billing_invoice AS i
                                      WHERE i.organisation_id = NEW.organisation_id AND i.kind = NEW.kind), 0)
       OR NEW.number <> prefix || lpad(NEW.sequence::text, greatest(6, length(NEW.sequence::text)), '0') THEN
        RAISE EXCEPTION 'documents are numbered without gaps'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'numbers_have_no_gaps';
    END IF;
    SELECT * INTO its_period FROM billing_ledgerperiod WHERE id = NEW.period_id FOR SHARE;
    IF its_period.organisation_id <> NEW.organisation_id
       OR NOT EXISTS (SELECT 1 FROM tenancy_tenant AS t JOIN tenancy_tenant AS root ON root.id = NEW.organisation_id
                       WHERE t.id = NEW.tenant_id AND split_part(t.path, '/', 1) = root.path
                         AND (NEW.kind = 'statement') = (t.id <> root.id)) THEN
        RAISE EXCEPTION 'an invoice is of an organisation, a statement of a tenant below it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_is_of_its_organisation';
    END IF;
    IF NEW.kind = 'credit_note' THEN
        SELECT * INTO referred FROM billing_invoice WHERE id = NEW.reference_id;
        IF referred.kind IS DISTINCT FROM 'invoice'
           OR (referred.organisation_id, referred.tenant_id, referred.period_id, referred.revision, referred.currency, referred.tax_rate)
              IS DISTINCT FROM
              (NEW.organisation_id, NEW.tenant_id, NEW.period_id, NEW.revision, NEW.currency, NEW.tax_rate) THEN
            RAISE EXCEPTION 'a credit note is of an invoice'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'credit_note_is_of_an_invoice';
        END IF;
        RETURN NEW;
    END IF;
    IF its_period.state <> 'closed' OR its_period.revision <> NEW.revision THEN
        RAISE EXCEPTION 'only a closed month is invoiced'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_is_of_a_closed_period';
    END IF;
    SELECT * INTO earlier FROM billing_invoice AS i
     WHERE (i.period_id, i.revision, i.tenant_id, i.currency, i.edition)
         = (NEW.period_id, NEW.revision, NEW.tenant_id, NEW.currency, NEW.edition - 1) AND i.kind <> 'credit_note';
    IF NEW.edition > 1 AND (earlier.kind IS DISTINCT FROM 'invoice' OR NOT billing_is_credited(earlier.id)) THEN
        RAISE EXCEPTION 'another edition follows on an invoice that is credited in full'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'edition_follows_a_credit';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_invoice BEFORE INSERT ON billing_invoice
    FOR EACH ROW EXECUTE FUNCTION billing_admit_invoice();

-- Balances of the lines of invoices. Runs as its owner: processes only read them.
CREATE OR REPLACE FUNCTION billing_balance_line() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.credits_id IS NULL THEN
        INSERT INTO billing_invoicebalance (line_id, amount, tax, credited, credited_tax)
        VALUES (NEW.id, NEW.amount, NEW.tax, 0, 0);
    ELSE
        UPDATE billing_invoicebalance AS b SET credited = b.credited - NEW.amount, credited_tax = b.credited_tax - NEW.tax
         WHERE b.line_id = NEW.credits_id;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_balance_line AFTER INSERT ON billing_invoiceline
    FOR EACH ROW EXECUTE FUNCTION billing_balance_line();

-- At commit: the document says what the columns and lines say, the lines add up, and they are what the ledger charges.
CREATE OR REPLACE FUNCTION billing_judge_invoice(invoice uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    i billing_invoice;
    content jsonb;
    digits integer;
    nothing uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
    SELECT * INTO i FROM billing_invoice WHERE id = invoice;
    content := i.document::jsonb;
    digits := billing_minor_digits(i.currency);
    IF i.digest <> encode(sha256(convert_to(i.document, 'UTF8')), 'hex')
       OR (content ->> 'number', content ->> 'kind', content ->> 'currency', (content ->> 'tenant') COLLATE "C", (content ->> 'total')::numeric,
           (content ->> 'subtotal')::numeric, (content #>> '{tax,amount}')::numeric, (content ->> 'exact')::numeric)
          IS DISTINCT FROM (i.number::text, i.kind::text, i.currency::text, i.tenant_path::text, i.total, i.subtotal, i.tax, i.exact) THEN
        RAISE EXCEPTION 'the document of % says something else', i.number
            USING ERRCODE = 'check_violation', CONSTRAINT = 'document_is_what_its_digest_says';
    END IF;
    IF EXISTS (
        SELECT 1 FROM (SELECT * FROM billing_invoiceline WHERE invoice_id = invoice) AS l
          FULL JOIN jsonb_to_recordset(content -> 'lines') AS d(
              number integer, kind text, tenant text, cluster text, flavor text, month text, exact numeric, amount numeric, tax numeric)
            USING (number)
         WHERE (l.kind::text, l.tenant_path::text, l.cluster_name::text, l.flavor::text, to_char(l.month, 'YYYY-MM'), l.exact, l.amount, l.tax)
               IS DISTINCT FROM (d.kind, d.tenant COLLATE "C", d.cluster, d.flavor, d.month, d.exact, d.amount, d.tax)
    ) OR i.line_count <> (SELECT count(*) FROM billing_invoiceline WHERE invoice_id = invoice) THEN
        RAISE EXCEPTION 'the document of % has other lines', i.number
            USING ERRCODE = 'check_violation', CONSTRAINT = 'document_has_its_lines';
    END IF;
    IF EXISTS (SELECT 1 FROM (SELECT sum(l.exact) AS exact, sum(l.amount) AS amount, sum(l.tax) AS tax
                                FROM billing_invoiceline AS l WHERE l.invoice_id = invoice) AS s
                WHERE (i.exact, i.subtotal, i.tax) IS DISTINCT FROM (s.exact, s.amount, s.tax))
       OR abs(i.exact - i.subtotal) * 2 > power(10::numeric, -digits)
       OR (i.kind <> 'credit_note' AND abs(i.subtotal * coalesce(i.tax_rate, 0) / 100 - i.tax) * 2 > power(10::numeric, -digits))
       OR EXISTS (SELECT 1 FROM billing_invoiceline AS l WHERE l.invoice_id = invoice
                     AND (abs(l.exact - l.amount) >= power(10::numeric, -digits) OR trunc(l.amount, digits) <> l.amount
                          OR trunc(l.tax, digits) <> l.tax OR (i.tax_rate IS NULL AND l.tax <> 0))) THEN
        RAISE EXCEPTION 'the lines of % do not add up', i.number
            USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_lines_add_up';
    END IF;
    IF i.kind = 'credit_note' THEN
        IF EXISTS (SELECT 1 FROM billing_invoiceline AS l LEFT JOIN billing_invoiceline AS o ON o.id = l.credits_id
                    WHERE l.invoice_id = invoice
                      AND (o.invoice_id, o.tenant_path, o.cluster_name, o.flavor, o.month)
                          IS DISTINCT FROM (i.reference_id, l.tenant_path, l.cluster_name, l.flavor, l.month)) THEN
            RAISE EXCEPTION 'a credit note has lines of its invoice'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'credits_are_of_the_invoice';
        END IF;
    ELSIF EXISTS (SELECT 1 FROM billing_invoiceline AS l WHERE l.invoice_id = invoice AND l.credits_id IS NOT NULL)
       OR EXISTS (
        SELECT 1 FROM billing_invoice_charges(i.period_id, i.currency, CASE WHEN i.kind = 'statement' THEN i.tenant_path ELSE '' END) AS c
          FULL JOIN (SELECT * FROM billing_invoiceline WHERE invoice_id = invoice) AS l
            ON l.tenant_path = c.tenant_path COLLATE "C" AND coalesce(l.cluster_id, nothing) = coalesce(c.cluster_id, nothing)
               AND l.flavor = c.flavor AND l.month = c.month
         WHERE coalesce(c.amount, 0) <> coalesce(l.exact, 0))
       OR i.exact <> (SELECT sum(c.amount) FROM billing_invoice_charges(
              i.period_id, i.currency, CASE WHEN i.kind = 'statement' THEN i.tenant_path ELSE '' END) AS c) THEN
        RAISE EXCEPTION '% is not what the ledger charges', i.number
            USING ERRCODE = 'check_violation', CONSTRAINT = 'invoice_is_what_the_ledger_charges';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION billing_invoice_charges(period uuid, in_currency character varying, below character varying)
    RETURNS TABLE(tenant_path character varying, cluster_id uuid, flavor character varying, month date, amount numeric, quantity numeric, known boolean)
    LANGUAGE sql STABLE AS $$
    SELECT place.path, e.cluster_id, billing_sku_of(e), date_trunc('month', e.charge_day)::date, sum(l.amount), sum(l.quantity), bool_and(l.quantity IS NOT NULL)
      FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id AND l.currency = in_currency
      JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind IN ('tenant_expense', 'tenant_converted')
      JOIN tenancy_tenant AS t ON t.id = a.tenant_id
     CROSS JOIN LATERAL (SELECT coalesce(nullif(e.tenant_path, ''), t.path)::character varying COLLATE "C" AS path) AS place
     WHERE e.period_id = period AND (below = '' OR place.path = below OR starts_with(place.path, below || '/'))
     GROUP BY 1, 2, 3, 4
$$;

CREATE OR REPLACE FUNCTION billing_judge_document() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM billing_judge_invoice(NEW.id);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_document AFTER INSERT ON billing_invoice
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_judge_document();

-- A line that is added later finds a document that is already committed and counts its lines.
CREATE OR REPLACE FUNCTION billing_judge_invoice_line() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT i.line_count < NEW.number OR i.line_count <> (SELECT count(*) FROM billing_invoiceline WHERE invoice_id = i.id)
          FROM billing_invoice AS i WHERE i.id = NEW.invoice_id) THEN
        RAISE EXCEPTION 'a document has the lines that it was issued with'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'document_has_its_lines';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_invoice_line AFTER INSERT ON billing_invoiceline
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_judge_invoice_line();
CREATE OR REPLACE TRIGGER billing_keep_invoices BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_invoice
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_invoice_lines BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_invoiceline
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_balances BEFORE DELETE OR TRUNCATE ON billing_invoicebalance
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

-- A remark on a document's line keeps its entries: of a converted amount, the entry that it was converted from.
CREATE OR REPLACE FUNCTION billing_guard_remark() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    line billing_invoiceline;
    its_document billing_invoice;
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT * INTO line FROM billing_invoiceline WHERE id = NEW.line_id;
        SELECT * INTO its_document FROM billing_invoice WHERE id = line.invoice_id;
        IF NEW.state <> 'open' OR its_document.organisation_id IS DISTINCT FROM NEW.organisation_id THEN
            RAISE EXCEPTION 'a remark on a line begins open'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'remark_begins_open';
        END IF;
        NEW.entries := coalesce((
            SELECT array_agg(DISTINCT coalesce(e.converts_id, e.id) ORDER BY coalesce(e.converts_id, e.id))
              FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id AND l.currency = its_document.currency
              JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind IN ('tenant_expense', 'tenant_converted')
              JOIN tenancy_tenant AS t ON t.id = a.tenant_id
             WHERE e.period_id = its_document.period_id AND billing_sku_of(e) = line.flavor
               AND e.cluster_id IS NOT DISTINCT FROM line.cluster_id AND date_trunc('month', e.charge_day)::date = line.month
               AND coalesce(nullif(e.tenant_path, ''), t.path) COLLATE "C" = line.tenant_path), '{}');
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.organisation_id, NEW.line_id, NEW.kind, NEW.entries, NEW.text, NEW.opened_by_id, NEW.opened_by_name, NEW.opened_at)
       IS DISTINCT FROM
       (OLD.id, OLD.organisation_id, OLD.line_id, OLD.kind, OLD.entries, OLD.text, OLD.opened_by_id, OLD.opened_by_name, OLD.opened_at)
       OR (OLD.state, NEW.state) NOT IN (('open', 'answered'), ('answered', 'resolved'))
       OR (OLD.state = 'answered' AND (NEW.answer, NEW.answered_by_name, NEW.answered_at)
           IS DISTINCT FROM (OLD.answer, OLD.answered_by_name, OLD.answered_at)) THEN
        RAISE EXCEPTION 'a remark goes from open to answered to resolved, and keeps what was said'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'remark_goes_its_way';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_remark BEFORE INSERT OR UPDATE ON billing_invoiceremark
    FOR EACH ROW EXECUTE FUNCTION billing_guard_remark();
CREATE OR REPLACE TRIGGER billing_keep_remarks BEFORE DELETE OR TRUNCATE ON billing_invoiceremark
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

-- What stands for the flavor of an entry on a document: credits have lines of their own, and so have their conversions.
CREATE OR REPLACE FUNCTION billing_sku_of(e billing_ledgerentry) RETURNS character varying LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN billing_is_credit(e.kind, e.reverses_id) OR (
        SELECT billing_is_credit(o.kind, o.reverses_id) FROM billing_ledgerentry AS o
         WHERE o.id = coalesce(e.converts_id, (SELECT r.converts_id FROM billing_ledgerentry AS r WHERE r.id = e.reverses_id))
    ) THEN 'infrastructure credit' ELSE e.flavor END
$$;
