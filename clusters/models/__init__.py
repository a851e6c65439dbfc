"""State and constraints of this room: registered clusters, the last observation of them, and their maintenance."""

from .clusters import AvoidedNode as AvoidedNode
from .clusters import Cluster as Cluster
from .clusters import ClusterCredential as ClusterCredential
from .clusters import ClusterEvent as ClusterEvent
from .clusters import Dataset as Dataset
from .clusters import DatasetLocation as DatasetLocation
from .clusters import Flavor as Flavor
from .clusters import Node as Node
from .clusters import StandingClusters as StandingClusters
from .history import NodeOffer as NodeOffer
from .history import NodeSpan as NodeSpan
from .images import ClusterImage as ClusterImage
from .images import PullTimes as PullTimes
from .maintenance import MaintenanceWindow as MaintenanceWindow
from .networks import Network as Network
from .staging import DatasetReplica as DatasetReplica
from .staging import StagingPlan as StagingPlan
from .storages import Storage as Storage
from .storages import TenantSecret as TenantSecret
from .telemetry import ClusterPrometheus as ClusterPrometheus
