"""Known holes in what the lock names and in what is vendored: `python -m devtools.audit`, which `make audit` runs.

Asks an advisory database that speaks OSV's protocol (https://google.github.io/osv.dev/api/) about every package and version
of uv.lock, development ones included, and every vendored front-end file. Exit status: 0 nothing known, 1 findings, 2 not
(wholly) checked. What could not be asked is never taken for safe.
"""

import argparse
import json
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
SOURCE = "https://api.osv.dev"
SECONDS = 30
BATCH = 500
MAX_ANSWER_BYTES = 32 * 1024 * 1024
LEAST_REASON = 20


class NotChecked(Exception):
    """The audit could not be carried out; the message says what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """One version of one package, as the advisory database names it."""

    ecosystem: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Advisory:
    """A known vulnerability: its id and other names, a summary, and the versions that fix it."""

    ids: tuple[str, ...]
    summary: str
    fixed_in: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A vulnerability that is accepted for a limited time."""

    advisory: str
    package: str
    until: date
    reason: str


def locked(path: Path) -> Iterator[Component]:
    """Every package of a uv.lock that comes from an index; NotChecked if one has an artefact without a hash."""
    for package in _toml(path).get("package", []):
        source = package["source"]
        if "registry" not in source:
            if "virtual" not in source and "editable" not in source:
                raise NotChecked(
                    f"{package['name']} comes from {next(iter(source))}, which no advisory database covers"
                )
            continue
        artefacts = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        if not artefacts or not all(str(artefact.get("hash", "")).startswith("sha256:") for artefact in artefacts):
            raise NotChecked(f"{package['name']} has no hash in {path.name}; run `uv lock` again")
        yield Component("PyPI", package["name"], package["version"])


def vendored(path: Path) -> Iterator[Component]:
    """The packages of the vendored files."""
    for entry in json.loads(path.read_text(encoding="utf-8")):
        yield Component("npm", entry["package"], entry["version"])


def accepted(path: Path) -> list[Accepted]:
    """The accepted vulnerabilities; NotChecked names an entry without an end or a reason."""
    found = []
    for entry in _toml(path).get("accepted", []):
        if set(entry) != {"advisory", "package", "until", "reason"} or type(entry["until"]) is not date:
            raise NotChecked(f"{path.name}: each entry needs advisory, package, until (a date) and reason: {entry}")
        if len(entry["reason"]) < LEAST_REASON:
            raise NotChecked(f"{path.name}: give the reason for accepting {entry['advisory']} in a sentence")
        found.append(Accepted(**entry))
    return found


def known_holes(source: str, components: Sequence[Component]) -> dict[Component, list[Advisory]]:
    """The database's advisories for each; NotChecked if it cannot be reached or its response has another form."""
    named: dict[Component, list[str]] = {}
    waiting: list[tuple[Component, str]] = [(component, "") for component in components]
    while waiting:
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        answers = _ask(f"{source}/v1/querybatch", {"queries": [_query(*one) for one in batch]}).get("results")
        if not isinstance(answers, list) or len(answers) != len(batch):
            raise NotChecked(f"{source} did not answer every question; nothing was checked")
        for (component, _), answer in zip(batch, answers, strict=True):
            named.setdefault(component, []).extend(hole["id"] for hole in (answer or {}).get("vulns") or [])
            if (answer or {}).get("next_page_token"):
                waiting.append((component, answer["next_page_token"]))
    told = {name: _ask(f"{source}/v1/vulns/{name}") for name in sorted({id_ for ids in named.values() for id_ in ids})}
    return {
        component: [_advisory(told[name], component) for name in ids if not told[name].get("withdrawn")]
        for component, ids in named.items()
    }


def verdicts(
    holes: dict[Component, list[Advisory]], passes: Iterable[Accepted], today: date
) -> tuple[list[str], list[str]]:
    """Lines that fail the audit, and lines about accepted vulnerabilities."""
    failing: list[str] = []
    passed: list[str] = []
    unused = {(entry.package, entry.advisory): entry for entry in passes}
    waivers = dict(unused)
    for component, advisories in sorted(holes.items()):
        for advisory in advisories:
            waiver = next(
                (waivers[component.name, id_] for id_ in advisory.ids if (component.name, id_) in waivers), None
            )
            fix = f"fixed in {', '.join(advisory.fixed_in)}" if advisory.fixed_in else "no known fix"
            line = f"{component.name} {component.version}: {' = '.join(advisory.ids)}: {advisory.summary} ({fix})"
            if waiver is None:
                failing.append(line)
                continue
            unused.pop((waiver.package, waiver.advisory), None)
            if waiver.until < today:
                failing.append(f"{line}; accepted until {waiver.until}, now expired: {waiver.reason}")
            else:
                passed.append(f"{line}; accepted until {waiver.until}: {waiver.reason}")
    failing += [
        f"audit-accepted.toml: {entry.advisory} no longer applies to {entry.package}; remove the entry"
        for entry in unused.values()
    ]
    return failing, passed


def _query(component: Component, page: str) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "package": {"name": component.name, "ecosystem": component.ecosystem},
        "version": component.version,
    }
    return {**asked, "page_token": page} if page else asked


def _advisory(told: dict[str, Any], component: Component) -> Advisory:
    fixed = {
        event["fixed"]
        for affected in told.get("affected", [])
        if affected.get("package", {}).get("name", "").lower() == component.name.lower()
        for reach in affected.get("ranges", [])
        if reach.get("type") != "GIT"
        for event in reach.get("events", [])
        if "fixed" in event
    }
    text = told.get("summary") or told.get("details") or "no summary"
    return Advisory((told["id"], *told.get("aliases", [])), text.splitlines()[0][:200], tuple(sorted(fixed)))


def _ask(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - the operator's own address
        url, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - the same
            told = json.loads(answer.read(MAX_ANSWER_BYTES))
    except (urllib.error.URLError, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise NotChecked(
            f"{url} cannot be reached ({why}): nothing was checked. Allow HTTPS to it, or name a mirror that supports"
            " OSV's protocol: make audit SOURCE=https://…"
        ) from None
    if not isinstance(told, dict):
        raise NotChecked(f"{url} did not return a JSON object: nothing was checked")
    return told


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotChecked(f"{path} cannot be read: {error}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """0 nothing known, 1 findings, 2 not checked."""
    parser = argparse.ArgumentParser(prog="python -m devtools.audit", description=__doc__)
    parser.add_argument("--lock", type=Path, default=PROJECT / "uv.lock")
    parser.add_argument("--vendored", type=Path, default=PROJECT / "static/vendor/vendored.json")
    parser.add_argument("--accepted", type=Path, default=PROJECT / "audit-accepted.toml")
    parser.add_argument("--source", default=SOURCE, help=f"advisory database (default: {SOURCE})")
    options = parser.parse_args(arguments)
    try:
        components = sorted({*locked(options.lock), *vendored(options.vendored)})
        passes = accepted(options.accepted)
        holes = known_holes(options.source.rstrip("/"), components)
        failing, passed = verdicts(holes, passes, datetime.now(UTC).date())  # noqa: TID251 - no product code
    except (NotChecked, KeyError, TypeError, AttributeError) as failure:
        print(f"NOT CHECKED: {failure}", file=sys.stderr)
        return 2
    for line in passed:
        print(f"passed   {line}")
    for line in failing:
        print(f"FOUND    {line}")
    print(f"checked {len(components)} packages against {options.source}: {len(failing)} found, {len(passed)} accepted")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
