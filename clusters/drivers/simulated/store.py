"""A simulated cluster's etcd: one SQLite file that every process opens. Changes are numbered, deletions leave a record.

A write is one SQLite transaction (WAL), so killing a process at any point leaves the cluster as it was before or after.
"""

import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from clusters.drivers.port import Ambiguous, Unreachable

from .objects import Claim, Job, Node, Pod, Slice

KindName = Literal["node", "pod", "job", "slice", "claim"]
Object = Node | Pod | Job | Slice | Claim
Kept = TypeVar("Kept", Node, Pod, Job, Slice, Claim)

_BUSY_SECONDS = 5.0
_TRACES_KEPT = 20_000
_DECODERS: dict[str, msgspec.json.Decoder[Object]] = {
    "node": msgspec.json.Decoder(Node),
    "pod": msgspec.json.Decoder(Pod),
    "job": msgspec.json.Decoder(Job),
    "slice": msgspec.json.Decoder(Slice),
    "claim": msgspec.json.Decoder(Claim),
}
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS namespaces (name TEXT PRIMARY KEY, labels TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS policies (
    namespace TEXT NOT NULL, name TEXT NOT NULL, owners TEXT, body TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS secrets (
    namespace TEXT NOT NULL, name TEXT NOT NULL, owners TEXT, body TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS services (
    namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL, owners TEXT, body TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS templates (
    namespace TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL, owner TEXT NOT NULL,
    state TEXT NOT NULL, due_at REAL, revision INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (kind, namespace, name)
);
CREATE INDEX IF NOT EXISTS changes ON objects (kind, revision);
CREATE INDEX IF NOT EXISTS due ON objects (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS states ON objects (kind, state);
CREATE INDEX IF NOT EXISTS owned ON objects (owner) WHERE owner <> '';
CREATE TABLE IF NOT EXISTS deletions (revision INTEGER PRIMARY KEY, kind TEXT NOT NULL, body BLOB NOT NULL);
"""


_GLANCE = """
SELECT coalesce(max(value) FILTER (WHERE name = 'revision'), 0), coalesce(max(value) FILTER (WHERE name = 'horizon'), 0),
       coalesce(max(value) FILTER (WHERE name = 'trouble'), ''),
       coalesce(max(value) FILTER (WHERE name = 'trouble_since'), 0),
       (SELECT min(due_at) FROM objects WHERE due_at IS NOT NULL)
  FROM facts
"""


@dataclass(frozen=True, slots=True)
class Glance:
    """What a watch reads ten times a second: in one statement, because a process may watch hundreds of clusters."""

    revision: int
    """The number of the newest change."""
    horizon: int
    """Records of deletions up to this revision are discarded."""
    trouble: str
    """The kind of trouble; empty for none."""
    trouble_since: float
    due_at: float
    """The time of the next scheduled event; infinite if there is none. Times are POSIX timestamps."""


class Store:
    """One open file. Threads must not use it at the same time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise Unreachable(f"the simulated cluster cannot be opened: {error}") from None

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    @contextmanager
    def write(self) -> Iterator[None]:
        """One change of the cluster, atomic."""
        try:
            self._file.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            raise Unreachable("the simulated cluster is busy") from None
        try:
            yield
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        try:
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            raise Ambiguous(f"the simulated cluster could not be written: {error}") from None

    def fact(self, name: str) -> str:
        """A stored fact; empty if there is none."""
        row = self._file.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def glance(self) -> Glance:
        """The state of the whole cluster."""
        revision, horizon, trouble, trouble_since, due_at = self._file.execute(_GLANCE).fetchone()
        due_at = math.inf if due_at is None else due_at
        return Glance(int(revision), int(horizon), str(trouble), float(trouble_since), due_at)

    def set_fact(self, name: str, value: str) -> None:
        """Stores a fact."""
        self._file.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def revision(self) -> int:
        """The number of the newest change."""
        return int(self.fact("revision") or 0)

    def namespace_labels(self, name: str) -> dict[str, str] | None:
        """A namespace's labels; None if it does not exist."""
        row = self._file.execute("SELECT labels FROM namespaces WHERE name = ?", (name,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=dict[str, str])

    def add_namespace(self, name: str, labels: dict[str, str]) -> None:
        """Creates a namespace."""
        self._file.execute("INSERT INTO namespaces VALUES (?, ?)", (name, msgspec.json.encode(labels)))

    def put_policy(self, namespace: str, manifest: Mapping[str, Any]) -> None:
        """Stores a NetworkPolicy."""
        metadata = manifest["metadata"]
        row = (namespace, metadata["name"], _owners(manifest), msgspec.json.encode(manifest))
        self._file.execute("INSERT OR REPLACE INTO policies VALUES (?, ?, ?, ?)", row)

    def policies(self, namespace: str) -> list[dict[str, Any]]:
        """A namespace's NetworkPolicies, by name."""
        rows = self._file.execute(
            "SELECT body FROM policies WHERE namespace = ? ORDER BY name", (namespace,)
        ).fetchall()
        return [msgspec.json.decode(row[0]) for row in rows]

    def add_service(self, namespace: str, uid: str, manifest: Mapping[str, Any]) -> None:
        """Stores a Service."""
        row = (namespace, manifest["metadata"]["name"], uid, _owners(manifest), msgspec.json.encode(manifest))
        self._file.execute("INSERT INTO services VALUES (?, ?, ?, ?, ?)", row)

    def service(self, namespace: str, name: str) -> tuple[str, dict[str, Any]] | None:
        """The uid and the manifest of the Service of that name."""
        row = self._file.execute(
            "SELECT uid, body FROM services WHERE namespace = ? AND name = ?", (namespace, name)
        ).fetchone()
        return None if row is None else (str(row[0]), msgspec.json.decode(row[1], type=dict[str, Any]))

    def put_secret(self, namespace: str, manifest: Mapping[str, Any]) -> None:
        """Stores a Secret."""
        row = (namespace, manifest["metadata"]["name"], _owners(manifest), msgspec.json.encode(manifest))
        self._file.execute("INSERT INTO secrets VALUES (?, ?, ?, ?)", row)

    def secrets(self, namespace: str) -> list[dict[str, Any]]:
        """A namespace's Secrets, by name."""
        rows = self._file.execute("SELECT body FROM secrets WHERE namespace = ? ORDER BY name", (namespace,)).fetchall()
        return [msgspec.json.decode(row[0]) for row in rows]

    def put_template(self, namespace: str, name: str, manifest: Mapping[str, Any]) -> None:
        """Stores a ResourceClaimTemplate."""
        self._file.execute("INSERT INTO templates VALUES (?, ?, ?)", (namespace, name, msgspec.json.encode(manifest)))

    def template(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The ResourceClaimTemplate of that name."""
        row = self._file.execute(
            "SELECT body FROM templates WHERE namespace = ? AND name = ?", (namespace, name)
        ).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=dict[str, Any])

    def disown(self, namespace: str, uid: str) -> None:
        """The garbage collector's step: removes one owner from its policies, Services and Secrets, and deletes those
        without another owner.
        """
        for table in ("policies", "services", "secrets"):
            owned = "namespace = ? AND instr(owners, ?) > 0"
            update = f"UPDATE {table} SET owners = trim(replace(owners, ?, '')) WHERE {owned}"  # noqa: S608 - as above
            if self._file.execute(update, (uid, namespace, uid)).rowcount:
                self._file.execute(f"DELETE FROM {table} WHERE namespace = ? AND owners = ''", (namespace,))  # noqa: S608

    def put(self, thing: Object) -> None:
        """Stores an object as changed now."""
        kind, namespace, owner, state, due_at = _columns(thing)
        self._file.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (kind, namespace, thing.name, thing.uid, owner, state, due_at, self._next(), msgspec.json.encode(thing)),
        )

    def remove(self, thing: Object) -> None:
        """Deletes an object and records it for watchers. The oldest records are discarded; watchers behind them list
        again.
        """
        kind, namespace, *_ = _columns(thing)
        self._file.execute(
            "DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?", (kind, namespace, thing.name)
        )
        revision = self._next()
        self._file.execute("INSERT INTO deletions VALUES (?, ?, ?)", (revision, kind, msgspec.json.encode(thing)))
        horizon = revision - _TRACES_KEPT
        if horizon > 0 and self._file.execute("DELETE FROM deletions WHERE revision <= ?", (horizon,)).rowcount:
            self.set_fact("horizon", str(horizon))

    def nodes(self) -> list[Node]:
        """All nodes, by name."""
        return self._select(Node, "kind = 'node' ORDER BY name")

    def job(self, namespace: str, name: str) -> Job | None:
        """The Job of that name."""
        return next(iter(self._select(Job, "kind = 'job' AND namespace = ? AND name = ?", namespace, name)), None)

    def job_by_uid(self, uid: str) -> Job | None:
        """The Job with that uid."""
        return next(iter(self._select(Job, "kind = 'job' AND uid = ?", uid)), None)

    def jobs(self) -> list[Job]:
        """All Jobs."""
        return self._select(Job, "kind = 'job' ORDER BY namespace, name")

    def pods(self) -> list[Pod]:
        """All pods."""
        return self._select(Pod, "kind = 'pod' ORDER BY namespace, name")

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name."""
        return next(iter(self._select(Pod, "kind = 'pod' AND namespace = ? AND name = ?", namespace, name)), None)

    def pods_of(self, job_uid: str) -> list[Pod]:
        """One Job's pods, by name."""
        return self._select(Pod, "kind = 'pod' AND owner = ? ORDER BY name", job_uid)

    def pods_in(self, phase: str) -> list[Pod]:
        """Pods in a phase, in the order in which they entered it."""
        return self._select(Pod, "kind = 'pod' AND state = ? ORDER BY revision", phase)

    def slices(self) -> list[Slice]:
        """All ResourceSlices, by name."""
        return self._select(Slice, "kind = 'slice' ORDER BY name")

    def claims(self) -> list[Claim]:
        """All ResourceClaims."""
        return self._select(Claim, "kind = 'claim' ORDER BY namespace, name")

    def claims_of(self, pod_uid: str) -> list[Claim]:
        """The claims that were made for a pod."""
        return self._select(Claim, "kind = 'claim' AND owner = ? ORDER BY name", pod_uid)

    def next_due(self) -> tuple[float, Object] | None:
        """The time of the next scheduled event, and its object."""
        row = self._file.execute(
            "SELECT due_at, kind, body FROM objects WHERE due_at IS NOT NULL ORDER BY due_at, kind, name LIMIT 1"
        ).fetchone()
        return None if row is None else (float(row[0]), _DECODERS[row[1]].decode(row[2]))

    def changes_since(self, kind: KindName, revision: int) -> list[tuple[int, bool, Object]]:
        """(revision, is a deletion, object) of everything that changed after `revision`, in order."""
        decoder = _DECODERS[kind]
        rows = self._file.execute(
            "SELECT revision, 0, body FROM objects WHERE kind = ? AND revision > ?"
            " UNION ALL SELECT revision, 1, body FROM deletions WHERE kind = ? AND revision > ? ORDER BY 1",
            (kind, revision, kind, revision),
        ).fetchall()
        return [(int(row[0]), bool(row[1]), decoder.decode(row[2])) for row in rows]

    def _select(self, kept: type[Kept], where: str, *values: str) -> list[Kept]:
        rows: Sequence[tuple[bytes]] = self._file.execute(f"SELECT body FROM objects WHERE {where}", values).fetchall()  # noqa: S608 - `where` is written above
        decoder = msgspec.json.Decoder(kept)
        return [decoder.decode(row[0]) for row in rows]

    def _next(self) -> int:
        revision = self.revision() + 1
        self.set_fact("revision", str(revision))
        return revision


def _owners(manifest: Mapping[str, Any]) -> str | None:
    """The uids of an object's owners; None if it has none, and so is never collected."""
    return " ".join(owner["uid"] for owner in manifest["metadata"].get("ownerReferences", ())) or None


def _columns(thing: Object) -> tuple[KindName, str, str, str, float | None]:
    """(kind, namespace, owner's uid, state, time of its next scheduled event)"""
    if isinstance(thing, Node):
        return "node", "", "", "", None
    if isinstance(thing, Pod):
        return "pod", thing.namespace, thing.job_uid, thing.phase, None if thing.is_ended else thing.ends_at
    if isinstance(thing, Slice):
        return "slice", "", "", "", None
    if isinstance(thing, Claim):
        return "claim", thing.namespace, thing.pod_uid, "", None
    return "job", thing.namespace, "", thing.outcome, thing.due_at
