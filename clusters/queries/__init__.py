"""Read-only queries on clusters."""

from .avoided import avoided_names as avoided_names
from .avoided import last_ends as last_ends
from .capacity import FlavorSummary as FlavorSummary
from .capacity import flavor_summary as flavor_summary
from .capacity import fleet_freshness as fleet_freshness
from .capacity import freshness_of as freshness_of
from .capacity import shown_reasons as shown_reasons
from .connections import address_of_registered as address_of_registered
from .connections import driver_of as driver_of
from .datasets import known_data as known_data
from .domains import Domains as Domains
from .domains import domains as domains
from .fleet import ClusterView as ClusterView
from .fleet import FlavorView as FlavorView
from .fleet import NodeView as NodeView
from .fleet import fleet as fleet
from .secrets import known_secrets as known_secrets
from .secrets import opened_secrets as opened_secrets
from .secrets import signing_keys as signing_keys
from .storages import known_storages as known_storages
from .visible import cluster_by_id as cluster_by_id
from .visible import cluster_by_name as cluster_by_name
from .visible import in_state as in_state
from .visible import require_at_owner as require_at_owner
from .visible import visible_clusters as visible_clusters
