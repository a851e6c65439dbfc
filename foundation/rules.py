"""The rules of tables: functions and triggers. Each is written once, in `ROOM/sql/FILE.sql`, and installed by migrations.

Change a rule where it is written, and let the next migration install it again by its name. A new database gets today's text from the
room's first migration, so a function may name what later migrations add; the first line of a trigger may not. A rule
that needs a later table or column there goes into a new file, which that migration installs.
"""

import re
from pathlib import Path

from django.db.migrations import RunSQL

ROOT = Path(__file__).resolve().parent.parent
STATEMENT = re.compile(
    r"^CREATE (?:OR REPLACE |CONSTRAINT )(?P<kind>FUNCTION|TRIGGER) (?P<name>\w+).*?(?=^CREATE |\Z)",
    re.MULTILINE | re.DOTALL,
)
CONSTRAINT_TRIGGER = re.compile(r"^CREATE CONSTRAINT TRIGGER (\w+)[^;]*? ON (\w+)", re.MULTILINE)
REPLACED = r"DROP TRIGGER IF EXISTS \1 ON \2;\n\g<0>"
"""PostgreSQL replaces functions and triggers, but no constraint trigger."""
BEFORE = "SET LOCAL check_function_bodies = off;\n"
"""A function may name what a later file, or a later migration, creates."""


def rules(path: str, *names: str) -> RunSQL:
    """Installs the rules of a file (`quotas/limits.sql`), or those that are named (`FUNCTION quotas_bound`), over what there is.

    A trigger locks its table until the migration ends, so name only what changed. The reverse drops the functions of a whole file
    with their triggers; the text that a named rule had before is not kept. Raises LookupError.
    """
    functions = [name.partition(" ")[2] for name in written(path) if name.startswith("FUNCTION ")]
    undo = RunSQL.noop if names else f"DROP FUNCTION IF EXISTS {', '.join(functions)} CASCADE"
    return RunSQL(installing(path, *names), undo)


def installing(path: str, *names: str) -> str:
    """The statements that install the rules of a file, or those that are named, over what there is. Raises LookupError."""
    found = written(path)
    if missing := set(names) - found.keys():
        raise LookupError(f"{path} has no {', '.join(sorted(missing))}")
    text = "\n".join(statement for name, statement in found.items() if not names or name in names)
    return BEFORE + CONSTRAINT_TRIGGER.sub(REPLACED, text)


def written(path: str) -> dict[str, str]:
    """The statements of a file by what they create: `FUNCTION quotas_bound`, `TRIGGER quotas_limit_goes`."""
    room, _, file = path.partition("/")
    found: dict[str, str] = {}
    for match in STATEMENT.finditer((ROOT / room / "sql" / file).read_text(encoding="utf-8")):
        name = f"{match['kind']} {match['name']}"
        # Triggers of two tables may have one name.
        found[name] = f"{found[name]}\n{match[0]}" if name in found else match[0]
    return found
