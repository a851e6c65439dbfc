"""State and constraints of this room: jobs and their attempts, tenants' placement policies and failure rules,
priority classes, preemptions, moves, advance reservations, images that are kept on nodes, datasets that are
copied to storages.
"""

from .artifacts import Artifact as Artifact
from .consolidations import Consolidation as Consolidation
from .failures import Diagnosis as Diagnosis
from .failures import RetryBrake as RetryBrake
from .failures import TenantFailureRules as TenantFailureRules
from .images import ProvenImage as ProvenImage
from .jobs import ATTEMPT_LIFECYCLE as ATTEMPT_LIFECYCLE
from .jobs import IS_LIVE as IS_LIVE
from .jobs import JOB_LIFECYCLE as JOB_LIFECYCLE
from .jobs import LIVE_ATTEMPT_STATES as LIVE_ATTEMPT_STATES
from .jobs import TERMINAL_JOB_STATES as TERMINAL_JOB_STATES
from .jobs import Attempt as Attempt
from .jobs import Job as Job
from .jobs import JobEvent as JobEvent
from .jobs import RemoteObject as RemoteObject
from .kept_places import KeptPlace as KeptPlace
from .kept_room import KeptRoom as KeptRoom
from .moves import Move as Move
from .pods import PodRun as PodRun
from .policies import PlacementPolicy as PlacementPolicy
from .policies import PolicyWeight as PolicyWeight
from .preemptions import Preemption as Preemption
from .preemptions import PreemptionVictim as PreemptionVictim
from .prepulls import Prepull as Prepull
from .prepulls import PrepullPolicy as PrepullPolicy
from .priority_classes import PriorityClass as PriorityClass
from .priority_classes import PriorityClassGrant as PriorityClassGrant
from .proofs import BookProof as BookProof
from .reports import Checkpoint as Checkpoint
from .reports import Progress as Progress
from .reservations import Reservation as Reservation
from .reservations import ReservedNode as ReservedNode
from .runs import EstimateRecord as EstimateRecord
from .runs import RunGroup as RunGroup
from .sessions import SessionTicket as SessionTicket
from .sessions import SessionUse as SessionUse
from .staging import DataWait as DataWait
from .staging import StageIn as StageIn
from .standstill import DISPATCH_IS_OPEN as DISPATCH_IS_OPEN
from .standstill import ComparedCluster as ComparedCluster
from .standstill import DatabaseHistory as DatabaseHistory
from .standstill import Standstill as Standstill
from .upkeep import ClusterUpkeep as ClusterUpkeep
