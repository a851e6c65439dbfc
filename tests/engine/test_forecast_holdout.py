"""The benchmark of forecasts picks a rule on what it is not judged on."""

import numpy as np

from benchmarks.forecast_holdout import picked, rows_of, trial_of


def history(seed, days=120):
    return list(np.random.default_rng(seed).gamma(2, 50, days) * (1 + np.arange(days) / 30))


def trial(source, seed, changed_from=None):
    days = history(seed)
    if changed_from is not None:
        days[changed_from:] = [1e6 * (number % 3) for number in range(len(days) - changed_from)]
    return trial_of(source, f"{source}-{seed}", days, 7, None)


def test_halves_do_not_meet_and_too_few_days_are_no_trial():
    first, second = trial("a", 1).judged
    assert first.stop == second.start
    assert len(first) <= len(second) <= len(first) + 1
    assert trial_of("a", "short", history(1, 40), 7, None) is None


def test_the_rule_is_picked_without_the_second_half():
    of_one = trial("a", 1)
    day = of_one.judged[1].start + 14 + 7  # of the second half: origins begin after 14 days, and forecast 7
    for seed in range(6):
        assert picked([trial("a", seed)]) == picked([trial("a", seed, changed_from=day)])


def test_a_trace_is_judged_with_the_rule_of_other_sources_and_a_wild_own_history_changes_none():
    others = [trial("b", seed) for seed in range(4)]
    for own in (trial("a", 9), trial("a", 9, changed_from=0)):
        row = next(row for row in rows_of([own, *others])[0] if row["trace"] == "a-9")
        rule = picked(others)
        assert row["which is"] == f"{rule.clearly:g} in {rule.periods}"
    _, figures = rows_of(others)
    assert figures.keys() == {"held_out_rule", "held_out_picked"}
