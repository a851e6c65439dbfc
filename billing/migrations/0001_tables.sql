-- What Django's operations cannot say of these tables, and the first rows. Functions and triggers are in `../sql/`.

ALTER TABLE billing_usagesegment ADD CONSTRAINT segment_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', lower(period) AT TIME ZONE 'UTC') = lower(period) AT TIME ZONE 'UTC'
    AND date_trunc('milliseconds', upper(period) AT TIME ZONE 'UTC') = upper(period) AT TIME ZONE 'UTC');

ALTER TABLE billing_usagesegment ADD CONSTRAINT segment_lies_within_a_day CHECK (
    date_trunc('day', lower(period) AT TIME ZONE 'UTC') + interval '1 day' >= upper(period) AT TIME ZONE 'UTC');

ALTER TABLE billing_meter ADD CONSTRAINT meter_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', metered_from AT TIME ZONE 'UTC') = metered_from AT TIME ZONE 'UTC'
    AND date_trunc('milliseconds', metered_until AT TIME ZONE 'UTC') = metered_until AT TIME ZONE 'UTC');

ALTER TABLE billing_price ADD CONSTRAINT price_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', lower(valid) AT TIME ZONE 'UTC') = lower(valid) AT TIME ZONE 'UTC'
    AND date_trunc('milliseconds', upper(valid) AT TIME ZONE 'UTC') IS NOT DISTINCT FROM upper(valid) AT TIME ZONE 'UTC');

ALTER TABLE billing_meter ADD CONSTRAINT meter_redoes_from_a_whole_millisecond CHECK (
    date_trunc('milliseconds', redone_from AT TIME ZONE 'UTC') = redone_from AT TIME ZONE 'UTC');

ALTER TABLE billing_pricecorrection ADD CONSTRAINT correction_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', lower(span) AT TIME ZONE 'UTC') = lower(span) AT TIME ZONE 'UTC'
    AND date_trunc('milliseconds', upper(span) AT TIME ZONE 'UTC') = upper(span) AT TIME ZONE 'UTC');

ALTER TABLE billing_budget ADD CONSTRAINT budget_dates_are_days CHECK (
    date_trunc('day', starts_at AT TIME ZONE 'UTC') = starts_at AT TIME ZONE 'UTC'
    AND date_trunc('day', ends_at AT TIME ZONE 'UTC') = ends_at AT TIME ZONE 'UTC');

-- Room in each page for the next version of a sum: an update then touches no index.
ALTER TABLE billing_meterday SET (fillfactor = 80);

ALTER TABLE billing_tenantday SET (fillfactor = 70);

ALTER TABLE billing_tenantmonth SET (fillfactor = 50);

ALTER TABLE billing_lostwork ADD CONSTRAINT lost_work_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', lost_from AT TIME ZONE 'UTC') = lost_from AT TIME ZONE 'UTC');

ALTER TABLE billing_negativenodehour ADD CONSTRAINT node_hour_begins_with_an_hour CHECK (
    date_trunc('hour', hour AT TIME ZONE 'UTC') = hour AT TIME ZONE 'UTC');
