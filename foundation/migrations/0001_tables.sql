-- What Django's operations cannot say of these tables, and the first rows. Functions and triggers are in `../sql/`.

CREATE SEQUENCE IF NOT EXISTS foundation_lease_token AS bigint;
