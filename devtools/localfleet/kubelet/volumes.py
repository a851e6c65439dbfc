"""Volumes as folders and files of the kubelet, and where containers mount them."""

import base64
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusters.engine.quantities import parse

from .environment import Facts, Reader, Unresolvable, expand
from .namespaces import MS_NODEV, MS_NOSUID, mount
from .processes import Mount

SHM_MIB = 64
"""What container runtimes give /dev/shm, unless a pod mounts something larger there."""
FILE_MODE = 0o644
Minter = Callable[[Mapping[str, Any]], Awaitable[str]]
"""Gets a token for a `serviceAccountToken` source."""


class Unmountable(Exception):
    """A volume is not available; the message says why. It may become available."""


@dataclass(frozen=True, slots=True)
class Source:
    """What volumes are filled from, for one pod."""

    facts: Facts
    read: Reader
    mint: Minter
    claims: Path
    group: int | None


async def prepare(volumes: Sequence[Mapping[str, Any]], folder: Path, source: Source) -> dict[str, Path]:
    """The volumes by name, all below `folder` but claims. Raises Unmountable."""
    return {volume["name"]: await _prepare(volume, folder / volume["name"], source) for volume in volumes}


async def _prepare(volume: Mapping[str, Any], place: Path, source: Source) -> Path:
    kind = next(key for key in volume if key != "name")
    settings = volume[kind] or {}
    if kind == "emptyDir":
        return empty_folder(place, source.group, settings)
    if kind in ("persistentVolumeClaim", "ephemeral"):
        pod = source.facts.manifest["metadata"]
        # the claim that Kubernetes makes for a pod is named after it
        claim = settings["claimName"] if kind == "persistentVolumeClaim" else f"{pod['name']}-{volume['name']}"
        return _shared(source.claims / pod["namespace"] / claim, source.group)
    if kind == "hostPath":
        return Path(settings["path"])
    sources = {"secret": "secret", "configMap": "configMap", "downwardAPI": "downwardAPI"}
    try:
        if kind == "projected":
            files = [entry for one in settings["sources"] for entry in await _projected(one, settings, source)]
        elif kind in sources:
            files = await _projected({kind: settings}, settings, source)
        else:
            raise Unmountable(f"volume {volume['name']}: the test kubelet has no {kind}")
    except Unresolvable as error:
        raise Unmountable(f"volume {volume['name']}: {error}") from error
    return _written(place, files, source.group)


def empty_folder(place: Path, group: int | None, settings: Mapping[str, Any]) -> Path:
    """An empty folder for the pod; one in memory is its own file system and has the size limit."""
    _shared(place, group)
    if settings.get("medium") == "Memory" and not place.is_mount():
        limit = settings.get("sizeLimit")
        size = f",size={int(parse(str(limit)))}" if limit else ""
        mount("memory", str(place), "tmpfs", MS_NOSUID | MS_NODEV, f"mode=0777{size}")
        _shared(place, group)
    return place


def _shared(place: Path, group: int | None) -> Path:
    """A folder that every user may write to, as Kubernetes makes them; new files belong to the pod's group."""
    place.mkdir(parents=True, exist_ok=True)
    if group is not None:
        os.chown(place, -1, group)
    place.chmod(0o777 if group is None else 0o2777)
    return place


@dataclass(frozen=True, slots=True)
class File:
    """One file of a volume."""

    path: str
    content: bytes
    mode: int


async def _projected(one: Mapping[str, Any], volume: Mapping[str, Any], source: Source) -> list[File]:
    (kind, settings), *_ = one.items()
    mode = volume.get("defaultMode") or FILE_MODE
    if kind == "serviceAccountToken":
        return [File(settings["path"], (await source.mint(settings)).encode(), mode)]
    if kind == "downwardAPI":
        return [
            File(item["path"], _fact(item, source.facts).encode(), item.get("mode") or mode)
            for item in settings.get("items", ())
        ]
    if kind not in ("secret", "configMap"):
        raise Unmountable(f"the test kubelet projects no {kind}")
    name = settings.get("name") or settings.get("secretName", "")
    data = await source.read(f"{kind.lower()}s", name)
    if data is None:
        if settings.get("optional"):
            return []
        raise Unresolvable(f'{kind.lower()} "{name}" not found')
    items = settings.get("items") or [{"key": key, "path": key} for key in data]
    missing = [item["key"] for item in items if item["key"] not in data]
    if missing and not settings.get("optional"):
        raise Unresolvable(f"{kind.lower()} {name} has no key {missing[0]}")
    return [File(item["path"], data[item["key"]], item.get("mode") or mode) for item in items if item["key"] in data]


def _fact(item: Mapping[str, Any], facts: Facts) -> str:
    if reference := item.get("fieldRef"):
        return facts.field(reference["fieldPath"])
    return facts.resource(item["resourceFieldRef"], "")


def _written(place: Path, files: Sequence[File], group: int | None) -> Path:
    """A folder with these files, which only root could change. The pod's group may read them."""
    place.mkdir(parents=True, exist_ok=True)
    for file in files:
        path = place / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(file.content)
        if group is not None:
            os.chown(path, -1, group)
        path.chmod(file.mode | (0o440 if group is not None else 0))
    return place


def mounts_of(
    container: Mapping[str, Any], spec: Mapping[str, Any], places: Mapping[str, Path], variables: Mapping[str, str]
) -> list[Mount]:
    """The container's mounts, outer ones first. Raises Unmountable."""
    read_only = {volume["name"] for volume in spec.get("volumes", ()) if _is_read_only(volume)}
    found = []
    for entry in container.get("volumeMounts", ()):
        place = places[entry["name"]]
        part = entry.get("subPath") or expand(entry.get("subPathExpr", ""), variables)
        source = _part(place, part) if part else place
        is_fixed = bool(entry.get("readOnly")) or entry["name"] in read_only
        found.append(Mount(str(source), os.path.normpath(entry["mountPath"]), is_fixed))
    return sorted(found, key=lambda one: one.target.count("/") if one.target != "/" else 0)


def _is_read_only(volume: Mapping[str, Any]) -> bool:
    filled = volume.keys() & {"secret", "configMap", "downwardAPI", "projected"}
    return bool(filled) or bool(volume.get("persistentVolumeClaim", {}).get("readOnly"))


def _part(place: Path, part: str) -> Path:
    """A folder or file within the volume; a link that leads out of the volume is refused."""
    found = (place / part).resolve()
    if not found.is_relative_to(place.resolve()):
        raise Unmountable(f"subPath {part} leaves its volume")
    if not found.exists():
        found.mkdir(parents=True)
        found.chmod(0o777)
    return found


def decoded(kind: str, found: Mapping[str, Any]) -> dict[str, bytes]:
    """The data of a Secret or ConfigMap object."""
    if kind == "secrets":
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    texts = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    return texts | {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
