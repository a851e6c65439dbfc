"""Seeds that broke a promise before a defect was mended. They always run. A change of the gateway may change what a seed
does, so each defect also has a separate test.
"""

from .size import Size

NEWER = (
    "wishes_refused",
    "gate_forbidden",
    "gate_refused",
    "rows_spoiled",
    "spot_notice",
    "programs_report",
    "release_unheard",
    "unannounced",
    "restored_over_run",
    "bulk_asked",
    "asked_in_vain",
    "pods_hidden",
    "supplied",
    "requests_hang",
    "right_lacks",
    "rows_refused",
    "pressed",
    "nodes_kill",
    "tree_applied",
    "quota_asked",
    "limits_shaped",
    "month_ends",
    "overtaken",
    "logs_decide",
    "budgeted",
    "room_kept",
    "exchanged",
    "prepulled",
    "consolidated",
    "staged",
)
"""Kinds of faults that are newer than the finds: without them, the seeds do what they did."""
KEPT: tuple[tuple[int, Size], ...] = (
    (1, Size(without=NEWER, scale="whole")),  # an object that was not released while another of its attempt already ran
    (8, Size(without=NEWER, scale="whole")),  # a Job that another client took our label from
    (11, Size(without=NEWER, scale="whole")),  # observers whose clocks are four minutes slow
    (
        20106,
        Size(without=NEWER, scale="whole"),
    ),  # a Job that passed its deadline, whose program ended well while it was stopped
    (
        85200,
        Size(without=NEWER[NEWER.index("overtaken") :], scale="whole"),
    ),  # the price of a removed cluster, which could not be corrected
)
