-- What Django's operations cannot say of these tables, and the first rows. Functions and triggers are in `../sql/`.

ALTER TABLE clusters_maintenancewindow
    ADD CONSTRAINT window_nodes_are_a_short_list_of_names CHECK (
        CASE WHEN jsonb_typeof(nodes) = 'array'
             THEN jsonb_array_length(nodes) <= 500 AND octet_length(nodes::text) <= 150000
                  AND NOT jsonb_path_exists(nodes, 'strict $[*] ? (@.type() != "string" || @ == "")')
             ELSE false END),
    ADD CONSTRAINT window_lasts_at_most_90_days CHECK (ends_at <= starts_at + interval '90 days');

ALTER TABLE clusters_nodespan ADD CONSTRAINT span_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', lower(period) AT TIME ZONE 'UTC') = lower(period) AT TIME ZONE 'UTC'
    AND (upper_inf(period) OR date_trunc('milliseconds', upper(period) AT TIME ZONE 'UTC') = upper(period) AT TIME ZONE 'UTC'));
