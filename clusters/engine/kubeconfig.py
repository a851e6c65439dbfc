"""Parses an uploaded kubeconfig with our own schema. Nothing in it is run, fetched, or read from disk.

A kubeconfig can name programs, files, proxies and identity providers, and client libraries use them while loading. This
parser refuses every key that is not one of the few plain ones, by its path, in every entry, including unused ones.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import yaml

from foundation.problems import Invalid

from .connection import Connection, ConnectionFields, FieldNames, read_connection

MAX_CHARACTERS = 256 * 1024
MAX_DEPTH = 8
MAX_NODES = 5_000
MAX_ENTRIES = 200
_SHOWN_KEY = re.compile(r"[A-Za-z0-9._-]{1,64}")
_BLANKS = re.compile(r"\s+")
WHY_REFUSED = {
    "exec": "programs are never run; give a token or a client certificate",
    "auth-provider": "identity providers are never called; give a token or a client certificate",
    "tokenFile": "files are never read; put the token itself into `token`",
    "client-certificate": "files are never read; use client-certificate-data",
    "client-key": "files are never read; use client-key-data",
    "certificate-authority": "files are never read; use certificate-authority-data",
    "insecure-skip-tls-verify": "the server's certificate is always verified; give certificate-authority-data",
    "tls-server-name": "the certificate must be valid for the server's own name",
    "proxy-url": "clusters are reached directly, never through a proxy from a kubeconfig",
    "username": "basic authentication is not supported; give a token or a client certificate",
    "password": "basic authentication is not supported; give a token or a client certificate",
    "as": "impersonation is not supported; give the account's own credential",
    "as-uid": "impersonation is not supported; give the account's own credential",
    "as-groups": "impersonation is not supported; give the account's own credential",
    "as-user-extra": "impersonation is not supported; give the account's own credential",
}


def read_kubeconfig(text: str, field: str = "kubeconfig") -> Connection:
    """The connection of the current context; Invalid names the path of the first unacceptable value."""
    config = _Reader(field).mapping(_load(text, field), "", _TOP)
    reader = _Reader(field)
    clusters = reader.entries(config, "clusters", "cluster", _CLUSTER)
    users = reader.entries(config, "users", "user", _USER)
    contexts = reader.entries(config, "contexts", "context", _CONTEXT)
    if config.get("apiVersion", "v1") != "v1" or config.get("kind", "Config") != "Config":
        reader.refuse("", "not_a_kubeconfig", "apiVersion must be v1 and kind Config")
    _, context = reader.choose(contexts, config.get("current-context"), "current-context")
    cluster_path, cluster = reader.choose(clusters, context.get("cluster"), "contexts")
    user_path, user = reader.choose(users, context.get("user"), "contexts")
    return _connection(reader, (cluster_path, cluster), (user_path, user))


def _connection(
    reader: "_Reader", cluster: tuple[str, Mapping[str, str]], user: tuple[str, Mapping[str, str]]
) -> Connection:
    cluster_path, user_path = cluster[0], user[0]
    given = ConnectionFields(
        server=cluster[1].get("server", ""),
        ca_pem=reader.decoded(*cluster, "certificate-authority-data"),
        token=user[1].get("token", ""),
        client_certificate_pem=reader.decoded(*user, "client-certificate-data"),
        client_key_pem=reader.decoded(*user, "client-key-data"),
    )
    names = FieldNames(
        server=reader.path(f"{cluster_path}.server"),
        ca_pem=reader.path(f"{cluster_path}.certificate-authority-data"),
        token=reader.path(f"{user_path}.token"),
        client_certificate_pem=reader.path(f"{user_path}.client-certificate-data"),
        client_key_pem=reader.path(f"{user_path}.client-key-data"),
    )
    return read_connection(given, names)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _map(value: Any) -> bool:
    return isinstance(value, dict)


def _empty(value: Any) -> bool:
    return value is None or value == {}


_Shape = Mapping[str, Callable[[Any], bool]]
_TOP: _Shape = {
    "apiVersion": _text,
    "kind": _text,
    "preferences": _empty,
    "clusters": _list,
    "users": _list,
    "contexts": _list,
    "current-context": _text,
}
_CLUSTER: _Shape = {"server": _text, "certificate-authority-data": _text}
_USER: _Shape = {"token": _text, "client-certificate-data": _text, "client-key-data": _text}
_CONTEXT: _Shape = {"cluster": _text, "user": _text, "namespace": _text}


class _Reader:
    """Walks the parsed text; every refusal names the path below the request's field."""

    def __init__(self, field: str) -> None:
        self.field = field

    def path(self, path: str) -> str:
        return f"{self.field}.{path}" if path else self.field

    def refuse(self, path: str, code: str, detail: str) -> NoReturn:
        raise Invalid.field(self.path(path), code, detail)

    def mapping(self, value: Any, path: str, shape: _Shape) -> dict[str, Any]:
        """`value` as a mapping of known keys with values of their kinds."""
        if not isinstance(value, dict):
            self.refuse(path, "wrong_type", "this must be a mapping")
        for key, item in value.items():
            shown = key if isinstance(key, str) and _SHOWN_KEY.fullmatch(key) else "(key)"
            where = f"{path}.{shown}" if path else shown
            if key in WHY_REFUSED and key not in shape:
                self.refuse(where, "not_allowed", f"{key}: {WHY_REFUSED[key]}")
            if key not in shape:
                self.refuse(where, "unknown_field", "this key is not supported; remove it")
            if not shape[key](item):
                self.refuse(where, "wrong_type", "this has the wrong type")
        return value

    def entries(
        self, config: Mapping[str, Any], plural: str, singular: str, shape: _Shape
    ) -> dict[str, tuple[str, dict[str, str]]]:
        """The named entries of a list, each with its path; all of them are checked."""
        found: dict[str, tuple[str, dict[str, str]]] = {}
        listed = config.get(plural) or []
        if len(listed) > MAX_ENTRIES:
            self.refuse(plural, "too_many", f"at most {MAX_ENTRIES} entries")
        for index, item in enumerate(listed):
            path = f"{plural}[{index}]"
            entry = self.mapping(item, path, {"name": _text, singular: _map})
            if not entry.get("name") or singular not in entry:
                self.refuse(path, "required", f"an entry must have a name and a {singular}")
            if entry["name"] in found:
                self.refuse(f"{path}.name", "given_twice", "two entries have this name")
            inner = f"{path}.{singular}"
            found[entry["name"]] = (inner, self.mapping(entry[singular], inner, shape))
        return found

    def choose(
        self, entries: Mapping[str, tuple[str, dict[str, str]]], name: str | None, named_by: str
    ) -> tuple[str, dict[str, str]]:
        """The entry called `name`, or the only one if no name is given."""
        if name is not None and name in entries:
            return entries[name]
        if name or len(entries) != 1:
            self.refuse(named_by, "not_found", "this does not name exactly one cluster, user and context of the file")
        return next(iter(entries.values()))

    def decoded(self, path: str, entry: Mapping[str, str], key: str) -> str:
        """The base64 field as text; empty when absent."""
        try:
            return base64.b64decode(_BLANKS.sub("", entry.get(key, "")), validate=True).decode("ascii")
        except (binascii.Error, ValueError):
            self.refuse(f"{path}.{key}", "bad_base64", "this is not base64 of PEM text")


class _PlainLoader(yaml.SafeLoader):
    """YAML with only mappings, lists, text, booleans and null: no aliases, tags, merges, dates or numbers.

    Numbers remain text: no field here is a number, and Python's own conversion of long ones is slow.
    """

    def construct_plain_mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is not plain text", key_node.start_mark)
            key = key_node.value
            if key in result:
                raise yaml.constructor.ConstructorError(None, None, "a key appears twice", key_node.start_mark)
            result[key] = self.construct_object(value_node, deep=True)
        return result


_KEPT_TAGS = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:bool")
_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_PlainLoader.add_constructor("tag:yaml.org,2002:map", _PlainLoader.construct_plain_mapping)


def _load(text: str, field: str) -> Any:
    """The text as plain values. Dangerous YAML is refused as a stream of events, before any value is built."""
    if len(text) > MAX_CHARACTERS:
        raise Invalid.field(field, "too_long", f"a kubeconfig has at most {MAX_CHARACTERS} characters")
    try:
        _check_events(text, field)
        return yaml.load(text, Loader=_PlainLoader)  # noqa: S506, TID251 - a SafeLoader with less, and the one place for it
    except yaml.MarkedYAMLError as error:
        where = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise Invalid.field(field, "bad_yaml", f"this is not plain YAML{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise Invalid.field(field, "bad_yaml", "this is not plain YAML") from None


def _check_events(text: str, field: str) -> None:
    depth = nodes = documents = 0
    for event in yaml.parse(text, Loader=_PlainLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise Invalid.field(field, "yaml_alias", "anchors and aliases are not accepted")
        if getattr(event, "tag", None):
            raise Invalid.field(field, "yaml_tag", "tags are not accepted")
        documents += isinstance(event, yaml.DocumentStartEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or nodes > MAX_NODES or documents > 1:
            raise Invalid.field(
                field, "too_deep_or_large", "this is nested too deep, too long, or more than one document"
            )
