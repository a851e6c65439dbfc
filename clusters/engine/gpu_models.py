"""Names of accelerators: maps device plugins' model names to the one name that jobs and quotas use.

Models sold with different amounts of memory include the amount (`A100-40GB`); the others do not (`T4`, `L40S`, `H200`).
An unknown product keeps the name from its plugin.
"""

import re

_SIZES_GB = {
    "V100": (16, 32),
    "P100": (12, 16),
    "A100": (40, 80),
    "A800": (40, 80),
    "H100": (64, 80, 94, 96),
    "H800": (80, 94),
}
_USUAL_SIZE_GB = {"V100": 16, "P100": 16, "A100": 40, "A800": 80, "H100": 80, "H800": 80}
_NVIDIA = re.compile(
    r"^(RTX[ -]PRO[ -]\d{4}|RTX[ -]6000[ -]Ada|RTX[ -]\d{4}(?:[ -](?:Ti|SUPER))*|RTX[ -]A\d{4}"
    r"|GB\d{3}|GH200|B\d{3}|H20|H\d{3}|A\d{3}|V100S?|P100|A10G|A\d{1,2}|L40S|L40|L20|L4|L2|T4G|T4|P40|P4|M60|K80|A\d{4})(?![0-9A-Za-z])",
    re.IGNORECASE,
)
_INTERCONNECT = re.compile(r"(?<![0-9A-Za-z])(PCI-?e|NVL|MEGA)(?![0-9A-Za-z])", re.IGNORECASE)
_SIZE_IN_NAME = re.compile(r"(?<![0-9])(\d{2,3})GB(?![0-9A-Za-z])", re.IGNORECASE)
_AMD = re.compile(r"MI\d{2,3}[A-Z]?", re.IGNORECASE)
_MEMORY_GB = {
    "A10": 24, "A10G": 24, "A2": 16, "A30": 24, "A40": 48, "B200": 180, "B300": 288, "GB200": 186, "GB300": 288,
    "Flex-140": 6, "Flex-170": 16, "Gaudi": 32, "Gaudi2": 96, "Gaudi3": 128,
    "H20": 96, "H200": 141, "K80": 12, "L4": 24, "L40": 48, "L40S": 48, "M60": 8, "Max-1100": 48, "Max-1550": 128, "MI100": 32, "MI210": 64,
    "MI250X": 64, "MI300A": 128, "MI300X": 192, "MI308X": 192, "MI325X": 256, "MI350X": 288, "MI355X": 288, "P4": 8,
    "P40": 24, "T4": 16, "tpu-v4-podslice": 32, "tpu-v5-lite-device": 16, "tpu-v5-lite-podslice": 16,
    "tpu-v5p-slice": 95, "tpu-v6e-slice": 32, "tpu7x": 192,
}  # fmt: skip
AMD_COMPUTE_DIES = {"MI300A": 6, "MI300X": 8, "MI308X": 4, "MI325X": 8, "MI350X": 8, "MI355X": 8}
"""The number of parts into which the partitioning `cpx` divides a GPU."""
AMD_DEVICE_IDS = {
    "738c": "MI100",
    "7408": "MI250X",
    "740c": "MI250X",
    "740f": "MI210",
    "74a0": "MI300A",
    "74a1": "MI300X",
    "74a2": "MI308X",
    "74a5": "MI325X",
    "74b5": "MI300X",
    "75a0": "MI350X",
    "75a3": "MI355X",
}
"""PCI device ids (amd.com/gpu.device-id) for clusters whose plugin labels no product name."""


def nvidia_model(product: str, memory_mib: int = 0) -> tuple[str, str]:
    """(model, variant) of an NVIDIA product name as GPU feature discovery or GKE writes it.

    `variant` distinguishes products that differ in more than memory (`pcie`, `nvl`, `mega`; empty for SXM and
    single-form cards). `memory_mib` determines the size if the name does not; give 0 if it describes a slice.
    """
    plain = re.sub(
        r"^(NVIDIA[ -])?(TESLA[ -]|GEFORCE[ -]|QUADRO[ -]|GRID[ -])?", "", product.strip(), flags=re.IGNORECASE
    )
    found = _NVIDIA.match(plain)
    if found is None:
        return product.strip(), ""
    base = _spelled(found.group(1))
    variant = _INTERCONNECT.search(plain)
    word = variant.group(1).lower().replace("-", "") if variant else ""
    if base not in _SIZES_GB:
        return base, word
    return f"{base}-{_size_gb(base, plain, memory_mib)}GB", word


def amd_model(product: str) -> str:
    """The model of an AMD product name such as `AMD_Instinct_MI300X_OAM`."""
    found = _AMD.search(product)
    return found.group(0).upper() if found else product.strip()


def intel_model(product: str) -> str:
    """The model of an Intel product as the node feature rules write it (`Max_1550`)."""
    return product.strip().replace("_", "-")


def gaudi_model(text: str) -> str:
    """The generation of Gaudi in a product's or an instance type's name; empty if it names none."""
    found = re.search(r"gaudi-?([23])?", text, re.IGNORECASE)
    if found:
        return f"Gaudi{found.group(1) or ''}"
    return "Gaudi" if text.startswith("dl1.") else ""


def usual_memory_mib(model: str) -> int:
    """The memory of a device of this model in MiB, used if no label gives it; 0 if unknown."""
    base, _, size = model.rpartition("-")
    if base in _SIZES_GB and size.endswith("GB"):
        return int(size.removesuffix("GB")) * 1024
    return _MEMORY_GB.get(model, 0) * 1024


def memory_in_profile_mib(profile: str) -> int:
    """The memory of a MIG profile such as `1g.10gb`, in MiB; 0 if the profile does not name it."""
    found = re.search(r"(\d+)gb", profile)
    return int(found.group(1)) * 1024 if found else 0


def _spelled(base: str) -> str:
    words = base.replace(" ", "-").split("-")
    return "-".join(word if word.lower() in {"ti", "ada"} else word.upper() for word in words)


def _size_gb(base: str, plain: str, memory_mib: int) -> int:
    named = _SIZE_IN_NAME.search(plain)
    if named and int(named.group(1)) in _SIZES_GB[base]:
        return int(named.group(1))
    if memory_mib > 0:
        return min(_SIZES_GB[base], key=lambda size: abs(size * 1024 - memory_mib))
    return _USUAL_SIZE_GB[base]
