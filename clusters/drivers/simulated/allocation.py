"""What a simulated cluster knows of devices that are claimed."""

DEVICE_CLASSES = frozenset(
    {"gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gaudi.intel.com", "tpu.google.com"}
)
