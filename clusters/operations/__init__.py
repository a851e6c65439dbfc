"""The only writers of this room: registration, control, health and inventory of clusters."""

from .control import Changes as Changes
from .control import cordon_cluster as cordon_cluster
from .control import drain_cluster as drain_cluster
from .control import probe_cluster as probe_cluster
from .control import remove_cluster as remove_cluster
from .control import uncordon_cluster as uncordon_cluster
from .control import update_cluster as update_cluster
from .health import record_auth_failure as record_auth_failure
from .health import record_contact as record_contact
from .health import record_creates as record_creates
from .health import record_device_access as record_device_access
from .health import record_event as record_event
from .health import record_findings as record_findings
from .health import record_lie as record_lie
from .health import record_limited as record_limited
from .health import record_services as record_services
from .health import record_silence as record_silence
from .health import record_size as record_size
from .inventory import InventoryChange as InventoryChange
from .inventory import record_inventory as record_inventory
from .inventory import record_use as record_use
from .registration import Wanted as Wanted
from .registration import examine as examine
from .registration import register_cluster as register_cluster
from .registration import register_simulated as register_simulated
from .rekeying import rekey_credentials as rekey_credentials
