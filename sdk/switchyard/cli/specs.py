"""Job specs from files and from options."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
import yaml


class _Strict(yaml.SafeLoader):
    """Refuses a key that stands twice: one of the two would be ignored."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_spec(name: str) -> dict[str, Any]:
    """The job of a file in YAML or JSON, or of the standard input for `-`: a job spec, or a manifest of Kubernetes, which
    becomes the spec's `manifest`.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        spec = yaml.load(text, Loader=_Strict)  # noqa: S506, TID251 - a SafeLoader, for the user's own file
        if not isinstance(spec, dict):
            raise typer.BadParameter(f"{name} is not one job: it must be a mapping, such as {{tenant: …, name: …}}.")
        json.dumps(spec, allow_nan=False)
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise typer.BadParameter(f"{name}: {error}") from error
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"{name} is not valid YAML: {error}") from error
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(
            f"{name} has a value that JSON does not have ({error}): write it in quotes."
        ) from error
    return {"manifest": spec} if "apiVersion" in spec else spec


def with_options(
    spec: dict[str, Any], *, tenant: str | None, name: str | None, labels: Sequence[str]
) -> dict[str, Any]:
    """The spec with what options say instead."""
    if tenant:
        spec["tenant"] = tenant
    if (name or labels) and "manifest" in spec:
        raise typer.BadParameter("A manifest has its own name and labels: --name and --label are for job specs.")
    if name:
        spec["name"] = name
    if labels:
        spec["labels"] = {**(spec.get("labels") or {}), **pairs(labels, "--label")}
    return spec


def pairs(texts: Sequence[str], option: str) -> Mapping[str, str]:
    """`KEY=VALUE` texts as a mapping."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{option} takes KEY=VALUE, not {text!r}.")
        found[key] = value
    return found
