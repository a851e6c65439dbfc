"""Seeds that broke a promise before a defect was mended. They always run. A change of the gateway may change what a seed
does, so each defect also has a separate test.
"""

from .size import Size

KEPT: tuple[tuple[int, Size], ...] = (
    (1, Size()),  # an object that was not released while another of its attempt already ran
    (8, Size()),  # a Job that another client took our label from
    (11, Size()),  # observers whose clocks are four minutes slow
    (20106, Size()),  # a Job that passed its deadline, whose program ended well while it was stopped
)
