"""Checks recorded histories for linearizability with Porcupine, independently of the gateway's own code.

A history is a file of JSON lines. The first line has the legal moves of a job, `{"moves": {"queued": ["dispatching",
…], …}}`; every other line is one operation of a client:

    kind      what the object is: `submit`, `hold`, `lease` or `job`; each object of a kind is checked alone
    object    its name: an idempotency key of a tenant, a limit, a lease, a job's id
    client    a number; a client has one operation at a time
    op, args  what it asked (table below)
    called    when it asked, and `returned`, when it was answered: in nanoseconds of one clock
    answer    what it received

An operation without `returned` was never answered: it may have taken effect at any time since, or never.

    kind    op       args              answer
    submit  submit   body              {"job", "replayed"} or {"refused": "other_body" | "in_progress"}
    hold    limit    amount            {}
            take     id, amount        {"taken"}
            end      id, amount        {"ended"}
    lease   acquire  ttl               {"token"}: 0 while another holder has it
            renew    token, ttl        {"held"}
            release  token             {"held"}
            write    token             {"accepted"}
    job     read                       {"state"}
            cancel                     {"state"} or {"conflict": the state in which it has ended}

`ttl` is in nanoseconds too. A lease may expire within the bounds that its calls leave; it never needs to.
"""
