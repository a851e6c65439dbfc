"""What the tests of energy and emissions share."""

from billing.operations.carbon import Origin, apply_carbon
from tenancy.queries import SYSTEM

SITES = "cluster,from,region,pue\nnorth,2026-09-01,FR,1.2\n"
RATINGS = (
    "part,gpu_model,from,watts,embodied_kg,life_hours\n"
    "gpu,H100,2026-09-01,700,150,50000\n"
    "core,,2026-09-01,3,,\n"
    "gib,,2026-09-01,0.4,,\n"
)
INTENSITIES = (
    "region,from,until,g_per_kwh\nFR,2026-01-01,2027-01-01,50\nFR,2026-10-05T10:00Z,,30\nFR,2026-10-05T11:00Z,,70.5\n"
)
MEASURED = "cluster,pod,hour,watt_hours\n"
ORIGIN = Origin("RTE éCO2mix", "Etalab 2.0")


def imported(text, path="acme", **more):
    """Applies a file."""
    return apply_carbon(SYSTEM, path, text, ORIGIN, **more)


def counted(path="acme"):
    """Sites, ratings and intensities of the cluster `north` of acme."""
    for text in (SITES, RATINGS, INTENSITIES):
        imported(text, path)
