-- What Django's operations cannot say of these tables, and the first rows. Functions and triggers are in `../sql/`.

INSERT INTO quotas_pasthalflife (id, half_life_seconds) VALUES (1, 86400);
