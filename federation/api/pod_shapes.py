"""The shapes of pod sets, for the OpenAPI description."""

from typing import Any

from rest_framework import serializers

from clusters.engine.networks import MOST_NETWORKS
from federation.engine.intake import pods, spec

QUANTITY = "A Kubernetes quantity, such as 500m, 16 or 128Gi; a number may be given as one."


class MountShape(serializers.Serializer[Any]):
    """A storage of the cluster, of which the job gets its tenant's part; with `size`, a new volume for each pod."""

    storage = serializers.CharField(max_length=63, help_text="The job runs only on clusters that have this storage.")
    path = serializers.CharField(max_length=512, help_text="Where it appears in the container, such as /data.")
    sub_path = serializers.CharField(
        required=False, max_length=512, help_text="A part of the tenant's part, such as runs/2026; empty: all of it."
    )
    read_only = serializers.BooleanField(  # type: ignore[assignment]  # the stubs know DRF's own `read_only`
        required=False, help_text="By default true, and false with `size`."
    )
    size = serializers.CharField(
        required=False,
        help_text="Of a storage class: how large the new volume of each pod is, which is empty and deleted with the pod.",
    )


class SecretUseShape(serializers.Serializer[Any]):
    """A secret by name, and where its value goes: give either `env` or `file`."""

    secret = serializers.CharField(max_length=63, help_text="Of the tenant, else of the nearest tenant above.")
    env = serializers.CharField(required=False, max_length=128, help_text="Name of a variable.")
    file = serializers.CharField(required=False, max_length=512, help_text="Path in the container.")


class GpuShape(serializers.Serializer[Any]):
    """`count` whole GPUs, or `mig` with `count` slices, or a `fraction` of one GPU; `models` narrows each."""

    count = serializers.IntegerField(min_value=1, max_value=spec.MAX_GPUS_PER_POD, required=False)
    mig = serializers.CharField(required=False, help_text="A MIG profile such as 1g.10gb.")
    fraction = serializers.CharField(required=False, help_text='Part of one GPU in thousandths, such as "0.5".')
    models = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Any model of the vendor if empty. A short name such as H100 means every model that it begins.",
    )
    vendor = serializers.ChoiceField(
        choices=pods.GPU_VENDORS, required=False, help_text="Without models and vendor, any NVIDIA GPU."
    )


class PortShape(serializers.Serializer[Any]):
    """A TCP port on which the container listens, for the other pods of its gang."""

    name = serializers.CharField(max_length=15)
    number = serializers.IntegerField(min_value=1, max_value=spec.MAX_PORT)


class ScratchShape(serializers.Serializer[Any]):
    """An empty directory on the node's disk, which is deleted with the pod."""

    size = serializers.CharField(help_text=QUANTITY)
    path = serializers.CharField(max_length=spec.MAX_PATH_BYTES, default=spec.DEFAULT_SCRATCH_PATH)


class ProgramShape(serializers.Serializer[Any]):
    """A program in a container."""

    image = serializers.CharField(max_length=512)
    command = serializers.ListField(child=serializers.CharField(), max_length=spec.MAX_ARGUMENTS, required=False)
    args = serializers.ListField(child=serializers.CharField(), max_length=spec.MAX_ARGUMENTS, required=False)
    env = serializers.DictField(child=serializers.CharField(), required=False)


class InitStepShape(ProgramShape):
    """A program that each pod runs to its end before its own. It has the pod set's mounts and scratch, and no GPU."""

    cpu = serializers.CharField(required=False, help_text="At most the pod set's, which is the default.")
    memory = serializers.CharField(required=False, help_text="At most the pod set's, which is the default.")
    secrets = serializers.BooleanField(default=False, help_text="Whether it gets the pod set's secrets.")


class SidecarShape(ProgramShape):
    """A program that runs beside that of each pod and is stopped after it. It has the pod set's mounts and scratch, and
    no GPU.
    """

    name = serializers.CharField(max_length=63, help_text="Different from the names of the pod's other containers.")
    cpu = serializers.CharField(help_text="Held and charged besides the pod set's.")
    memory = serializers.CharField(help_text="Held and charged besides the pod set's.")
    secrets = serializers.BooleanField(default=False, help_text="Whether it gets the pod set's secrets.")


class PodSetShape(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63)
    count = serializers.IntegerField(min_value=1, max_value=spec.MAX_COUNT, default=1)
    image = serializers.CharField(max_length=512)
    command = serializers.ListField(child=serializers.CharField(), max_length=spec.MAX_ARGUMENTS, required=False)
    args = serializers.ListField(child=serializers.CharField(), max_length=spec.MAX_ARGUMENTS, required=False)
    env = serializers.DictField(child=serializers.CharField(), required=False)
    cpu = serializers.CharField(help_text=QUANTITY)
    memory = serializers.CharField(help_text=QUANTITY)
    gpu = GpuShape(required=False, allow_null=True)
    ports = serializers.ListField(child=PortShape(), max_length=spec.MAX_PORTS, required=False)
    shm = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="Size of /dev/shm, at most `memory`, of which it is a part. By default half of it for pods with GPUs.",
    )
    scratch = ScratchShape(required=False, allow_null=True)
    mounts = serializers.ListField(child=MountShape(), max_length=spec.MAX_MOUNTS, required=False)
    networks = serializers.ListField(
        child=serializers.CharField(max_length=63),
        max_length=MOST_NETWORKS,
        required=False,
        help_text="Network attachments by name, in the order of the pods' interfaces. The job runs only on clusters that have them.",
    )
    secrets = serializers.ListField(child=SecretUseShape(), max_length=spec.MAX_SECRETS, required=False)
    pull_secret = serializers.CharField(required=False, max_length=63, help_text="A secret of the kind `registry`.")
    resources = serializers.DictField(
        child=serializers.CharField(),
        required=False,
        help_text="Amounts of other resources by name, such as rdma/hca: 1 or hugepages-1Gi: 2Gi. The installation says which are allowed.",
    )
    init = serializers.ListField(child=InitStepShape(), max_length=spec.MAX_INIT_STEPS, required=False)
    sidecars = serializers.ListField(child=SidecarShape(), max_length=spec.MAX_SIDECARS, required=False)


class ElasticShape(serializers.Serializer[Any]):
    """A pod set of which a run may have fewer pods than `count`. The job starts with the most that fit now."""

    pod_set = serializers.CharField(required=False, max_length=63, help_text="Its name; by default the only pod set.")
    min_count = serializers.IntegerField(
        min_value=1, max_value=spec.MAX_COUNT, help_text="The fewest pods, at most the pod set's `count`."
    )
    grow = serializers.BooleanField(
        required=False,
        help_text="Whether the gateway may stop a run so that it continues with more pods in idle room, from a checkpoint.",
    )
