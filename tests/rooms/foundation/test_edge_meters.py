from foundation.edge import meters
from foundation.edge.meters import Buckets, Meter, Rates, Ticket
from foundation.edge.worker import _credential

RATES = Rates(source=100, credential=50, stranger=2, burst_seconds=5, sign_ins_a_minute=20)


def admitted(meter, times, credential="", *, source="192.0.2.1", now=0.0, **kind):
    kinds = {"is_sign_in": False, "is_free": False} | kind
    return [meter.admit(source, credential, now=now, **kinds) for _ in range(times)]


def passed(judged):
    return sum(isinstance(one, Ticket) for one in judged)


def test_strangers_get_their_burst_then_their_rate_and_are_told_how_long_to_wait():
    meter = Meter(RATES)
    judged = admitted(meter, 30)
    assert passed(judged) == 10
    assert judged[-1] == 0.5
    assert passed(admitted(meter, 30, now=3.0)) == 6


def test_one_source_takes_nothing_from_another():
    meter = Meter(RATES)
    admitted(meter, 30)
    assert passed(admitted(meter, 10, source="192.0.2.2")) == 10


def test_made_up_tokens_are_worth_no_more_than_none():
    meter = Meter(RATES)
    tickets = [ticket for number in range(30) for ticket in admitted(meter, 1, f"made-up {number}")]
    assert passed(tickets) == 10


def test_a_credential_that_proved_good_has_a_limit_of_its_own_while_strangers_flood():
    meter = Meter(RATES)
    [ticket] = admitted(meter, 1, "good")
    meter.note_known(ticket, 0.0)
    assert passed(admitted(meter, 30)) == 10, "the good one gave its stranger's token back"
    assert passed(admitted(meter, 40, "good")) == 40
    meter.note_unknown(ticket)
    assert passed(admitted(meter, 1, "good")) == 0


def test_a_known_credential_is_a_strangers_again_after_a_while():
    meter = Meter(RATES)
    [ticket] = admitted(meter, 1, "good")
    meter.note_known(ticket, 0.0)
    assert passed(admitted(meter, 30, "good", now=meters.KNOWN_SECONDS + 1)) == 10


def test_the_rate_of_tries_to_sign_in_is_shared_out_among_processes_and_a_person_may_mistype_at_each():
    meter = Meter(RATES, 2)
    assert passed(admitted(meter, 30, is_sign_in=True)) == 5
    assert admitted(meter, 1, is_sign_in=True) == [6.0]
    assert passed(admitted(meter, 30, is_sign_in=True, now=12.0)) == 2


def test_tries_to_sign_in_are_few_whatever_they_carry():
    meter = Meter(RATES)
    [ticket] = admitted(meter, 1, "good")
    meter.note_known(ticket, 0.0)
    judged = [*admitted(meter, 30, "good", is_sign_in=True), *admitted(meter, 30, is_sign_in=True)]
    assert passed(judged) == 5
    assert judged[-1] == 3.0


def test_whoever_guesses_passwords_leaves_the_pages_to_the_others_behind_its_address():
    meter = Meter(RATES)
    admitted(meter, 50, is_sign_in=True)
    assert passed(admitted(meter, 30)) == 10


def test_static_files_cost_a_stranger_nothing_but_its_sources_share():
    meter = Meter(RATES)
    assert passed(admitted(meter, 600, is_free=True)) == 500
    assert passed(admitted(meter, 1)) == 0


def test_a_rate_of_zero_is_no_limit():
    assert passed(admitted(Meter(Rates(0, 0, 0, sign_ins_a_minute=0)), 5000, is_sign_in=True)) == 5000


def test_the_lowest_rate_lets_one_try_in():
    meter = Meter(Rates(sign_ins_a_minute=1))
    assert passed(admitted(meter, 5, is_sign_in=True)) == 1
    assert passed(admitted(meter, 5, is_sign_in=True, now=60.0)) == 1


def test_memory_is_bounded_whatever_number_of_sources_there_is():
    buckets = Buckets(1, 5)
    for number in range(meters.MOST_BUCKETS + 500):
        buckets.take(str(number), 0.0)
    assert len(buckets._levels) == meters.MOST_BUCKETS


def test_a_clock_that_stands_or_goes_back_gives_nothing():
    buckets = Buckets(1, 1)
    assert buckets.take("a", 10.0) == 0
    assert buckets.take("a", 5.0) > 0


def test_the_cookies_of_web_sessions_and_of_sessions_are_credentials(settings):
    settings.SESSION_COOKIE_NAME = "__Host-sessionid"
    settings.EDGE_CREDENTIAL_COOKIES = ["__Host-switchyard-session"]
    found = [
        _credential([("COOKIE", text)])
        for text in (
            "a=b; __Host-switchyard-session=x",
            "__Host-switchyard-session=x",
            "__Host-sessionid=x; c=d",
            "session=x",
            "",
        )
    ]
    assert found[0] == found[1] == found[2] != ""
    assert found[3:] == ["", ""]
    assert _credential([("AUTHORIZATION", "Bearer x"), ("COOKIE", "__Host-sessionid=x")]) not in found
